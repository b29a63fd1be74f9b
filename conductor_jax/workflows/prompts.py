"""What the conductor is asked."""

from conductor_jax.workflows.lists import Access

_SYSTEM = """\
A question is answered by asking language models of different skills, step by step, and you plan \
the steps. A step is a model, a subtask and an access list. A subtask tells its model in plain \
words what to do: solve the question or a part of it, check or refine an earlier answer, or \
prepare a later step. The first model sees the question and its subtask; a later one also sees \
the subtasks and answers of the steps its access list opens. The last answer goes to the user.

Think first if it helps. Then write three Python lists of equal length, with one entry per step, \
{max_steps} at most:

model_id = [number of the model, ...]
subtasks = ["what it does", ...]
access_list = [{entry}, ...]

{meaning}"""

_ACCESS: dict[Access, tuple[str, str]] = {
    "binary": ('[] or ["all"]', 'Access `[]` opens no earlier step, `["all"]` opens all of them.'),
    "positions": (
        "[earlier steps]", "Steps are counted from 0; access `[]` opens no earlier step."),
}


def conductor_messages(
    question: str, *, workers: int, max_steps: int, access: Access = "binary"
) -> list[dict[str, str]]:
  """The chat that a conductor continues.

  Workers appear as "Model 0", "Model 1", …: names, sizes and prices stay hidden, so what each
  can do has to be learnt (RL Conductor, arXiv 2512.04388).

  Args:
    question: the user's question.
    workers: how many workers are on offer.
    max_steps: the most steps a plan may have.
    access: which entries the access list takes.

  Returns:
    A system and a user message.
  """
  entry, meaning = _ACCESS[access]
  models = ", ".join(f"Model {worker}" for worker in range(workers))
  return [
      {"role": "system",
       "content": _SYSTEM.format(max_steps=max_steps, entry=entry, meaning=meaning)},
      {"role": "user", "content": f"Question: {question}\n\nAvailable models: {models}"},
  ]


def conductor_prompt(
    tokenizer, question: str, *, workers: int, max_steps: int, access: Access = "binary"
) -> list[int]:
  """The tokens that a conductor continues: its messages in the tokenizer's chat template.

  Args:
    tokenizer: a transformers tokenizer with a chat template.
    question, workers, max_steps, access: as in `conductor_messages`.
  """
  messages = conductor_messages(question, workers=workers, max_steps=max_steps, access=access)
  return tokenizer.apply_chat_template(
      messages, add_generation_prompt=True, tokenize=True, return_dict=False)
