"""Attempts that are known beforehand, and a strategy that makes them."""

import itertools
from dataclasses import replace

from conductor_jax.strategies.strategy import Attempt
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import ParseFailure, Step, Workflow

RIGHT, WRONG, UNREAD = Grade(True, "4", ""), Grade(False, "5", ""), Grade(False, None, "")
_NUMBERS = itertools.count()


def call(worker: int, outcome: str = "answered", **fields) -> CallRecord:
  return CallRecord(f"worker-{worker}", {}, "4", **{
      "usage": Usage(), "latency": 1.0, "attempts": 1, "outcome": outcome, **fields})


def attempt(kind: str, workers: tuple[int, ...], grade: Grade | None, tokens: int = 0,
            cost: float = 0.0, outcome: str = "answered") -> Attempt:
  """An attempt whose plan gives one step to each of `workers`; no workers: it did not parse."""
  task = Task(f"{kind}-{next(_NUMBERS)}", "q", "4", kind)
  if not workers:
    return Attempt(task, ParseFailure("no lists", 0), None, None, "I give up.")
  plan = Workflow(tuple(Step(worker, "Solve it.") for worker in workers))
  usage = Usage(tokens - 1, 1, cost) if tokens else Usage()
  calls = [call(worker, outcome, usage=usage if not index else Usage())
           for index, worker in enumerate(workers)]
  return Attempt(task, plan, Transcript(plan, calls, "4", usage), grade)


def kept(before: Attempt) -> Attempt:
  """A round that leaves the answer of the one before as it is."""
  plan = Workflow(())
  return replace(
      before, plan=plan, transcript=Transcript(plan, (), before.transcript.answer, Usage()),
      earlier=())


def in_rounds(*rounds: Attempt) -> Attempt:
  """An attempt on the task of the first one, in so many rounds."""
  task = rounds[0].task
  *earlier, last = (replace(each, task=task) for each in rounds)
  return replace(last, earlier=tuple(earlier))


class Recorded:
  """A strategy whose attempts are known beforehand.

  Attributes:
    seeds: those that it was given.
  """

  def __init__(self, *attempts: Attempt, name: str = "recorded", variant: str = ""):
    self.name, self.variant = name, variant
    self.attempts = {each.task.id: each for each in attempts}
    self.seeds = []

  @property
  def tasks(self) -> list[Task]:
    return [each.task for each in self.attempts.values()]

  async def answer(self, task: Task, *, seed: int) -> Attempt:
    self.seeds.append(seed)
    return self.attempts[task.id]
