"""What a conductor is told of plans as specifications.

LEMON (arXiv 2605.14483) has such a prompt and does not publish it; this one is ours.
"""

from collections.abc import Sequence

from conductor_jax.workflows.roles import ROLES

_TASK = """\
A question is answered by a team of agents, one after the other, and you plan the team. An agent \
is a language model with {parts}. {duty}{capacity}{sees} The last agent's answer goes to the user.

Think first if it helps. Then write the team in YAML, {max_steps} agents at most:

{shape}

{rules}"""

_DUTY = """\
says in plain words what it does for this question: solve it or a part of it, check or refine an \
earlier answer, or prepare a later one."""
_ROLE = "Its role says what it always does, and its duty "
_NO_ROLE = "Its duty "
_CAPACITY = " One of a larger capacity can do more, and costs more."
_REFERENCES = """\
 It sees the question, and the duties and answers of the earlier agents that its references name."""
_NO_REFERENCES = " It sees the question, and the duties and answers of all earlier agents."
_QUOTES = "A text with a colon, a # or a bracket in it stands in double quotes."
_NONE = " Who refers to nobody has the references []."


def spec_instructions(fields: Sequence[str], max_steps: int, capacities: Sequence[str]) -> str:
  """How a question is answered, what an agent is, and the format.

  Args:
    fields: of an agent, some of `spec_schema.FIELDS`.
    max_steps: the most agents.
    capacities: those that the pool has.
  """
  shape = {"name": "a name of its own", "role": "one of the roles below", "duty": "what it does",
           "capacity": _listed(capacities, "or"), "references": "[names of earlier agents]"}
  parts = [f"a {field}" for field in ("role", "duty", "capacity") if field in fields]
  lines = [f"{'    ' if place else '  - '}{field}: {shape[field]}"
           for place, field in enumerate(fields)]
  rules = _QUOTES + _NONE * ("references" in fields)
  if "role" in fields:
    roles = "\n".join(f"{role}: {text}" for role, text in ROLES.items())
    rules = f"Roles:\n{roles}\n\n{rules}"
  return _TASK.format(
      parts=_listed(parts, "and"), duty=(_ROLE if "role" in fields else _NO_ROLE) + _DUTY,
      capacity=_CAPACITY * ("capacity" in fields),
      sees=_REFERENCES if "references" in fields else _NO_REFERENCES,
      max_steps=max_steps, shape="\n".join(["agents:", *lines]), rules=rules)


def _listed(words: Sequence[str], joint: str) -> str:
  return f" {joint} ".join([", ".join(words[:-1])] * (len(words) > 1) + [words[-1]])
