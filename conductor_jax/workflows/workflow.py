"""The one representation of a plan that every format parses into and every executor reads."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

# What a worker is asked where a plan, or who plans, writes no subtasks.
PLAIN_SUBTASK = "Answer the question."


@dataclass(frozen=True)
class Step:
  """One call of one worker.

  Attributes:
    worker: the worker's id in the pool on offer.
    subtask: what the worker is asked to do, in natural language.
    sees: the earlier steps whose subtask and answer the worker is shown, ascending.
    sees_previous: whether it is shown, before these, the last step of the round before.
  """

  worker: int
  subtask: str
  sees: tuple[int, ...] = ()
  sees_previous: bool = False


@dataclass(frozen=True)
class Workflow:
  """Steps in order; the last step's answer is the workflow's.

  `sees` holds earlier steps only, so a workflow is a directed acyclic graph by construction. One
  without steps is a later round's alone: the answer of the round before stays as it is.

  Raises:
    ValueError: a step that sees itself, a later step, or one step twice.
  """

  steps: tuple[Step, ...]

  def __post_init__(self):
    for index, step in enumerate(self.steps):
      if list(step.sees) != sorted(set(step.sees)) or any(not 0 <= s < index for s in step.sees):
        raise ValueError(f"step {index} may see distinct earlier steps only, got {step.sees}")

  @cached_property
  def heights(self) -> tuple[int, ...]:
    """Of each step, how many must run one after the other from it on, at most."""
    heights = [1] * len(self.steps)
    for index in reversed(range(len(self.steps))):
      for earlier in self.steps[index].sees:
        heights[earlier] = max(heights[earlier], 1 + heights[index])
    return tuple(heights)

  @property
  def depth(self) -> int:
    """Steps that must run one after the other, at most."""
    return max(self.heights, default=0)


@dataclass(frozen=True)
class Reference:
  """A place in a completion that opens earlier answers to a step.

  Attributes:
    step: who sees them.
    opens: the earlier steps.
    span: start and end of the place, in characters of the completion.
  """

  step: int
  opens: tuple[int, ...]
  span: tuple[int, int]


@dataclass(frozen=True)
class ParsedPlan:
  """A completion that parsed.

  Attributes:
    workflow: what it says.
    spans: `spans[step, field] = (start, end)`, in characters of the completion, for the fields that
      the completion writes: "worker", "subtask" and "sees" in lists, "name", "role", "duty",
      "capacity" and "references" in specifications.
    references: the places that open earlier answers, in the order of steps.
    bare: what each step's worker would be asked without the plan's own words for it; empty where
      the format has no such words.
  """

  workflow: Workflow
  spans: Mapping[tuple[int, str], tuple[int, int]]
  references: tuple[Reference, ...] = ()
  bare: tuple[str, ...] = ()

  def shifted(self, characters: int) -> "ParsedPlan":
    """The same plan in a text with so many characters more at its beginning."""
    def shift(span: tuple[int, int]) -> tuple[int, int]:
      return span[0] + characters, span[1] + characters

    return replace(
        self, spans={key: shift(span) for key, span in self.spans.items()},
        references=tuple(replace(each, span=shift(each.span)) for each in self.references))


@dataclass(frozen=True)
class ParseFailure:
  """A completion that did not parse.

  Attributes:
    reason: one sentence.
    position: the character of the completion at which parsing gave up.
  """

  reason: str
  position: int
