import pytest

from conductor_jax.errors import OutOfBudget, UserError
from conductor_jax.gather import gather_all
from conductor_jax.strategies.single_worker import SingleWorker, best_single_worker
from conductor_jax.strategies.strategy import Attempt
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.budget import Allowance, Budget
from conductor_jax.workers.client import PoolClient
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


async def test_the_best_worker_is_the_one_right_most_often(executor, graders):
  best = await best_single_worker(executor, graders, tasks("4", "4", "5"), seed=0)
  assert (best.name, best.variant, best.worker) == ("best_single_worker", "four", 0)
  best = await best_single_worker(executor, graders, tasks("4", "5", "5"), seed=0)
  assert best.worker == 1


async def test_among_equally_good_workers_the_cheaper_is_best(executor, graders):
  best = await best_single_worker(executor, graders, tasks("4", "5"), seed=0)
  assert best.worker == 1


async def test_a_worker_that_is_down_for_most_tasks_does_not_win_on_the_rest(executor, graders):
  flaky = await answer(4, executor, graders, "4", "4", "5")
  assert [attempt.right for attempt in flaky] == [True, False, False]
  assert [attempt.rejected for attempt in flaky] == [False, True, True]
  best = await best_single_worker(executor, graders, tasks("4", "4", "5"), seed=0)
  assert best.worker == 0


async def test_a_budget_that_is_spent_ends_the_comparison_of_workers(workers, graders):
  async with PoolClient(
      workers.pool, request_timeout=5, max_attempts=1, budget=Budget(Allowance(calls=4))) as client:
    with pytest.raises(OutOfBudget, match="the budget of the run, 4 calls, has no room"):
      await best_single_worker(
          Executor(client, context="messages"), graders, tasks("4", "4", "4"), seed=0)
  assert sum(workers.requests.values()) == 4


async def test_no_worker_is_best_where_none_can_be_reached(workers, graders):
  async with PoolClient(workers.pool.subset([3]), request_timeout=5, max_attempts=1) as client:
    with pytest.raises(UserError, match="none of 1 workers .* of 2 tasks; dead: .*127.0.0.1"):
      await best_single_worker(
          Executor(client, context="messages"), graders, tasks("4", "4"), seed=0)
