"""Chances of the mutation families, and what is drawn by them."""

import json
from collections import Counter

import numpy as np
import pytest

from conductor_jax.credit.families import Families, draw_mutations
from conductor_jax.credit.mutations import Mutation
from conductor_jax.workflows.format import FAMILIES
from conductor_jax.workflows.workflow import Step, Workflow

PLAN = Workflow((Step(0, "Solve it."),))


def mutation(family: str, number: int = 0) -> Mutation:
  return Mutation(family, number, (number, number + 1), PLAN)


def test_before_anything_is_known_all_families_are_alike():
  assert Families(floor=0.1, decay=0.9).chances == pytest.approx(dict.fromkeys(FAMILIES, 1 / 3))


def test_chances_follow_the_mean_size_of_what_mutations_changed():
  families = Families(floor=0.1, decay=0.5)
  families.observe([("dependency", 1.0), ("dependency", -0.5), ("duty", 0.0)])
  # Sizes 0.875, 0.5 and, never seen, 1; 0.7 of the chances is divided by them.
  total = 0.875 + 0.5 + 1.0
  assert families.chances == pytest.approx({
      "dependency": 0.1 + 0.7 * 0.875 / total, "duty": 0.1 + 0.7 * 0.5 / total,
      "capacity": 0.1 + 0.7 * 1.0 / total})


def test_no_chance_falls_below_the_floor_and_they_add_up_to_one():
  families = Families(floor=0.2, decay=0.0)
  families.observe([("dependency", 1.0), ("duty", 0.0), ("capacity", 0.0)])
  assert families.chances == pytest.approx({"dependency": 0.6, "duty": 0.2, "capacity": 0.2})
  families.observe([("dependency", 0.0)])
  assert families.chances == pytest.approx(dict.fromkeys(FAMILIES, 1 / 3))


def test_a_record_in_json_brings_back_the_same_chances_to_the_last_bit():
  generator = np.random.default_rng(0)
  families, other = (Families(floor=0.05, decay=0.9) for _ in range(2))
  for _ in range(20):
    families.observe([(FAMILIES[int(generator.integers(3))], float(generator.normal()))
                      for _ in range(5)])
  other.restore(json.loads(json.dumps(families.record())))
  assert other.chances == families.chances


def test_what_is_learnt_does_not_depend_on_the_order_of_the_mutations():
  deltas = [("duty", float(x)) for x in np.random.default_rng(1).normal(size=50)]
  families, other = (Families(floor=0.1, decay=0.9) for _ in range(2))
  families.observe(deltas)
  other.observe(deltas[::-1])
  assert families.chances == other.chances


class TestDrawing:
  FOUND = [mutation("dependency", 0), mutation("dependency", 1), mutation("duty", 2)]

  def test_families_are_drawn_by_their_chances_and_then_mutations_evenly(self):
    chances = {"dependency": 0.2, "duty": 0.6, "capacity": 0.2}
    generator = np.random.default_rng(0)
    counts = Counter(
        draw_mutations(self.FOUND, chances, 1, generator)[0].step for _ in range(8000))
    # Nobody has a capacity to take back: the other two share its chance, 1/4 and 3/4.
    shares = [counts[step] / 8000 for step in range(3)]
    assert shares == pytest.approx([0.125, 0.125, 0.75], abs=0.02)

  @pytest.mark.parametrize(("count", "expected"), [(0, 0), (2, 2), (3, 3), (9, 3)])
  def test_each_mutation_is_drawn_once_at_most(self, count, expected):
    chances = dict.fromkeys(FAMILIES, 1 / 3)
    drawn = draw_mutations(self.FOUND, chances, count, np.random.default_rng(2))
    assert len({each.step for each in drawn}) == len(drawn) == expected

  def test_a_generator_fixes_the_choice(self):
    chances = dict.fromkeys(FAMILIES, 1 / 3)
    draws = [draw_mutations(self.FOUND, chances, 2, np.random.default_rng(7)) for _ in range(2)]
    assert draws[0] == draws[1]

  def test_a_plan_without_mutations_has_none_drawn(self):
    assert draw_mutations([], dict.fromkeys(FAMILIES, 1 / 3), 2, np.random.default_rng(0)) == []
