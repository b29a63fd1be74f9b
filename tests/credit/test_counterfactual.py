"""What fields of plans are worth, measured on workers behind a real server."""

import contextlib

import numpy as np
import pytest

from conductor_jax.credit.counterfactual import Counterfactuals, PlanRun, affected
from conductor_jax.credit.mutations import mutations
from conductor_jax.errors import OutOfBudget
from conductor_jax.rewards import RewardValues
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.budget import Allowance, Budget
from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.offer import Offer
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.format import FAMILIES
from conductor_jax.workflows.grading import PlannedRun, run_and_grade
from conductor_jax.workflows.lists import ListFormat
from conductor_jax.workflows.spec import SpecFormat
from conductor_jax.workflows.workflow import Step, Workflow
from tests.credit.planted import LIST_FIELDS, LISTS, REFERENCE, SPEC, SPEC_FIELDS, World
from tests.workers.endpoint import reply, serve

OFFER = Offer((0, 1, 2))
TASK = Task("t", "How much is it?", REFERENCE, "arithmetic", {})
VALUES = RewardValues()
EVEN = dict.fromkeys(FAMILIES, 1 / 3)
FORMATS = {"spec": SpecFormat(workers=(0, 1, 2)), "lists": ListFormat(access="positions")}
TEXTS = {"spec": SPEC.replace("{capacity}", "medium"), "lists": LISTS.replace("{number}", "1")}


class Measuring:
  """Runs plans of the planted world, and measures their fields.

  Attributes:
    world: the workers.
    executor, graders: run and grade.
  """

  def __init__(self, world: World, client: PoolClient, graders: Graders):
    self.world, self.graders = world, graders
    self.executor = Executor(client, context="messages")

  async def plans(
      self, text: str, kind: str, count: int, values=VALUES) -> list[PlanRun]:
    """Runs of one plan, each with a seed of its own, rewarded by the grade alone."""
    plan = FORMATS[kind].parse(text, OFFER)
    results = await run_and_grade(self.executor, self.graders, [
        PlannedRun(TASK, plan.workflow, seed) for seed in range(count)])
    return [PlanRun(TASK, OFFER, plan, transcript,
                    values.right if grade.correct else values.wrong, seed)
            for seed, (transcript, grade) in enumerate(results)]

  def counterfactuals(self, kind: str, values=VALUES, **options) -> Counterfactuals:
    return Counterfactuals(
        self.executor, self.graders, FORMATS[kind], values,
        **{"each": 1, "repeats": 1, "max_calls": 10**6} | options)


@contextlib.asynccontextmanager
async def measuring(budget=None):
  async with (
      serve(World()) as world,
      PoolClient(world.pool, request_timeout=5, max_attempts=1, budget=budget) as client,
      Graders() as graders):
    yield Measuring(world, client, graders)


@pytest.fixture
async def measure():
  async with measuring() as made:
    yield made


def interval(values: list[float]) -> tuple[float, float]:
  """95 % of the mean, for all of a plan's fields together: Bonferroni over eight."""
  mean, half = np.mean(values), 2.74 * np.std(values, ddof=1) / np.sqrt(len(values))
  return mean - half, mean + half


@pytest.mark.parametrize("kind", ["spec", "lists"])
@pytest.mark.parametrize("capacity", ["medium", "large"])
async def test_useful_fields_have_a_positive_mean_and_that_of_useless_ones_may_be_zero(
    measure, kind, capacity):
  text = SPEC.replace("{capacity}", capacity) if kind == "spec" else LISTS.replace(
      "{number}", {"medium": "1", "large": "2"}[capacity])
  fields = (SPEC_FIELDS if kind == "spec" else LIST_FIELDS)[capacity]
  runs = await measure.plans(text, kind, 200)
  measured = await measure.counterfactuals(kind, each=100).measure(
      runs, EVEN, np.random.default_rng(0))
  deltas = {}
  for found in measured:
    for each in found:
      key = (each.mutation.family, text[slice(*each.mutation.span)], each.mutation.step)
      deltas.setdefault(key, []).append(each.delta)
  for key, useful in fields.items():
    low, high = interval(deltas[key])
    assert len(deltas[key]) == 200
    assert (low > 0.05) if useful else (low <= 0 <= high), (key, low, high)


