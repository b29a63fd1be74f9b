"""The whole road from a plan to its grade, with the arena's own server process and workers."""

import pytest

from conductor_jax.arena.plans import SUBTASKS
from conductor_jax.arena.server_process import ServerProcess
from conductor_jax.arena.specialists import NOISE, SPECIALISTS, arena_pool
from conductor_jax.arena.world import SKILLS, World, understand
from conductor_jax.gather import gather_all
from conductor_jax.strategies.single_worker import SingleWorker
from conductor_jax.strategies.strategy import Attempt, attempt
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.pool import Pool
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.workflow import Step, Workflow

SEED = 0
_ALL = World(SEED).tasks("test", 60)
TWO_HOP = [task for task in _ALL if task.kind == "two-hop"][:8]
# Three of each kind that needs one worker, and eight that need two.
TASKS = TWO_HOP + [
    task for skill in SKILLS for task in [t for t in _ALL if t.kind == skill][:3]]


@pytest.fixture(scope="module")
def pool():
  with ServerProcess("conductor_jax.arena.specialists:answerers", {"seed": SEED}) as server:
    yield arena_pool(server.base_url, SEED)


@pytest.fixture(params=["messages", "inlined"])
async def executor(pool, request):
  async with PoolClient(pool, request_timeout=20, max_attempts=2) as client:
    yield Executor(client, context=request.param)


@pytest.fixture
async def graders():
  async with Graders() as graders:
    yield graders


def specialists(pool: Pool) -> dict[str, int]:
  """The id of the worker that is best at each skill; of the almanac it holds the current one."""
  ids = {spec.name: worker for worker, spec in enumerate(pool.workers)}
  best = {}
  for skill in SKILLS:
    able = [s for s in SPECIALISTS if skill != "almanac" or s.almanac == "current"]
    best[skill] = ids[max(able, key=lambda s: s.skills[skill]).name]
  return best


def ideal_plan(task: Task, pool: Pool, *, opened: bool) -> Workflow:
  """One step per skill that the question needs, each by the specialist for it."""
  best = specialists(pool)
  return Workflow(tuple(
      Step(best[skill], SUBTASKS[skill][0], tuple(range(index)) if opened else ())
      for index, skill in enumerate(understand(task.question).skills)))


async def attempts(executor, graders, tasks, *, opened: bool) -> list[Attempt]:
  return await gather_all(
      attempt(executor, graders, task, ideal_plan(task, executor.pool, opened=opened), seed=SEED)
      for task in tasks)


def test_the_tasks_are_of_all_kinds():
  assert {task.kind for task in TASKS} == {*SKILLS, "two-hop"}
  assert len(TASKS) == 20
  assert {understand(task.question).skills[1] for task in TWO_HOP} == {
      "arithmetic", "words", "sorting"}


async def test_the_right_specialists_with_open_access_are_right_on_17_of_20(executor, graders):
  ideal = await attempts(executor, graders, TASKS, opened=True)
  assert not any(attempt.rejected for attempt in ideal)
  assert sum(attempt.right for attempt in ideal) >= 17


async def test_two_hop_plans_with_closed_access_are_never_right(executor, graders):
  closed = await attempts(executor, graders, TWO_HOP, opened=False)
  outcomes = [call.outcome for attempt in closed for call in attempt.transcript.calls]
  assert outcomes == ["answered"] * 2 * len(TWO_HOP)
  assert [attempt.grade.correct for attempt in closed] == [False] * len(TWO_HOP)


async def test_no_worker_alone_is_ever_right_on_a_two_hop_task(executor, graders):
  for worker in range(len(executor.pool)):
    strategy = SingleWorker(worker, executor, graders)
    alone = await gather_all(strategy.answer(task, seed=SEED) for task in TWO_HOP)
    assert [attempt.grade.correct for attempt in alone] == [False] * len(TWO_HOP)


async def test_a_lookup_that_is_lost_in_noise_costs_a_two_hop_plan_its_answer(graders):
  options = {"seed": SEED, "noise": [["archivist-medium", 1.0]]}
  with ServerProcess("conductor_jax.arena.specialists:answerers", options) as server:
    noisy = arena_pool(server.base_url, SEED)
    async with PoolClient(noisy, request_timeout=20, max_attempts=2) as client:
      lost = await attempts(Executor(client, context="messages"), graders, TWO_HOP, opened=True)
  assert {attempt.transcript.calls[0].response for attempt in lost} == {NOISE}
  assert [attempt.grade.correct for attempt in lost] == [False] * len(TWO_HOP)
