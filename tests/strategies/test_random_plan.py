from collections import Counter

import numpy as np
import pytest

from conductor_jax.gather import gather_all
from conductor_jax.strategies.random_plan import RandomPlan, random_workflow
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.offer import OfferLaw
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.lists import ListFormat, parse_lists, render_lists
from conductor_jax.workflows.workflow import PLAIN_SUBTASK

TASKS = [Task(f"t{i}", f"Question {i}?", "4", "arithmetic") for i in range(8)]


def draws(access: str, count: int = 3000, workers=range(4)) -> list:
  generator, format = np.random.default_rng(0), ListFormat(3, access)
  return [random_workflow(generator, workers=workers, format=format) for _ in range(count)]


@pytest.mark.parametrize("subtasks", [True, False])
@pytest.mark.parametrize("access", ["binary", "positions", "none"])
def test_random_plans_are_valid_plans_of_every_format(access, subtasks):
  format = ListFormat(3, access, subtasks)
  for workflow in draws(access, 100):
    parsed = parse_lists(render_lists(workflow, format), format, workers=range(4))
    assert parsed.workflow == workflow
    assert {step.subtask for step in workflow.steps} == {PLAIN_SUBTASK}


def test_only_the_workers_that_are_given_are_drawn_and_uniformly():
  counts = Counter(step.worker for workflow in draws("none", workers=(1, 4, 6))
                   for step in workflow.steps)
  # Expected 2000 of each; five standard deviations.
  assert set(counts) == {1, 4, 6} and all(abs(n - 2000) < 185 for n in counts.values())


def test_steps_and_workers_are_uniform():
  workflows = draws("binary")
  steps = Counter(len(workflow.steps) for workflow in workflows)
  workers = Counter(step.worker for workflow in workflows for step in workflow.steps)
  # Expected 1000 of each length and 1500 steps of each worker; five standard deviations.
  assert set(steps) == {1, 2, 3} and all(abs(n - 1000) < 130 for n in steps.values())
  assert set(workers) == {0, 1, 2, 3} and all(abs(n - 1500) < 180 for n in workers.values())


def test_access_lists_of_a_third_step_are_uniform_over_those_allowed():
  for access, allowed in (("binary", 2), ("positions", 4), ("none", 1)):
    third = Counter(w.steps[2].sees for w in draws(access) if len(w.steps) == 3)
    assert len(third) == allowed
    assert all(abs(n - third.total() / allowed) < 90 for n in third.values())


async def answer(workers, tasks: list[Task], seed: int, law: str = "all") -> dict:
  async with PoolClient(
      workers.pool.subset(range(3)), request_timeout=5, max_attempts=1) as client:
    async with Graders() as graders:
      strategy = RandomPlan(
          Executor(client, context="messages"), graders, format=ListFormat(3),
          offers=OfferLaw(law, workers.names[:3], {}))
      attempts = await gather_all(strategy.answer(task, seed=seed) for task in tasks)
  return {a.task.id: (a.plan, a.transcript.answer, a.grade, a.offered) for a in attempts}


async def test_plans_and_answers_do_not_depend_on_order_or_company(workers):
  together = await answer(workers, TASKS, seed=1)
  assert together == await answer(workers, TASKS[::-1], seed=1)
  alone = {}
  for task in TASKS:
    alone |= await answer(workers, [task], seed=1)
  assert together == alone
  assert len({plan for plan, *_ in together.values()}) > 1


async def test_as_many_calls_are_made_as_the_plans_have_steps(workers):
  attempts = await answer(workers, TASKS, seed=1)
  assert workers.requests.total() == sum(len(plan.steps) for plan, *_ in attempts.values())


async def test_plans_use_the_workers_on_offer_and_no_others(workers):
  attempts = (await answer(workers, TASKS, seed=1, law="fixed:2")).values()
  assert {offered for *_, offered in attempts} == {(0, 1), (0, 2), (1, 2)}
  for plan, *_, offered in attempts:
    assert {step.worker for step in plan.steps} <= set(offered)
