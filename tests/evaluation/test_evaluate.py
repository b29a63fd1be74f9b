import json

import pytest

from conductor_jax.evaluation.evaluate import evaluate
from conductor_jax.strategies.strategy import Attempt
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workers.call import Usage
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import ParseFailure, Step, Workflow

RIGHT, WRONG = Grade(True, "4", ""), Grade(False, "5", "")


def attempt(kind: str, workers: tuple[int, ...], grade: Grade | None, tokens: int = 0,
            cost: float = 0.0) -> Attempt:
  """An attempt whose plan gives one step to each of `workers`; no workers: it did not parse."""
  task = Task(f"{kind}-{workers}", "q", "4", kind)
  if not workers:
    return Attempt(task, ParseFailure("no lists", 0), None, None)
  plan = Workflow(tuple(Step(worker, "Solve it.") for worker in workers))
  return Attempt(task, plan, Transcript(plan, (), None, Usage(tokens - 1, 1, cost)), grade)


class Recorded:
  """A strategy whose attempts are known beforehand."""

  name = "recorded"

  def __init__(self, attempts: list[Attempt]):
    self.attempts = attempts
    self.seeds = []

  async def answer(self, tasks, *, seed):
    self.seeds.append(seed)
    return self.attempts


async def results(*attempts: Attempt, workers: int = 4) -> dict:
  strategy = Recorded(list(attempts))
  metrics = await evaluate(strategy, [a.task for a in attempts], seed=11, workers=workers)
  assert strategy.seeds == [11]
  return metrics


async def test_every_number_of_a_mixed_set():
  metrics = await results(
      attempt("b", (0, 1), RIGHT, tokens=30, cost=0.5),
      attempt("b", (2,), WRONG, tokens=10, cost=0.25),
      attempt("a", (3, 3, 3), None, tokens=1000, cost=9.0),
      attempt("a", (), None),
      attempt("a", (0, 1), RIGHT, tokens=20, cost=0.25))
  assert metrics == {
      "accuracy": 2 / 4,
      "accuracy_by_kind": {"a": 1 / 2, "b": 1 / 2},
      "parse_rate": 4 / 5,
      "correct_given_parsed": pytest.approx(2 / 3),
      "steps_per_plan": 8 / 4,
      # Steps per worker: 2, 2, 1, 3 of 8.
      "worker_entropy_bits": pytest.approx(0.5 + 0.5 + 3 / 8 + 3 / 8 * 1.4150375),
      "worker_shares": [2 / 8, 2 / 8, 1 / 8, 3 / 8],
      "tokens_per_task": 60 / 4,
      "cost_per_task": 1.0 / 4,
      "tasks": 5,
      "rejected": 1,
  }
  assert json.loads(json.dumps(metrics)) == metrics


async def test_kinds_stand_in_alphabetical_order():
  metrics = await results(attempt("z", (0,), RIGHT), attempt("m", (0,), RIGHT))
  assert list(metrics["accuracy_by_kind"]) == ["m", "z"]


async def test_a_strategy_that_writes_no_plan_has_accuracy_zero_and_no_plan_numbers():
  metrics = await results(attempt("a", (), None), attempt("a", (), None))
  assert (metrics["accuracy"], metrics["parse_rate"]) == (0.0, 0.0)
  assert (metrics["tokens_per_task"], metrics["cost_per_task"]) == (0.0, 0.0)
  for name in ("correct_given_parsed", "steps_per_plan", "worker_entropy_bits", "worker_shares"):
    assert metrics[name] is None


async def test_an_outage_gives_no_accuracy_rather_than_zero():
  metrics = await results(attempt("a", (0,), None))
  assert metrics["accuracy"] is None and metrics["accuracy_by_kind"] == {"a": None}
  assert (metrics["tasks"], metrics["rejected"], metrics["parse_rate"]) == (1, 1, 1.0)


async def test_no_tasks_are_an_error():
  with pytest.raises(ValueError, match="no tasks"):
    await results()
