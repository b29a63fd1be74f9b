"""The team of one model in three sizes, and the wordy plans that are drawn for it."""

from collections import Counter

import numpy as np
import pytest

from conductor_jax.arena.plans import VAGUE, example_team
from conductor_jax.arena.specialists import ALLROUND, answerers, arena_pool, respond, shuffled
from conductor_jax.arena.world import World, understand
from conductor_jax.workers.offer import Offer
from conductor_jax.workers.pool import CAPACITIES
from conductor_jax.workflows.lists import ListFormat
from conductor_jax.workflows.roles import ROLES
from conductor_jax.workflows.workflow import ParsedPlan

WORLD = World(0)
TASKS = WORLD.tasks("train", 600)
NAMED = {"arithmetic": "Do the calculation.", "words": "Spell it as asked.",
         "sorting": "Order or count as asked.", "almanac": "Look it up in the almanac."}


def share(skill: str, capacity: str, subtask: str, seeds=range(4)) -> float:
  """Share of right answers of one worker to one-hop questions of a kind."""
  worker = next(each for each in ALLROUND if each.capacity == capacity)
  tasks = [task for task in TASKS if task.kind == skill]
  right = [task.reference in respond(WORLD, worker, [{
      "role": "user", "content": f"Question:\n{task.question}\n\nSubtask:\n{subtask}"}], seed)
           for task in tasks for seed in seeds]
  return float(np.mean(right))


@pytest.mark.parametrize(("skill", "least"), [
    ("almanac", "small"), ("sorting", "small"), ("words", "medium"), ("arithmetic", "large")])
def test_every_skill_has_a_size_that_is_enough(skill, least):
  shares = [share(skill, capacity, NAMED[skill]) for capacity in CAPACITIES]
  place = CAPACITIES.index(least)
  assert min(shares[place:]) > 0.85
  assert all(each < 0.7 for each in shares[:place])


@pytest.mark.parametrize("skill", NAMED)
def test_a_worker_that_is_not_told_what_to_do_is_right_six_times_in_ten_as_often(skill):
  told, untold = share(skill, "large", NAMED[skill]), share(skill, "large", VAGUE[0])
  assert untold == pytest.approx(0.6 * told, abs=0.07)


def test_the_role_of_a_skill_tells_what_to_do():
  assert share("almanac", "small", ROLES["researcher"]) > 0.9
  assert share("arithmetic", "large", ROLES["calculator"]) > 0.9


def test_there_is_one_worker_of_each_capacity_and_its_price_rises_with_it():
  pool = arena_pool("http://127.0.0.1:1/v1", 3, "allround")
  assert sorted(worker.capacity for worker in pool.workers) == sorted(CAPACITIES)
  assert [worker.name for worker in pool.workers] == [s.name for s in shuffled(3, "allround")]
  prices = {worker.capacity: worker.price_out for worker in pool.workers}
  assert prices["small"] < prices["medium"] < prices["large"]
  assert set(answerers(0, team="allround")) == {worker.name for worker in pool.workers}


class TestPlans:

  @pytest.fixture(scope="class")
  def examples(self):
    generator = np.random.default_rng(0)
    return [(task, example_team(task, range(3), generator)) for task in TASKS * 3]

  def test_they_parse_back_with_positions(self, examples):
    format = ListFormat(4, "positions")
    for _, example in examples:
      plan = format.parse(format.written(example), Offer((0, 1, 2)))
      assert isinstance(plan, ParsedPlan) and plan.workflow == example.workflow

  def test_a_third_has_a_checker_and_a_third_of_the_duties_is_vague(self, examples):
    checked = np.mean([example.roles[-1] == "checker" for _, example in examples])
    assert checked == pytest.approx(1 / 3, abs=0.05)
    duties = [step.subtask for task, example in examples for step, role in zip(
        example.workflow.steps, example.roles, strict=True) if role != "checker"]
    assert np.mean([duty in VAGUE for duty in duties]) == pytest.approx(1 / 3, abs=0.05)

  def test_sizes_are_drawn_evenly_whatever_is_asked(self, examples):
    counts = Counter((understand(task.question).skills[0], example.workflow.steps[0].worker)
                     for task, example in examples)
    for skill in NAMED:
      own = [counts[skill, worker] for worker in range(3)]
      assert max(own) < 1.5 * min(own)

  def test_every_step_has_a_known_role(self, examples):
    for _, example in examples:
      assert len(example.roles) == len(example.workflow.steps) and set(example.roles) <= set(ROLES)
