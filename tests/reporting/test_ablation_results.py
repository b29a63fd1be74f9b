import math

import pytest

from conductor_jax.evaluation.item import Item, Key
from conductor_jax.reporting.ablation_results import measured
from conductor_jax.workflows.workflow import Step, Workflow
from tests.reporting.ablations import numbers, results, three_seeds

T2 = 4.302653  # the 97.5 % quantile of Student's t with 2 degrees of freedom


def item(kind, task, *rights, workers=(0,), parsed=True, tokens=100, cost=0.001, fault=None):
  """An answered task: a plan of one step for each worker, and a verdict for each round."""
  plan = Workflow(tuple(Step(worker, "Solve it.") for worker in workers)) if parsed else None
  rights = (None,) if fault else rights
  return Item(
      key=Key("conductor", kind, task, 0), variant="", question=task,
      plans=(plan,) * len(rights), rights=rights, right=rights[-1], fault=fault, extracted=True,
      tokens=tokens, cost=cost, latency=1.0)


def row(found, arm, measurement="full"):
  row, = (row for row in found["rows"] if (row["arm"], row["measurement"]) == (arm, measurement))
  return row


def test_accuracy_is_over_all_questions_and_that_of_a_kind_over_its_own():
  found = measured(
      [item("words", "a", True), item("words", "b", True), item("words", "c", False, parsed=False),
       item("two-hop", "d", False, workers=(0, 1), tokens=300, cost=0.005)],
      kinds=("two-hop", "words", "sorting"), workers=2)
  assert found["accuracy"] == 0.5
  assert (found["accuracy/words"], found["accuracy/two-hop"]) == (pytest.approx(2 / 3), 0)
  assert (found["steps_per_plan/words"], found["steps_per_plan/two-hop"]) == (1, 2)
  assert found["parse_rate"] == 0.75 and found["correct_given_parsed"] == pytest.approx(2 / 3)
  assert found["tokens_per_task"] == 150 and found["cost_per_task"] == 0.002
  # Three of four steps are the first worker's.
  assert found["worker_entropy_bits"] == pytest.approx(-0.75 * math.log2(0.75) + 0.25 * 2)
  assert [name for name in found if name.startswith("accuracy/")] == [
      "accuracy/two-hop", "accuracy/words"]
  assert not [name for name in found if "round" in name]


def test_rounds_have_their_accuracies_and_the_shares_of_further_plans():
  found = measured(
      [item("words", "a", False, True), item("words", "b", True, True), item("words", "c", False),
       item("words", "d", False)],
      kinds=("words",), workers=1)
  assert (found["accuracy_by_round/1"], found["accuracy_by_round/2"]) == (0.25, 0.5)
  assert found["another_plan/right"] == 1
  assert found["another_plan/wrong"] == pytest.approx(1 / 3)


def test_answers_without_a_verdict_are_counted():
  found = measured([item("words", "a", True), item("words", "b", fault="the endpoint is down")],
                   kinds=("words",), workers=1)
  assert (found["accuracy"], found["rejected"]) == (1, 1)


def test_a_number_is_its_mean_over_seeds_with_students_interval():
  accuracy = row(results(*three_seeds()), "with")["numbers"]["accuracy"]
  assert accuracy["mean"] == pytest.approx(0.82)
  assert accuracy["interval"] == pytest.approx(
      [0.82 - T2 * 0.02 / math.sqrt(3), 0.82 + T2 * 0.02 / math.sqrt(3)])
  assert accuracy["by_seed"] == {"0": 0.80, "1": 0.82, "2": 0.84}


def test_a_difference_is_taken_seed_by_seed():
  found = row(results(*three_seeds()), "without")["difference"]
  # −0.10, −0.07 and −0.13: 0.03 is their standard deviation.
  assert found["by_seed"] == pytest.approx({"0": -0.10, "1": -0.07, "2": -0.13})
  assert found["mean"] == pytest.approx(-0.10)
  assert found["interval"] == pytest.approx(
      [-0.10 - T2 * 0.03 / math.sqrt(3), -0.10 + T2 * 0.03 / math.sqrt(3)])
  assert row(results(*three_seeds()), "with")["difference"] is None


def test_a_difference_is_over_the_seeds_that_both_arms_have():
  cells = [("with", "full", 0, numbers(0.9)), ("with", "full", 1, numbers(None)),
           ("without", "full", 0, numbers(0.6)), ("without", "full", 1, numbers(0.5)),
           ("without", "full", 2, numbers(0.1))]
  found = row(results(*cells), "without")
  assert found["difference"]["by_seed"] == pytest.approx({"0": -0.3})
  assert found["difference"]["interval"] is None
  assert found["numbers"]["accuracy"]["mean"] == pytest.approx(0.4)


def test_a_difference_is_within_a_measurement():
  cells = [("with", "full", 0, numbers(0.9)), ("without", "full", 0, numbers(0.8)),
           ("with", "reduced", 0, numbers(0.3)), ("without", "reduced", 0, numbers(0.5))]
  found = results(*cells)
  assert row(found, "without", "full")["difference"]["mean"] == pytest.approx(-0.1)
  assert row(found, "without", "reduced")["difference"]["mean"] == pytest.approx(0.2)


def test_without_the_first_arm_there_is_no_difference():
  found = results(("without", "full", 0, numbers(0.5)))
  assert [row["arm"] for row in found["rows"]] == ["without"]
  assert found["rows"][0]["difference"] is None and found["first"] == "with"


def test_rows_are_in_the_order_of_the_measurements_and_their_arms_and_seeds_ascend():
  cells = [(arm, measurement, seed, numbers(0.5)) for arm in ("without", "with")
           for measurement in ("reduced", "full") for seed in (10, 2)]
  found = results(*cells)
  assert [(row["measurement"], row["arm"]) for row in found["rows"]] == [
      ("full", "with"), ("full", "without"), ("reduced", "with"), ("reduced", "without")]
  assert {tuple(row["seeds"]) for row in found["rows"]} == {(2, 10)}


def test_what_a_seed_lacks_is_left_out_of_the_mean():
  cells = [("with", "full", 0, numbers(0.5, **{"another_plan/right": None})),
           ("with", "full", 1, numbers(0.5, **{"another_plan/right": 0.25}))]
  found = row(results(*cells), "with")["numbers"]["another_plan/right"]
  assert (found["mean"], found["interval"]) == (0.25, None)
  assert found["by_seed"] == {"0": None, "1": 0.25}


def test_a_value_of_zero_counts():
  cells = [("with", "full", seed, numbers(accuracy)) for seed, accuracy in enumerate((0.0, 0.5))]
  assert row(results(*cells), "with")["numbers"]["accuracy"]["mean"] == 0.25
