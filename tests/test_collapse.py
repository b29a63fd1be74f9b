"""Warnings about short made-up runs, shaped as real ones are."""

import pytest

from conductor_jax.collapse import SIGNS, CollapseGuard, collapse_warnings
from conductor_jax.config import default_config

OFF = {name: 0.0 if sign.least else 1.0 for name, sign in SIGNS.items()}


def says(values, *, name="worker_entropy_bits", bound=0.3, iterations=3):
  """The iterations, from 1, after which a guard warns that watches one metric."""
  guard = CollapseGuard(iterations, **{**OFF, name: bound})
  return [i for i, value in enumerate(values, start=1) if guard.observe({name: value})]


def test_a_warning_names_what_collapsed_its_value_its_bound_and_a_remedy():
  guard = CollapseGuard(5, **{**OFF, "worker_entropy_bits": 0.3})
  for _ in range(4):
    assert guard.observe({"worker_entropy_bits": 0.1}) == []
  assert guard.observe({"worker_entropy_bits": 0.2}) == [
      "collapse: plans use hardly more than one worker (worker entropy 0.12 bits over the last 5 "
      "iterations, bound 0.3): raise grpo.entropy_coefficient, or lower optimizer.learning_rate"]


@pytest.mark.parametrize(("name", "beyond", "words"), [
    ("parse_rate", 0.45, "few plans parse (parse rate 0.45 over one iteration, bound 0.5)"),
    ("worker_entropy_bits", 0.0, "(worker entropy 0 bits over"),
    ("steps_per_plan", 0.25, "plans have become short (steps per plan 0.25 over"),
    ("access_density", 0.25, "steps do not see earlier answers (access density 0.25 over"),
    ("wrong_duplicates", 0.75, "groups repeat plans that are wrong (wrong duplicates 0.75 over"),
    ("failed_groups", 0.9375, "groups fail as a whole, and teach nothing (failed groups 0.938"),
])
def test_every_metric_has_a_warning_of_its_own_on_one_side_of_its_bound(name, beyond, words):
  guard = CollapseGuard(1, **{**OFF, name: 0.5})
  assert guard.observe({name: 0.5}) == []
  within = 1.0 if SIGNS[name].least else 0.0
  assert guard.observe(dict.fromkeys(SIGNS, within) | {name: within}) == []
  warning, = guard.observe({name: beyond})
  assert words in warning


def test_the_mean_is_over_the_last_iterations_alone():
  # Means of three: 0.4, 0.3, 0.2.
  assert says([0.6, 0.3, 0.3, 0.3, 0.0]) == [5]
  # The first two have no mean of three yet.
  assert says([0.0, 0.0, 0.0]) == [3]


def test_a_collapse_is_said_once_and_again_only_after_it_has_recovered():
  low, high = [0.0] * 5, [1.0] * 5
  assert says(low + low) == [3]
  # Within its bound again from the 6th iteration on, beyond it again from the 13th.
  assert says(low + high + low) == [3, 13]


def test_a_mean_that_wavers_around_its_bound_is_said_once():
  # The means are 0.2, 0.4, 0.4, 0.2, ... and with another 0.6 three in a row are within the bound.
  assert says([0.0] * 3 + [0.6, 0.6, 0.0, 0.0] * 5) == [3]
  assert says([0.0] * 3 + [0.6, 0.6, 0.6, 0.0, 0.0] * 2) == [3, 8, 13]


def test_an_iteration_that_lacks_a_metric_counts_for_nothing():
  assert says([0.0, None, 0.5, 0.0, None]) == [3]
  assert says([None] * 4) == []


def test_bounds_that_no_value_is_beyond_are_off():
  guard = CollapseGuard(1, **OFF)
  assert guard.observe(dict.fromkeys(SIGNS, 0.0)) == guard.observe(dict.fromkeys(SIGNS, 1.0)) == []


def test_without_iterations_nothing_is_watched():
  guard = CollapseGuard(0, **dict.fromkeys(SIGNS, 0.5))
  assert guard.observe(dict.fromkeys(SIGNS, 0.0)) == []
  assert guard.collapsed == 0


