from conductor_jax.gather import gather_all
from conductor_jax.strategies.strategy import Attempt, attempt, task_seed
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workers.client import PoolClient
from conductor_jax.workflows.executor import Executor
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


def test_only_a_plan_that_parsed_can_be_rejected():
  task = TASKS[0]
  assert Attempt(task, PLAN, None, None).rejected
  assert not Attempt(task, ParseFailure("no lists", 0), None, None).rejected
  assert not Attempt(task, PLAN, None, Grade(False, None, "")).rejected
