"""Examples of plans in the conductor's prompt.

Those that come with the project are of none of the domains that anything here is trained on: the
best choice in the ablation of RL Conductor (arXiv 2512.04388). Which model they ask says nothing of
the models on offer.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conductor_jax.errors import UserError
from conductor_jax.workflows.lists import PlanFormat, render_lists
from conductor_jax.workflows.workflow import PLAIN_SUBTASK, Step, Workflow


@dataclass(frozen=True)
class Example:
  """A question with a plan for it.

  Attributes:
    question: what is asked.
    models: the numbers of the models it offers.
    thought: what is said before the plan.
    workflow: the plan.
    previous: the last answer of the round before, None in the first round.
  """

  question: str
  models: Sequence[int]
  thought: str
  workflow: Workflow
  previous: str | None = None

  def completion(self, format: PlanFormat) -> str:
    """The text of the plan in a format, see `fitted`."""
    return f"{self.thought}\n" + render_lists(
        self.fitted(format), format, previous=self.previous is not None)

  def fitted(self, format: PlanFormat) -> Workflow:
    """The plan, as far as the format has room for what it says.

    Without subtasks the plain one takes their place; without access lists no step sees another; and
    one who sees all earlier steps under binary access sees the answer before them, too.

    Raises:
      ValueError: a step sees some of the earlier ones only, and access is binary.
    """
    def fit(index: int, step: Step) -> Step:
      subtask = step.subtask if format.subtasks else PLAIN_SUBTASK
      if format.access == "none":
        return Step(step.worker, subtask)
      if format.access == "binary" and step.sees not in ((), tuple(range(index))):
        raise ValueError(f"under binary access step {index} sees all earlier steps or none, and "
                         f"not {list(step.sees)}")
      joined = format.access == "binary" and self.previous is not None and bool(step.sees)
      return Step(step.worker, subtask, step.sees, step.sees_previous or joined)

    return Workflow(tuple(fit(i, step) for i, step in enumerate(self.workflow.steps)))


OUTSIDE = (
    Example(
        "Which day of the week comes 100 days after a Tuesday?", range(3),
        "Two models can work this out on their own, and a third one settles it where they differ.",
        Workflow((
            Step(0, "Work out the day of the week, step by step."),
            Step(2, "Find the remainder of 100 divided by 7, and count on from Tuesday."),
            Step(1, "Compare both answers, and give the right one.", (0, 1))))),
    Example(
        "Write a couplet about the harvest moon.", range(4),
        "One good writer is enough.",
        Workflow((Step(3, "Write a couplet of two rhyming lines about the harvest moon."),))),
    Example(
        "Give the year in which people first walked on the Moon in Roman numerals.", range(3),
        "This needs a fact first, and then a conversion of it.",
        Workflow((
            Step(1, "State the year in which people first walked on the Moon."),
            Step(0, "Write the year that was found in Roman numerals.", (0,))))),
    Example(
        "Translate \"Where is the railway station?\" into Italian.", range(2),
        "A translation, and someone who reads it again.",
        Workflow((
            Step(1, "Translate the sentence into Italian."),
            Step(0, "Check grammar and spelling of the translation, and give the final one.",
                 (0,))))),
    Example(
        "Plan a dinner of three courses without nuts, and list what to buy.", range(5),
        "Ideas first, then a check for nuts, then the list.",
        Workflow((
            Step(4, "Propose three courses that go together and hold no nuts."),
            Step(2, "Name every ingredient that is or may hold a nut, and replace it.", (0,)),
            Step(0, "Give the menu, and the list of what to buy.", (0, 1))))),
)


def read_examples(path: Path) -> list[Example]:
  """Reads examples of one's own: JSON lines such as

      {"question": "Why?", "models": 2, "thought": "One is enough.",
       "steps": [{"worker": 1, "subtask": "Explain it.", "sees": []}]}

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
  example = Example(
      str(fields["question"]), range(int(fields["models"])), str(fields["thought"]),
      Workflow(steps))
  for step in steps:
    if step.worker not in example.models:
      raise ValueError(f"worker {step.worker} is none of its {len(example.models)} models")
    if not step.subtask.strip():
      raise ValueError("a subtask is empty")
  if not steps:
    raise ValueError("it has no steps")
  return example
