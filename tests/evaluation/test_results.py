import json
from dataclasses import replace

import numpy as np
import pytest

from conductor_jax.evaluation.item import Item, Key
from conductor_jax.evaluation.results import evaluation_results
from conductor_jax.workflows.workflow import Step, Workflow

PLAN = Workflow((Step(0, ""), Step(1, "")))


def item(strategy, task, right, *, benchmark="gsm8k", repeat=0, variant="", cost=0.5, worker=None,
         before=()):
  """An item whose last plan gives the verdict, after rounds with those of `before`."""
  plan = PLAN if worker is None else Workflow((Step(worker, ""),))
  return Item(
      key=Key(strategy, benchmark, task, repeat), variant=variant, question="h",
      plans=(plan,) * (len(before) + 1), rights=(*before, right), right=right,
      fault=None if right is not None else "down", extracted=right is not None or None,
      tokens=10, cost=cost, latency=2.0)


def results(items, strategies=("a", "b"), benchmarks=("gsm8k",)):
  found = evaluation_results(items, strategies=strategies, benchmarks=benchmarks,
                             workers=["small", "large"], seed=0)
  assert json.loads(json.dumps(found, allow_nan=False)) == found
  return found


def rights(strategy, marks, **fields):
  """Items of the tasks t0, t1, ...: 1 right, 0 wrong, x without a verdict."""
  return [item(strategy, f"t{i}", {"1": True, "0": False, "x": None}[mark], **fields)
          for i, mark in enumerate(marks)]


def test_a_strategy_on_a_benchmark_has_its_accuracy_interval_and_worker_shares_by_name():
  found = results(rights("a", "1101") + rights("b", "0001", worker=1))
  numbers = found["by_benchmark"]["gsm8k"]["strategies"]
  assert [numbers[name]["accuracy"] for name in "ab"] == [0.75, 0.25]
  low, high = numbers["a"]["accuracy_interval"]
  assert low < 0.75 < high <= 1
  assert numbers["a"]["worker_shares"] == {"small": 0.5, "large": 0.5}
  assert numbers["b"]["worker_shares"] == {"small": 0.0, "large": 1.0}
  assert (numbers["a"]["latency_median"], numbers["a"]["tasks"]) == (2.0, 4)


def test_a_difference_is_over_the_questions_that_both_have_a_verdict_on():
  found = results(rights("a", "11x10") + rights("b", "0101"))
  difference, = found["by_benchmark"]["gsm8k"]["differences"]
  # Tasks 0, 1 and 3: 1 - 0, 1 - 1, 1 - 1.
  assert (difference["a"], difference["b"], difference["questions"]) == ("a", "b", 3)
  assert difference["difference"] == pytest.approx(1 / 3)
  assert difference["interval"][0] <= 0 < difference["interval"][1]


def test_repeats_that_say_the_same_make_nothing_surer():
  once = rights("a", "1101001110")
  often = [replace(each, key=each.key._replace(repeat=repeat)) for each in once
           for repeat in range(5)]
  one, five = (results(items)["mean"]["strategies"]["a"] for items in (once, often))
  assert one["accuracy_interval"] == five["accuracy_interval"]
  assert (one["items"], five["items"]) == (10, 50)


def test_the_mean_is_over_benchmarks_whatever_their_size_and_counts_are_sums():
  items = rights("a", "1" * 90 + "0" * 10) + rights("a", "10", benchmark="aime25", cost=1.5)
  found = results(items, benchmarks=("gsm8k", "aime25"))
  mean = found["mean"]["strategies"]["a"]
  assert mean["accuracy"] == pytest.approx((0.9 + 0.5) / 2)
  assert mean["cost_per_task"] == pytest.approx(1.0)
  assert (mean["tasks"], mean["rejected"]) == (102, 0)
  assert mean["worker_shares"] == {"small": 0.5, "large": 0.5}
  low, high = mean["accuracy_interval"]
  # The two questions of the small one are worth half: their mean is 0, 0.5 or 1.
  assert low < 0.5 and high > 0.9


