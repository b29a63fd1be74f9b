"""Examples of plans in the conductor's prompt.

Those that come with the project are of none of the domains that anything here is trained on: the
best choice in the ablation of RL Conductor (arXiv 2512.04388). Which model they ask says nothing of
the models on offer.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conductor_jax.errors import UserError
from conductor_jax.workflows.format import Example
from conductor_jax.workflows.roles import ROLES
from conductor_jax.workflows.workflow import Step, Workflow

OUTSIDE = (
    Example(
        "Which day of the week comes 100 days after a Tuesday?", range(3),
        "Two models can work this out on their own, and a third one settles it where they differ.",
        Workflow((
            Step(0, "Work out the day of the week, step by step."),
            Step(2, "Find the remainder of 100 divided by 7, and count on from Tuesday."),
            Step(1, "Compare both answers, and give the right one.", (0, 1)))),
        roles=("calculator", "calculator", "checker")),
    Example(
        "Write a couplet about the harvest moon.", range(4),
        "One good writer is enough.",
        Workflow((Step(3, "Write a couplet of two rhyming lines about the harvest moon."),)),
        roles=("writer",)),
    Example(
        "Give the year in which people first walked on the Moon in Roman numerals.", range(3),
        "This needs a fact first, and then a conversion of it.",
        Workflow((
            Step(1, "State the year in which people first walked on the Moon."),
            Step(0, "Write the year that was found in Roman numerals.", (0,)))),
        roles=("researcher", "solver")),
    Example(
        "Translate \"Where is the railway station?\" into Italian.", range(2),
        "A translation, and someone who reads it again.",
        Workflow((
            Step(1, "Translate the sentence into Italian."),
            Step(0, "Check grammar and spelling of the translation, and give the final one.",
                 (0,)))),
        roles=("writer", "checker")),
    Example(
        "Plan a dinner of three courses without nuts, and list what to buy.", range(5),
        "Ideas first, then a check for nuts, then the list.",
        Workflow((
            Step(4, "Propose three courses that go together and hold no nuts."),
            Step(2, "Name every ingredient that is or may hold a nut, and replace it.", (0,)),
            Step(0, "Give the menu, and the list of what to buy.", (0, 1)))),
        roles=("planner", "checker", "finisher")),
)


def read_examples(path: Path) -> list[Example]:
  """Reads examples of one's own: JSON lines such as

      {"question": "Why?", "models": 2, "thought": "One is enough.",
       "steps": [{"worker": 1, "subtask": "Explain it.", "sees": [], "role": "solver"}]}

  A role is for specifications, and may be left out of all steps.

  Raises:
    UserError: the file is missing, or a line is no example; names the file and the line.
  """
  try:
    lines = path.read_text().splitlines()
  except (OSError, UnicodeDecodeError) as fault:
    raise UserError(f"{path} with the examples of the prompt cannot be read: {fault}") from fault
  examples = []
  for number, line in enumerate(lines, start=1):
    try:
      examples.append(_example(json.loads(line)))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as fault:
      raise UserError(f"{path}, line {number} is no example: {type(fault).__name__}: {fault}; "
                      "conductor_jax/workflows/few_shot.py shows one") from fault
  return examples


def _example(fields: Mapping[str, Any]) -> Example:
  steps = tuple(
      Step(int(step["worker"]), str(step["subtask"]), tuple(map(int, step["sees"])))
      for step in fields["steps"])
  roles = tuple(str(step["role"]) for step in fields["steps"] if "role" in step)
  example = Example(
      str(fields["question"]), range(int(fields["models"])), str(fields["thought"]),
      Workflow(steps), roles=roles)
  for step in steps:
    if step.worker not in example.models:
      raise ValueError(f"worker {step.worker} is none of its {len(example.models)} models")
    if not step.subtask.strip():
      raise ValueError("a subtask is empty")
  if not steps:
    raise ValueError("it has no steps")
  if len(roles) not in (0, len(steps)):
    raise ValueError("some of its steps have a role, and some have none")
  for role in roles:
    if role not in ROLES:
      raise ValueError(f"role {role!r} is none of {', '.join(ROLES)}")
  return example
