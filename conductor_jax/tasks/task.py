"""A question with its reference answer, and the verdict on a given answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
  """One question.

  Attributes:
    id: unique within its source and stable across runs.
    question: the text a worker sees, answer options included.
    reference: the right answer, as the grader of `kind` reads it.
    kind: which grader applies and under which name results are broken down, such as "gsm8k".
    metadata: whatever the source carries beside the columns above; JSON-serialisable.
  """

  id: str
  question: str
  reference: str
  kind: str
  metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GradedTest:
  """One test of a program.

  Attributes:
    passed: whether the program passed it.
    reason: one sentence that a person understands.
    cpu_seconds: what the program took of a processor.
    peak_bytes: the most memory that it was seen to hold.
  """

  passed: bool
  reason: str
  cpu_seconds: float
  peak_bytes: int


@dataclass(frozen=True)
class Grade:
  """The verdict on one answer.

  Attributes:
    correct: whether the answer is right.
    extracted: what the grader took for the final answer, None if it found none.
    reason: one sentence that a person understands.
    tests: of a program, those that were run; the first that fails is the last.
  """

  correct: bool
  extracted: str | None
  reason: str
  tests: tuple[GradedTest, ...] = ()


class GradingError(Exception):
  """The grader itself failed (crash, time limit, unreadable reference): no verdict either way."""