def test_the_metrics_beyond_their_bounds_are_counted_as_long_as_they_are():
  guard = CollapseGuard(2, **{**OFF, "parse_rate": 0.5, "failed_groups": 0.9})
  counts = []
  for parse_rate, failed in ((0, 1), (0, 1), (0, 1), (1, 1), (1, 0), (1, 0)):
    guard.observe({"parse_rate": parse_rate, "failed_groups": failed})
    counts.append(guard.collapsed)
  assert counts == [0, 2, 2, 1, 0, 0]


def test_a_guard_that_is_shown_what_came_before_goes_on_as_if_it_had_not_been_interrupted():
  values = [{"step": i, "parse_rate": float(i > 6)} for i in range(12)]
  bounds = {**OFF, "parse_rate": 0.5}
  whole = CollapseGuard(3, **bounds)
  expected = [whole.observe(each) for each in values]
  for cut in range(len(values)):
    again = CollapseGuard(3, **bounds)
    collapse_warnings(again, values[:cut])
    assert [again.observe(each) for each in values[cut:]] == expected[cut:]
    assert again.collapsed == whole.collapsed


def test_the_warnings_of_a_run_have_the_iterations_that_they_came_after():
  values = [{"step": i, "failed_groups": float(i >= 2)} for i in range(6)]
  warning, = collapse_warnings(CollapseGuard(2, **{**OFF, "failed_groups": 0.9}), values)
  assert warning["iteration"] == 4 and warning["warning"].startswith("collapse: groups fail")


def default_guard():
  return CollapseGuard(**default_config().report.collapse)


def test_the_defaults_bound_every_metric_that_can_be_watched():
  assert set(default_config().report.collapse) == {"iterations", *SIGNS}


def test_remedies_name_options_that_exist():
  options = default_config()
  words = {word.strip(",") for sign in SIGNS.values() for word in sign.remedy.split()}
  named = {word for word in words if "." in word}
  assert len(named) > 4
  for key in named:
    section, option = key.split(".")
    assert option in options[section], key


def run(*parts):
  """Iterations of a made-up run: (how many, metrics at the end of them), from part to part."""
  values = dict(
      parse_rate=0.98, worker_entropy_bits=2.75, steps_per_plan=1.3, access_density=0.95,
      wrong_duplicates=0.2, failed_groups=0.06)
  records = []
  for iterations, changes in parts:
    before, values = values, {**values, **changes}
    records += [
        {"step": len(records) + i, **{
            name: before[name] + (end - before[name]) * (i + 1) / iterations
            for name, end in values.items()}}
        for i in range(iterations)]
  return records


def test_a_run_that_learns_its_tasks_and_converges_warns_of_nothing():
  """The shape of the quickstart: plans of a group are equal in the end, and right."""
  records = run((20, dict(parse_rate=0.9, wrong_duplicates=0.28)),
                (20, dict(parse_rate=1.0, wrong_duplicates=0.05, failed_groups=0.0)),
                (80, dict(worker_entropy_bits=1.75, wrong_duplicates=0.02)))
  assert collapse_warnings(default_guard(), records) == []


def test_a_run_that_ends_with_one_worker_warns_of_that_alone():
  """1.57 bits that fall to 0.28, as a reproduction of RL Conductor has seen them."""
  records = run((10, dict(worker_entropy_bits=1.57)), (40, dict(worker_entropy_bits=0.28)),
                (10, {}))
  warning, = collapse_warnings(default_guard(), records)
  assert warning["iteration"] in range(50, 54) and "hardly more than one worker" in (
      warning["warning"])


def test_a_run_that_ends_with_one_wrong_plan_for_each_question_warns_of_both_signs():
  records = run((20, {}), (20, dict(wrong_duplicates=1.0, failed_groups=1.0)), (10, {}))
  warnings = [each["warning"] for each in collapse_warnings(default_guard(), records)]
  assert len(warnings) == 2
  assert "repeat plans that are wrong" in warnings[0] and "fail as a whole" in warnings[1]


def test_a_run_whose_plans_stop_parsing_warns_of_it():
  records = run((10, {}), (20, dict(parse_rate=0.1)))
  warning, = collapse_warnings(default_guard(), records)
  assert "few plans parse" in warning["warning"]