async def test_a_delta_is_the_reward_less_the_mean_of_the_runs_without_the_field(measure):
  run, = await measure.plans(TEXTS["spec"], "spec", 1)
  (found,), = await measure.counterfactuals("spec", repeats=3).measure(
      [run], {"dependency": 1.0, "duty": 0.0, "capacity": 0.0}, np.random.default_rng(4))
  # None of the solver's calls without the number is right, and the other references are useless.
  assert found.mutation.family == "dependency"
  workflow = found.mutation.workflow
  seeds = [run.seed] + [
      int(np.random.SeedSequence([run.seed, k]).generate_state(1)[0]) for k in (1, 2)]
  results = await run_and_grade(measure.executor, measure.graders, [
      PlannedRun(TASK, workflow, seed, original=run.transcript) for seed in seeds])
  mean = np.mean([1.0 if grade.correct else 0.5 for _, grade in results])
  assert found.delta == pytest.approx(run.reward - mean)


async def test_only_what_a_mutation_changes_is_asked_again(measure):
  run, = await measure.plans(TEXTS["spec"], "spec", 1)
  before = measure.world.hits
  (found,), = await measure.counterfactuals("spec").measure(
      [run], {"dependency": 1.0, "duty": 0.0, "capacity": 0.0}, np.random.default_rng(4))
  made = 3 - found.mutation.step  # the bystander's mutation changes what the solver sees
  assert (found.calls, found.reused) == (made, 3 - made)
  assert measure.world.hits - before == made
  assert found.usage.tokens == 10 * made


async def test_a_plan_is_charged_for_all_its_calls_whoever_made_them(measure):
  values = RewardValues(per_thousand_tokens=10.0)
  run, = await measure.plans(TEXTS["spec"], "spec", 1)
  (found,), = await measure.counterfactuals("spec", values).measure(
      [run], {"dependency": 1.0, "duty": 0.0, "capacity": 0.0}, np.random.default_rng(4))
  # Three calls of ten tokens in either run: 0.3 less, and right or wrong beside.
  assert found.delta in (pytest.approx(run.reward - 0.2), pytest.approx(run.reward - 0.7))


async def test_calls_beyond_the_cap_are_not_made(measure):
  runs = await measure.plans(TEXTS["spec"], "spec", 8)
  before = measure.world.hits
  measured = await measure.counterfactuals("spec", each=2, max_calls=7).measure(
      runs, EVEN, np.random.default_rng(1))
  assert 0 < measure.world.hits - before <= 7
  assert sum(each.calls for found in measured for each in found) == measure.world.hits - before
  assert any(not found for found in measured) and len(measured) == len(runs)


async def test_a_generator_fixes_what_is_measured(measure):
  runs = await measure.plans(TEXTS["lists"], "lists", 6)
  results = [await measure.counterfactuals("lists", each=2).measure(
      runs, EVEN, np.random.default_rng(9)) for _ in range(2)]
  assert results[0] == results[1]


async def test_a_group_without_plans_has_nothing_to_measure(measure):
  assert await measure.counterfactuals("spec").measure([], EVEN, np.random.default_rng(0)) == []


async def test_a_spent_budget_ends_the_measuring():
  async with measuring(Budget(Allowance(calls=3))) as measure:
    runs = await measure.plans(TEXTS["spec"], "spec", 1)
    with pytest.raises(OutOfBudget, match="3 calls"):
      await measure.counterfactuals("spec").measure(runs, EVEN, np.random.default_rng(0))


async def test_a_worker_that_is_down_gives_no_verdict_and_no_fault(measure):
  run, = await measure.plans(TEXTS["spec"], "spec", 1)
  measure.world.behaviour = lambda body: reply({"error": {"message": "no such key"}}, 401)
  (found,), = await measure.counterfactuals("spec").measure(
      [run], {"dependency": 1.0, "duty": 0.0, "capacity": 0.0}, np.random.default_rng(4))
  assert found.delta is None


def test_affected_steps_are_the_changed_one_and_all_that_see_it_in_some_way():
  workflow = Workflow((Step(0, "A"), Step(0, "B"), Step(0, "C", (0,)), Step(0, "D", (2,)),
                       Step(0, "E", (1,))))
  assert [affected(workflow, changed) for changed in range(5)] == [3, 2, 2, 1, 1]


def test_every_mutation_of_the_planted_plans_is_known():
  pool = World().pool
  for kind, fields in (("spec", SPEC_FIELDS), ("lists", LIST_FIELDS)):
    plan = FORMATS[kind].parse(TEXTS[kind], OFFER)
    found = {(each.family, TEXTS[kind][slice(*each.span)], each.step)
             for each in mutations(plan, FORMATS[kind], pool, OFFER)}
    assert found == set(fields["medium"])
