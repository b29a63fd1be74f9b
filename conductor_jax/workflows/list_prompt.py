"""What a conductor is told of plans as lists.

The contents are those of RL Conductor's prompt (arXiv 2512.04388).
"""

from conductor_jax.workflows.format import Access

_TASK = """\
A question is answered by asking language models of different skills, step by step, and you plan \
the steps. A step is a model{more}. {subtask}{sees} The last answer goes to the user.

Think first if it helps. Then write {lists}, with one entry per step, {max_steps} at most:

{format}{meaning}"""

_SUBTASK = """\
A subtask tells its model in plain words what to do: solve the question or a part of it, check or \
refine an earlier answer, or prepare a later step. The first model sees the question and its \
subtask; """
_NO_SUBTASK = "Every model sees the question and is asked to answer it; "
# By whether there are subtasks and access lists: what else a step is, and what its model sees.
_STEP: dict[tuple[bool, bool], tuple[str, str]] = {
    (True, True): (
        ", a subtask and an access list",
        "a later one also sees the subtasks and answers of the steps its access list opens."),
    (True, False): (" and a subtask", "so does every later one."),
    (False, True): (
        " and an access list",
        "a later one also sees the answers of the steps its access list opens."),
    (False, False): ("", "it sees no other answer."),
}
_ACCESS: dict[Access, tuple[str, str]] = {
    "binary": ('[] or ["all"]', 'Access `[]` opens no earlier step, `["all"]` opens all of them.'),
    "positions": (
        "[earlier steps]", "Steps are counted from 0; access `[]` opens no earlier step."),
}
_LISTS = {1: "a Python list", 2: "two Python lists of equal length",
          3: "three Python lists of equal length"}

_PREVIOUS = """\
A plan has been tried before, and you see the last answer it got. Either that answer goes to the \
user as it is: then write the lists without entries. Or write another plan{opens}."""
_OPENS = ', whose access `["all"]` also opens that answer'


def list_instructions(max_steps: int, access: Access, subtasks: bool, *, later: bool) -> str:
  """How a question is answered, what a step is, and the format.

  Args:
    max_steps, access, subtasks: as in `ListFormat`.
    later: whether there is an answer of an earlier round.
  """
  has_access = access != "none"
  entry, meaning = _ACCESS.get(access, ("", ""))
  more, sees = _STEP[subtasks, has_access]
  lists = {"model_id": "[number of the model, ...]"}
  if subtasks:
    lists["subtasks"] = '["what it does", ...]'
  if has_access:
    lists["access_list"] = f"[{entry}, ...]"
  text = _TASK.format(
      more=more, subtask=_SUBTASK if subtasks else _NO_SUBTASK, sees=sees,
      lists=_LISTS[len(lists)], max_steps=max_steps,
      format="\n".join(f"{name} = {value}" for name, value in lists.items()),
      meaning=f"\n\n{meaning}" if has_access else "")
  if later:
    text += "\n\n" + _PREVIOUS.format(opens=_OPENS if has_access else "")
  return text
