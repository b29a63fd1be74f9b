import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal

from conductor_jax.errors import OutOfBudget, UserError
from conductor_jax.evaluation.evaluate import (
    Assignment,
    answer_all,
    answers,
    assignments,
    evaluate,
    repeat_seed,
    unfinished,
)
from conductor_jax.evaluation.item import Item
from conductor_jax.evaluation.statistics import bootstrap
from conductor_jax.strategies.strategy import Attempt
from tests.evaluation.attempts import RIGHT, WRONG, Recorded, attempt


async def results(*attempts: Attempt, workers: int = 4) -> dict:
  strategy = Recorded(*attempts)
  metrics = await evaluate(strategy, strategy.tasks, seed=11, workers=workers, concurrent=2)
  assert strategy.seeds == [11] * len(attempts)
  return metrics


async def test_every_number_of_a_mixed_set():
  metrics = await results(
      attempt("b", (0, 1), RIGHT, tokens=30, cost=0.5),
      attempt("b", (2,), WRONG, tokens=10, cost=0.25),
      attempt("a", (3, 3, 3), None, tokens=1000, cost=9.0),
      attempt("a", (), None),
      attempt("a", (0, 1), RIGHT, tokens=20, cost=0.25))
  low, high = metrics.pop("accuracy_interval")
  assert 0 <= low < 2 / 4 < high <= 1
  assert metrics == {
      "accuracy": 2 / 4,
      "accuracy_by_kind": {"a": 1 / 2, "b": 1 / 2},
      "pass_at_k": {},
      "accuracy_by_round": {},
      "another_plan": {},
      "parse_rate": 4 / 5,
      "correct_given_parsed": pytest.approx(2 / 3),
      "unparsed_answers": 0.0,
      "steps_per_plan": 8 / 4,
      # Steps per worker: 2, 2, 1, 3 of 8.
      "worker_entropy_bits": pytest.approx(0.5 + 0.5 + 3 / 8 + 3 / 8 * 1.4150375),
      "worker_shares": [2 / 8, 2 / 8, 1 / 8, 3 / 8],
      "tokens_per_task": 60 / 4,
      "cost_per_task": 1.0 / 4,
      "tasks": 5,
      "items": 5,
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
  assert metrics["accuracy_interval"] is None
  assert (metrics["tasks"], metrics["rejected"], metrics["parse_rate"]) == (1, 1, 1.0)


async def test_no_tasks_are_an_error():
  with pytest.raises(ValueError, match="no tasks"):
    await results()


def test_strategies_take_turns_on_a_task_and_a_repeat_comes_after_all_tasks():
  one = Recorded(attempt("a", (0,), RIGHT), attempt("a", (0,), RIGHT), name="one")
  two = Recorded(name="two")
  first, second = one.tasks
  assert [(each.strategy.name, each.task.id, each.repeat)
          for each in assignments([one, two], one.tasks, 2)] == [
      (name, task.id, repeat) for repeat in (0, 1) for task in (first, second)
      for name in ("one", "two")]


def test_a_first_answer_has_the_seed_itself_and_every_repeat_another_one():
  seeds = [repeat_seed(5, repeat) for repeat in range(50)]
  assert seeds[0] == 5 and len(set(seeds)) == 50
  # Repeats of one seed are not the answers of another.
  assert not set(seeds) & {repeat_seed(6, repeat) for repeat in range(50)}


class Crowded:
  """Answers after a while, and counts how many it works on."""

  name, variant = "crowded", ""

  def __init__(self, each: Attempt):
    self.each, self.working, self.most = each, 0, 0

  async def answer(self, task, *, seed):
    self.working += 1
    self.most = max(self.most, self.working)
    await asyncio.sleep(0.001)
    self.working -= 1
    return replace(self.each, task=task)


async def test_no_more_than_said_are_answered_at_the_same_time_and_each_is_told_once_it_ended():
  each = attempt("a", (0,), RIGHT)
  strategy, told = Crowded(each), []
  work = [Assignment(strategy, replace(each.task, id=f"t{i}"), 0) for i in range(20)]

  def done(record):
    told.append((record["task"], strategy.working))

  await answer_all(work, seed=0, concurrent=3, done=done)
  assert strategy.most == 3
  assert [task for task, _ in told] == [f"t{i}" for i in range(20)]
  assert max(working for _, working in told) == 2  # the others go on


async def test_what_is_under_way_is_finished_when_it_is_stopped_and_nothing_more_begun():
  each = attempt("a", (0,), RIGHT)
  strategy, told = Crowded(each), []
  work = [Assignment(strategy, replace(each.task, id=f"t{i}"), 0) for i in range(20)]
  await answer_all(work, seed=0, concurrent=3, done=told.append, stop=lambda: len(told) >= 4)
  # The fourth ends beside two others.
  assert len(told) == 6 and strategy.working == 0


async def test_a_spent_budget_begins_nothing_more_and_is_raised_when_the_others_are_done():
  paid, unpaid = attempt("a", (0,), RIGHT), attempt("a", (0,), None, outcome="over_budget")
  strategy = Recorded(paid, unpaid, *(attempt("a", (0,), RIGHT) for _ in range(8)))
  told = []
  with pytest.raises(OutOfBudget):
    await answer_all(assignments([strategy], strategy.tasks, 1), seed=0, concurrent=2,
                     done=told.append)
  assert [record["task"] for record in told] == [paid.task.id]
  assert len(strategy.seeds) == 2


def test_records_come_from_the_event_loop_of_another_thread_as_answers_end():
  strategy = Recorded(*(attempt("a", (0,), RIGHT) for _ in range(30)))
  with start_blocking_portal() as portal:
    came = [record for records in answers(
        assignments([strategy], strategy.tasks, 2), portal, seed=3, concurrent=4,
        stop=lambda: False) for record in records]
  assert len(came) == 60
  assert {record["seed"] for record in came} == {3, repeat_seed(3, 1)}


def test_a_fault_of_a_strategy_comes_through_and_ends_the_others():
  class Broken(Recorded):
    async def answer(self, task, *, seed):
      raise UserError("no such journal")

  strategy = Broken(attempt("a", (0,), RIGHT))
  with start_blocking_portal() as portal, pytest.raises(UserError, match="no such journal"):
    list(answers(assignments([strategy], strategy.tasks, 1), portal, seed=0, concurrent=4,
                 stop=lambda: False))


async def finished(*strategies: Recorded) -> dict:
  records = []
  for strategy in strategies:
    await answer_all(assignments([strategy], strategy.tasks, 1), seed=0, concurrent=1,
                     done=records.append)
  items = [Item.read(record) for record in records]
  return {item.key: item for item in items}


async def test_only_what_has_a_verdict_is_finished():
  right, rejected, new = (attempt("a", (0,), grade) for grade in (RIGHT, None, RIGHT))
  items = await finished(Recorded(right, rejected))
  work = assignments([Recorded(right, rejected, new)], [e.task for e in (right, rejected, new)], 1)
  assert unfinished(work, items) == work[1:]


async def test_answers_of_another_policy_are_not_taken_for_this_ones():
  each = attempt("a", (0,), RIGHT)
  items = await finished(Recorded(each, name="conductor", variant="step 1"))
  work = assignments([Recorded(each, name="conductor", variant="step 2")], [each.task], 1)
  with pytest.raises(UserError, match="^conductor was 'step 1' in .* sessions, and is 'step 2'"):
    unfinished(work, items)


async def test_answers_to_a_question_that_has_changed_are_not_taken_for_this_ones():
  each = attempt("a", (0,), RIGHT)
  items = await finished(Recorded(each))
  changed = replace(each.task, question="another one")
  with pytest.raises(UserError, match=f"^{each.task.id} was another question in earlier sessions"):
    unfinished(assignments([Recorded(each)], [changed], 1), items)


async def test_the_interval_is_that_of_the_bootstrap_over_the_tasks():
  attempts = [attempt("a", (0,), RIGHT if i % 3 else WRONG) for i in range(30)]
  metrics = await results(*attempts)
  (expected,), _ = bootstrap(
      np.array([float(i % 3 > 0) for i in range(30)])[:, None], generator=np.random.default_rng(11))
  assert metrics["accuracy_interval"] == [expected.low, expected.high]
