from conductor_jax.gather import gather_all
from conductor_jax.strategies.random_plan import RandomPlan
from conductor_jax.strategies.single_worker import BestSingleWorker, SingleWorker
from conductor_jax.strategies.strategy import Attempt, attempt, task_offer, task_seed
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workers.client import PoolClient
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.lists import ListFormat
from conductor_jax.workflows.workflow import ParseFailure, Step, Workflow

PLAN = Workflow((Step(2, "Answer the question."),))
TASKS = [Task(f"t{i}", f"Question {i}?", "4", "arithmetic") for i in range(6)]


async def answers(workers, tasks: list[Task], seed: int) -> dict[str, str]:
  async with PoolClient(workers.pool, request_timeout=5, max_attempts=1) as client:
    async with Graders() as graders:
      executor = Executor(client, context="messages")
      attempts = await gather_all(
          attempt(executor, graders, task, PLAN, seed=seed) for task in tasks)
  return {each.task.id: each.transcript.answer for each in attempts}


def test_task_seed_has_32_bits_and_depends_on_seed_id_and_kind_only():
  task = Task("a", "q", "r", "k")
  assert task_seed(3, task) == task_seed(3, Task("a", "other", "other", "k", {"x": 1}))
  assert len({task_seed(3, task), task_seed(4, task), task_seed(3, Task("b", "q", "r", "k")),
              task_seed(3, Task("a", "q", "r", "l"))}) == 4
  assert max(task_seed(seed, task) for seed in range(99)).bit_length() == 32


async def test_answers_do_not_depend_on_order_or_company(workers):
  together = await answers(workers, TASKS, seed=5)
  backwards = await answers(workers, TASKS[::-1], seed=5)
  alone = {}
  for task in TASKS:
    alone |= await answers(workers, [task], seed=5)
  assert together == backwards == alone
  assert len(set(together.values())) == 6


async def test_another_seed_gives_other_answers(workers):
  assert await answers(workers, TASKS[:1], seed=5) != await answers(workers, TASKS[:1], seed=6)


def test_offers_depend_on_the_law_the_seed_and_the_task_alone(workers):
  law = workers.offers("uniform:2-4")
  offers = [task_offer(law, task, 5) for task in TASKS]
  assert [task_offer(law, task, 5) for task in reversed(TASKS)] == offers[::-1]
  assert [task_offer(workers.offers("uniform:2-4"), task, 5) for task in TASKS] == offers
  assert len(set(offers)) > 3
  assert [task_offer(law, task, 6) for task in TASKS] != offers
  assert task_offer(workers.offers("all"), TASKS[0], 5).workers == (0, 1, 2, 3, 4)


async def test_all_strategies_are_offered_the_same_workers_for_a_task_and_a_seed(workers):
  async with PoolClient(workers.pool, request_timeout=5, max_attempts=1) as client:
    async with Graders() as graders:
      executor, law = Executor(client, context="messages"), "fixed:3"
      random = RandomPlan(executor, graders, format=ListFormat(), offers=workers.offers(law))
      best = BestSingleWorker(range(5), executor, graders, workers.offers(law))
      for task in TASKS:
        offered = task_offer(workers.offers(law), task, 5).workers
        for strategy in (random, best):
          assert (await strategy.answer(task, seed=5)).offered == offered


async def test_a_worker_alone_is_not_bound_to_an_offer(workers):
  async with PoolClient(workers.pool, request_timeout=5, max_attempts=1) as client:
    async with Graders() as graders:
      alone = SingleWorker(0, Executor(client, context="messages"), graders)
      assert (await alone.answer(TASKS[0], seed=5)).offered is None


def test_only_a_plan_that_parsed_can_be_rejected():
  task = TASKS[0]
  assert Attempt(task, PLAN, None, None).rejected
  assert not Attempt(task, ParseFailure("no lists", 0), None, None).rejected
  assert not Attempt(task, PLAN, None, Grade(False, None, "")).rejected
