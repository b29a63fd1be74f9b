"""One answered question of an evaluation: what is written down of it, and what numbers are made of.

The reference answer is not in a record, which may be long tests of a program, nor are the workers'
answers to earlier steps: the task's id leads to the one, the journal holds the other.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from conductor_jax.strategies.strategy import Attempt
from conductor_jax.tasks.task import Task
from conductor_jax.workflows.transcript import longest_way
from conductor_jax.workflows.workflow import ParseFailure, Step, Workflow


class Key(NamedTuple):
  """Which item it is."""

  strategy: str
  benchmark: str
  task: str
  repeat: int


@dataclass(frozen=True)
class Item:
  """What statistics read of a record.

  Attributes:
    key: which item it is.
    variant: of the strategy.
    question: the question's hash.
    plans: that of each round, None where it did not parse. One without steps leaves the answer of
      the round before as it is.
    rights: the verdict after each round, None where there is none.
    right: the verdict, None for a rejected item, which has none.
    fault: why there is no verdict, None where there is one.
    extracted: whether a final answer was found to be judged; None where nothing was judged.
    tokens: that the workers read and wrote.
    cost: dollars that they were paid.
    latency: seconds that the workers took, None where none was asked: along the longest way through
      the plan, without waiting for a turn, which other items may cause.
  """

  key: Key
  variant: str
  question: str
  plans: tuple[Workflow | None, ...]
  rights: tuple[bool | None, ...]
  right: bool | None
  fault: str | None
  extracted: bool | None
  tokens: int
  cost: float
  latency: float | None

  @classmethod
  def read(cls, record: Mapping[str, Any]) -> "Item":
    """Of what `record` made.

    Raises:
      KeyError, TypeError, ValueError: it is no such record.
    """
    grade, rounds = record["grade"], [*record["earlier"], record]
    plans = tuple(_workflow(each["plan"]) for each in rounds)
    calls = [call for each in rounds for call in each["calls"]]
    ways = [longest_way(plan, [call["latency"] for call in each["calls"]])
            for plan, each in zip(plans, rounds, strict=True) if plan is not None]
    return cls(
        key=Key(record["strategy"], record["benchmark"], record["task"], record["repeat"]),
        variant=record["variant"], question=record["question"], plans=plans,
        rights=tuple(_verdict(each) for each in rounds),
        right=_verdict(record),
        fault=_fault(calls) if record["rejected"] else None,
        extracted=None if grade is None else grade["extracted"] is not None,
        tokens=sum(call["prompt_tokens"] + call["completion_tokens"] for call in calls),
        cost=sum(call["cost"] for call in calls),
        latency=sum(ways) if ways else None)

  @property
  def workflows(self) -> list[Workflow]:
    """The plans that were run."""
    return [plan for plan in self.plans if plan is not None and plan.steps]


def _workflow(steps: Sequence[Mapping[str, Any]] | None) -> Workflow | None:
  return None if steps is None else Workflow(tuple(
      Step(step["worker"], step["subtask"], tuple(step["sees"]), step["sees_previous"])
      for step in steps))


def _verdict(record: Mapping[str, Any]) -> bool | None:
  if record["rejected"]:
    return None
  return bool(record["grade"] and record["grade"]["correct"])


def record(
    attempt: Attempt, *, strategy: str, variant: str, repeat: int, seed: int, seconds: float
) -> dict[str, Any]:
  """An attempt as JSON types; no key of an endpoint is in it.

  Args:
    attempt: what came of the task.
    strategy, variant: who answered.
    repeat: which answer to the task, from 0.
    seed: that the strategy was given.
    seconds: from the beginning to the verdict, with all waiting.
  """
  return {
      "strategy": strategy,
      "variant": variant,
      "benchmark": attempt.task.kind,
      "task": attempt.task.id,
      "question": question_hash(attempt.task),
      "repeat": repeat,
      "seed": seed,
      "offered": None if attempt.offered is None else list(attempt.offered),
      **_round(attempt),
      "earlier": [_round(each) for each in attempt.earlier],
      "seconds": seconds,
  }


def _round(attempt: Attempt) -> dict[str, Any]:
  plan, transcript, grade = attempt.plan, attempt.transcript, attempt.grade
  return {
      "rejected": attempt.rejected,
      "grade": None if grade is None else {
          "correct": grade.correct, "extracted": grade.extracted, "reason": grade.reason,
          "tests": [asdict(test) for test in grade.tests]},
      "answer": transcript.answer if transcript else None,
      "plan": [asdict(step) for step in plan.steps] if isinstance(plan, Workflow) else None,
      "parse_failure": asdict(plan) if isinstance(plan, ParseFailure) else None,
      "completion": attempt.completion,
      "calls": [
          {"worker": call.worker, "outcome": call.outcome, "attempts": call.attempts,
           "latency": call.latency, "source": call.source, "fallback": call.fallback,
           "possibly_billed": call.possibly_billed, "error": call.error, **asdict(call.usage)}
          for call in (transcript.calls if transcript else ())],
  }


def _fault(calls: Sequence[Mapping[str, Any]]) -> str:
  for call in calls:
    if call["outcome"] == "unavailable":
      return f"{call['worker']}: {call['error']}"
  return "its grader failed"


def question_hash(task: Task) -> str:
  """64 bits of the question's text, in hexadecimal digits."""
  return hashlib.sha256(task.question.encode("utf-8", "surrogatepass")).hexdigest()[:16]
