from collections import Counter

import numpy as np

from conductor_jax.gather import gather_all
from conductor_jax.strategies.random_plan import RandomPlan, random_workflow
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.client import PoolClient
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.lists import parse_lists, render_lists

TASKS = [Task(f"t{i}", f"Question {i}?", "4", "arithmetic") for i in range(8)]


def draws(access: str, count: int = 3000) -> list:
  generator = np.random.default_rng(0)
  return [random_workflow(generator, workers=4, max_steps=3, access=access) for _ in range(count)]


def test_random_plans_are_valid_plans():
  for access in ("binary", "positions"):
    for workflow in draws(access, 100):
      parsed = parse_lists(render_lists(workflow, access), workers=4, max_steps=3, access=access)
      assert parsed.workflow == workflow


def test_steps_and_workers_are_uniform():
  workflows = draws("binary")
  steps = Counter(len(workflow.steps) for workflow in workflows)
  workers = Counter(step.worker for workflow in workflows for step in workflow.steps)
  # Expected 1000 of each length and 1500 steps of each worker; five standard deviations.
  assert set(steps) == {1, 2, 3} and all(abs(n - 1000) < 130 for n in steps.values())
  assert set(workers) == {0, 1, 2, 3} and all(abs(n - 1500) < 180 for n in workers.values())


def test_access_lists_of_a_third_step_are_uniform_over_those_allowed():
  for access, allowed in (("binary", 2), ("positions", 4)):
    third = Counter(w.steps[2].sees for w in draws(access) if len(w.steps) == 3)
    assert len(third) == allowed
    assert all(abs(n - third.total() / allowed) < 90 for n in third.values())


async def answer(workers, tasks: list[Task], seed: int) -> dict:
  async with PoolClient(
      workers.pool.subset(range(3)), request_timeout=5, max_attempts=1) as client:
    async with Graders() as graders:
      strategy = RandomPlan(
          Executor(client, context="messages"), graders, max_steps=3, access="binary")
      attempts = await gather_all(strategy.answer(task, seed=seed) for task in tasks)
  return {a.task.id: (a.plan, a.transcript.answer, a.grade) for a in attempts}


async def test_plans_and_answers_do_not_depend_on_order_or_company(workers):
  together = await answer(workers, TASKS, seed=1)
  assert together == await answer(workers, TASKS[::-1], seed=1)
  alone = {}
  for task in TASKS:
    alone |= await answer(workers, [task], seed=1)
  assert together == alone
  assert len({plan for plan, _, _ in together.values()}) > 1


async def test_as_many_calls_are_made_as_the_plans_have_steps(workers):
  attempts = await answer(workers, TASKS, seed=1)
  assert workers.requests.total() == sum(len(plan.steps) for plan, _, _ in attempts.values())