def test_means_over_benchmarks_are_of_the_rounds_that_all_of_them_have():
  def rounds(benchmark, *rights):
    return [item("a", f"t{i}", last, benchmark=benchmark, before=before)
            for i, (*before, last) in enumerate(rights)]

  items = [*rounds("gsm8k", (False, True), (False, False), (True,), (True, True)),
           *rounds("aime25", (False, False, True), (False,))]
  found = results(items, benchmarks=("gsm8k", "aime25"))
  one, other = (part["strategies"]["a"] for part in found["by_benchmark"].values())
  assert one["accuracy_by_round"] == {"1": 2 / 4, "2": 3 / 4}
  assert other["accuracy_by_round"] == {"1": 0, "2": 0, "3": 1 / 2}
  assert one["another_plan"] == {"right": 1 / 2, "wrong": 1}
  # No first answer of the other one is right.
  assert other["another_plan"] == {"right": None, "wrong": 1 / 2}
  mean = found["mean"]["strategies"]["a"]
  assert mean["accuracy_by_round"] == {"1": 1 / 4, "2": 3 / 8}
  assert mean["another_plan"] == {"right": None, "wrong": 3 / 4}
  assert mean["accuracy"] == (3 / 4 + 1 / 2) / 2


def test_a_benchmark_that_was_answered_in_one_round_has_no_numbers_by_round_and_nor_has_the_mean():
  items = [item("a", "t0", True, before=(False,)),
           item("a", "t0", True, benchmark="aime25")]
  found = results(items, benchmarks=("gsm8k", "aime25"))
  assert found["by_benchmark"]["gsm8k"]["strategies"]["a"]["accuracy_by_round"] == {
      "1": 0, "2": 1}
  for part in (found["by_benchmark"]["aime25"], found["mean"]):
    numbers = part["strategies"]["a"]
    assert numbers["accuracy_by_round"] == numbers["another_plan"] == {}


def test_one_worker_on_each_benchmark_is_not_always_the_same_worker():
  items = rights("a", "11", worker=0) + rights("a", "10", benchmark="aime25", worker=1)
  found = results(items, benchmarks=("gsm8k", "aime25"))
  assert [part["strategies"]["a"]["worker_entropy_bits"]
          for part in (*found["by_benchmark"].values(), found["mean"])] == [0.0, 0.0, 1.0]


def test_the_interval_of_a_mean_is_that_of_independent_benchmarks():
  marks = "1" * 240 + "0" * 160
  found = results(rights("a", marks) + rights("a", marks, benchmark="aime25"),
                  benchmarks=("gsm8k", "aime25"))
  widths = [np.diff(part["strategies"]["a"]["accuracy_interval"])[0]
            for part in (*found["by_benchmark"].values(), found["mean"])]
  assert widths[2] == pytest.approx(np.hypot(widths[0], widths[1]) / 2, rel=0.06)


def test_a_strategy_without_one_of_the_benchmarks_has_no_mean_to_compare():
  items = rights("a", "11") + rights("a", "10", benchmark="aime25") + rights("b", "01")
  found = results(items, benchmarks=("gsm8k", "aime25"))
  assert found["mean"]["strategies"]["b"]["accuracy"] is None
  assert found["mean"]["strategies"]["b"]["accuracy_interval"] is None
  assert found["mean"]["strategies"]["b"]["tasks"] == 2
  assert found["mean"]["differences"] == []
  assert len(found["by_benchmark"]["gsm8k"]["differences"]) == 1
  assert "b" not in found["by_benchmark"]["aime25"]["strategies"]


def test_where_nothing_has_a_verdict_there_is_no_accuracy_and_no_difference():
  found = results(rights("a", "xx") + rights("b", "10"))
  assert found["by_benchmark"]["gsm8k"]["strategies"]["a"]["accuracy_interval"] is None
  assert found["by_benchmark"]["gsm8k"]["differences"] == []
  assert found["mean"]["strategies"]["a"]["accuracy"] is None
  assert found["mean"]["strategies"]["a"]["rejected"] == 2


def test_names_come_in_the_order_asked_and_those_without_items_are_left_out():
  items = rights("b", "1", variant="step 7") + rights("a", "0")
  found = results(items, strategies=("c", "a", "b"), benchmarks=("mmlu", "gsm8k"))
  assert (found["strategies"], found["benchmarks"]) == (["a", "b"], ["gsm8k"])
  assert found["variants"] == {"b": "step 7"}
  assert list(found["by_benchmark"]["gsm8k"]["strategies"]) == ["a", "b"]


def test_the_order_in_which_answers_came_makes_no_difference():
  items = rights("a", "1101001110" * 5) + rights("b", "1001001010" * 5)
  generator = np.random.default_rng(0)
  items = [replace(each, cost=float(10 ** generator.uniform(-9, 3))) for each in items]
  assert results(items) == results([items[i] for i in generator.permutation(len(items))])


def test_all_pairs_are_compared():
  found = results([item(name, "t", True) for name in "abcd"], strategies="abcd")
  pairs = [(each["a"], each["b"]) for each in found["mean"]["differences"]]
  assert pairs == [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")]
