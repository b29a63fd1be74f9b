import pytest

from conductor_jax.reporting.evaluation_table import (
    accuracy_table,
    against_table,
    differences,
    dollars,
    pass_table,
    plans_table,
    plus_minus,
    rounds_table,
    strategy_labels,
    use_table,
)
from tests.reporting.evaluations import evaluation, hand_made


def test_the_arm_is_the_longer_one_and_no_interval_is_of_width_zero():
  assert plus_minus(0.942, [0.915, 0.96]) == "94.2 ± 2.7"
  assert plus_minus(1.0, [0.92, 1.0], unit="%") == "100.0% ± 8.0"


def test_workers_keep_their_names_and_the_best_one_is_named():
  results = evaluation(strategies=("conductor", "best_single_worker", "random_plan", "small"))
  assert strategy_labels(results) == {
      "conductor": "conductor", "best_single_worker": "best single worker (large)",
      "random_plan": "random plan", "small": "small"}


@pytest.mark.parametrize(("variant", "label"), [
    ("small", "best single worker (small)"),
    ("small > large", "best single worker (small > large)"),
    ("small > large > huge", "best single worker (small > large > …)"),
    ("grpo after step 3", "best single worker"), ("small > gone", "best single worker")])
def test_a_ranking_of_workers_is_named_by_its_first(variant, label):
  results = {**hand_made(best_single_worker={}), "workers": ["small", "large", "huge"],
             "variants": {"best_single_worker": variant}}
  assert strategy_labels(results) == {"best_single_worker": label}
  results = {**results, "strategies": ["small"]}
  assert strategy_labels(results) == {"small": "small"}


def test_rounds_have_a_row_for_every_strategy_that_has_several():
  table = rounds_table(hand_made(
      random_plan={},
      a={"accuracy_by_round": {"1": 0.5, "2": 0.625, "10": 0.75},
         "another_plan": {"right": 0.125, "wrong": 0.9}},
      b={"accuracy_by_round": {"1": 0.25}, "another_plan": {"right": None, "wrong": 1.0}}))
  assert table.headings == (
      "", "after round 1, %", "after round 2, %", "after round 10, %",
      "another plan after a right answer, %", "another plan after a wrong one, %")
  assert table.rows == (
      ("a", "50.0", "62.5", "75.0", "12.5", "90.0"), ("b", "25.0", "–", "–", "–", "100.0"))
  assert rounds_table(hand_made(a={}, random_plan={})) is None


def test_accuracies_have_a_column_for_each_benchmark_and_their_mean_and_the_best_stands_out():
  results = hand_made(a={"accuracy": 0.5}, b={"accuracy": 0.75, "accuracy_interval": [0.7, 0.8]})
  results["by_benchmark"]["mmlu"] = {"strategies": {"a": results["mean"]["strategies"]["a"]}}
  table = accuracy_table(results)
  assert table.headings == ("", "gsm8k (100)", "mmlu (100)", "mean")
  assert table.rows == (("a", "50.0 ± 10.0", "50.0 ± 10.0", "50.0 ± 10.0"),
                        ("b", "75.0 ± 5.0", "–", "75.0 ± 5.0"))
  assert table.best == {(1, 1), (0, 2), (1, 3)}


def test_one_benchmark_has_no_mean_and_one_strategy_no_best():
  table = accuracy_table(hand_made(a={}))
  assert table.headings == ("", "gsm8k (100)") and not table.best


def test_different_numbers_of_questions_are_both_told():
  table = accuracy_table(hand_made(a={"tasks": 1319}, b={"tasks": 100}, c={"tasks": 500}))
  assert table.headings[1] == "gsm8k (100–1,319)"


def test_a_strategy_without_a_verdict_has_no_accuracy():
  table = accuracy_table(hand_made(
      a={"accuracy": None, "accuracy_interval": None}, b={"accuracy": 0.0}))
  assert [row[1] for row in table.rows] == ["–", "0.0 ± 60.0"] and table.best == {(1, 1)}


def test_what_an_answer_takes_is_in_units_that_can_be_read():
  table = use_table(hand_made(a={}, b={"cost_per_task": 0.0, "latency_median": None}))
  assert table.headings == ("", "tokens", "cost, $", "latency, s", "95th percentile", "steps")
  assert table.rows == (("a", "1,234", "0.00123", "1.25", "4.00", "1.00"),
                        ("b", "1,234", "0", "–", "4.00", "1.00"))


@pytest.mark.parametrize(("amount", "text"), [
    (0.02384, "0.0238"), (0.0000031, "0.00000310"), (0.5, "0.500"), (12.345, "12.35"),
    (1234.5, "1234.50"), (0.0, "0")])
def test_dollars_have_three_digits_and_no_exponent(amount, text):
  assert dollars(amount) == text


def test_shares_of_plans_and_verdicts_are_in_percent_and_counts_are_counts():
  table = plans_table(hand_made(a={
      "parse_rate": 0.975, "correct_given_parsed": None, "unparsed_answers": 0.033,
      "worker_entropy_bits": 1.584, "items": 1200, "rejected": 3}))
  assert dict(zip(table.headings, table.rows[0], strict=True)) == {
      "": "a", "plans that parse, %": "97.5", "correct given parsed, %": "–",
      "answers not understood, %": "3.3", "worker entropy, bits": "1.58", "answers": "1,200",
      "without a verdict": "3"}


def test_pass_at_k_has_a_column_for_every_k_and_is_left_out_without_repeats():
  assert pass_table(hand_made(a={})) is None
  table = pass_table(hand_made(
      a={"pass_at_k": {"1": 0.5, "2": 0.75, "10": 0.9}}, b={"pass_at_k": {"1": 0.25}}))
  assert table.headings == ("", "pass@1", "pass@2", "pass@10")
  assert table.rows == (("a", "50.0", "75.0", "90.0"), ("b", "25.0", "–", "–"))


def with_difference(difference, interval):
  results = hand_made(a={}, b={}, c={})
  results["mean"]["differences"] = [
      {"a": "a", "b": "b", "difference": difference, "interval": interval}]
  return results


def test_a_difference_is_in_points_with_its_interval_and_turned_around_it_has_the_other_sign():
  found = differences(with_difference(0.1625, [0.106, 0.219]))
  assert str(found["a", "b"]) == "+16.2 (+10.6 to +21.9)"
  assert str(found["b", "a"]) == "−16.2 (−21.9 to −10.6)"
  assert found["a", "b"].clear and found["b", "a"].clear
  table = against_table(with_difference(0.1625, [0.106, 0.219]))
  assert table.headings == ("", "a is better by")
  assert table.rows == (("b", "+16.2 (+10.6 to +21.9)"), ("c", "–"))


@pytest.mark.parametrize(("interval", "clear"), [
    ([-0.02, 0.03], False), ([0.0, 0.03], False), ([0.001, 0.03], True), ([-0.03, -0.001], True)])
def test_a_difference_is_clear_where_its_interval_leaves_out_zero(interval, clear):
  found = differences(with_difference(sum(interval) / 2, interval))
  assert found["a", "b"].clear == found["b", "a"].clear == clear


def test_a_difference_of_nothing_has_no_sign():
  assert str(differences(with_difference(-0.0001, [-0.02, 0.0004]))["a", "b"]) == (
      "0.0 (−2.0 to 0.0)")
