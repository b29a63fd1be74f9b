import pytest

from conductor_jax.errors import OutOfBudget, UserError
from conductor_jax.gather import gather_all
from conductor_jax.strategies.single_worker import (
    BestSingleWorker,
    SingleWorker,
    best_single_worker,
)
from conductor_jax.strategies.strategy import Attempt
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.budget import Allowance, Budget
from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.offer import OfferLaw
from conductor_jax.workflows.executor import Executor


def tasks(*references: str) -> list[Task]:
  return [Task(f"t{i}", f"Question {i}?", reference, "arithmetic")
          for i, reference in enumerate(references)]


async def answer(worker: int, executor: Executor, graders: Graders, *references) -> list[Attempt]:
  strategy = SingleWorker(worker, executor, graders)
  return await gather_all(strategy.answer(task, seed=0) for task in tasks(*references))


@pytest.fixture
async def graders():
  async with Graders() as graders:
    yield graders


@pytest.fixture
async def executor(workers):
  async with PoolClient(workers.pool, request_timeout=5, max_attempts=1) as client:
    yield Executor(client, context="messages")


async def test_a_worker_alone_goes_by_its_own_name(executor, graders):
  alone = SingleWorker(1, executor, graders)
  assert (alone.name, alone.variant) == ("five", "")


async def test_every_task_goes_to_the_one_worker_in_one_step(workers, executor, graders):
  attempts = await answer(0, executor, graders, "4", "5", "4")
  assert [attempt.grade.correct for attempt in attempts] == [True, False, True]
  assert workers.requests == {"four": 3}
  contents = {body["messages"][-1]["content"] for body in workers.bodies}
  assert contents == {
      f"Question:\nQuestion {i}?\n\nSubtask:\nAnswer the question." for i in range(3)}


async def test_a_worker_that_cannot_be_reached_gives_rejected_attempts(executor, graders):
  attempts = await answer(3, executor, graders, "4", "4")
  assert [attempt.rejected for attempt in attempts] == [True, True]


async def best_of(workers, executor, graders, *references, law="all", groups=()):
  return await best_single_worker(
      executor, graders, tasks(*references), offers=workers.offers(law, groups), seed=0)


async def test_the_best_worker_is_the_one_right_most_often(workers, executor, graders):
  best = await best_of(workers, executor, graders, "4", "4", "5")
  assert (best.name, best.variant, best.ranking) == ("best_single_worker", "four", (0,))
  best = await best_of(workers, executor, graders, "4", "5", "5")
  assert best.ranking == (1,)


async def test_among_equally_good_workers_the_cheaper_is_best(workers, executor, graders):
  best = await best_of(workers, executor, graders, "4", "5")
  assert best.ranking == (1,)


async def test_a_worker_that_is_down_for_most_tasks_does_not_win_on_the_rest(
    workers, executor, graders):
  flaky = await answer(4, executor, graders, "4", "4", "5")
  assert [attempt.right for attempt in flaky] == [True, False, False]
  assert [attempt.rejected for attempt in flaky] == [False, True, True]
  best = await best_of(workers, executor, graders, "4", "4", "5")
  assert best.ranking == (0,)


async def test_where_any_worker_may_be_missing_all_are_ranked(workers, executor, graders):
  best = await best_of(workers, executor, graders, "4", "4", "5", law="fixed:2")
  # Two, one and one right, then none; the last one has no verdict.
  assert best.ranking == (0, 1, 4, 2, 3)
  assert best.variant == "four > five > flaky > seed > dead"


async def test_each_task_goes_to_the_best_of_the_workers_that_it_is_offered(
    workers, executor, graders):
  strategy = BestSingleWorker((0, 1, 4, 2, 3), executor, graders, workers.offers("fixed:2"))
  attempts = await gather_all(strategy.answer(task, seed=0) for task in tasks(*["4"] * 12))
  assert len({attempt.offered for attempt in attempts}) > 4
  for attempt in attempts:
    step, = attempt.plan.steps
    assert step.worker == next(each for each in (0, 1, 4, 2, 3) if each in attempt.offered)
  assert len({attempt.plan for attempt in attempts}) > 1


async def test_workers_that_are_never_on_offer_are_not_asked_and_the_ranking_ends_with_one_who_is(
    workers, executor, graders):
  best = await best_of(
      workers, executor, graders, "4", "5", "5", law="groups:some,others",
      groups={"some": ("seed", "five"), "others": ("flaky", "five")})
  assert best.ranking == (1,)
  assert set(workers.requests) == {"five", "seed", "flaky"}
  # With the best one in one of the groups only, there is a second one for the other.
  best = await best_of(
      workers, executor, graders, "4", "4", "5", law="groups:some,others",
      groups={"some": ("seed", "four"), "others": ("seed", "five")})
  assert best.ranking == (0, 1, 2)


async def test_a_budget_that_is_spent_ends_the_comparison_of_workers(workers, graders):
  async with PoolClient(
      workers.pool, request_timeout=5, max_attempts=1, budget=Budget(Allowance(calls=4))) as client:
    with pytest.raises(OutOfBudget, match="the budget of the run, 4 calls, has no room"):
      await best_of(workers, Executor(client, context="messages"), graders, "4", "4", "4")
  assert sum(workers.requests.values()) == 4


async def test_no_worker_is_best_where_none_can_be_reached(workers, graders):
  async with PoolClient(workers.pool.subset([3]), request_timeout=5, max_attempts=1) as client:
    with pytest.raises(UserError, match="none of 1 workers .* of 2 tasks; dead: .*127.0.0.1"):
      await best_single_worker(
          Executor(client, context="messages"), graders, tasks("4", "4"),
          offers=OfferLaw("all", ("dead",), {}), seed=0)
