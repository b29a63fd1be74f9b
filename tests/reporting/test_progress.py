"""What a run prints, with a terminal and without."""

import io
import math

import pytest
from rich.console import Console

from conductor_jax.reporting.progress import (
    CallRates,
    Terminal,
    accuracy_line,
    comparison,
    iteration_line,
)
from conductor_jax.workers.client import Activity

ITERATION = {
    "reward": 0.714, "accuracy": 0.437, "parse_rate": 1.0, "steps_per_plan": 1.309,
    "worker_entropy_bits": 2.508, "rejected": 0.0, "skipped": 0.0, "loss": 1e-9, "kl": 0.1,
    "dropped_groups": 0, "seconds_sampling": 0.611, "seconds_executing": 0.42,
    "seconds_waiting": 1.1, "seconds_training": 0.75}


def result(accuracy, **changes):
  return {
      "accuracy": accuracy, "accuracy_by_kind": {"words": accuracy / 2, "sorting": 1.0},
      "parse_rate": 0.99, "correct_given_parsed": 0.5, "steps_per_plan": 1.25,
      "worker_entropy_bits": 2.0, "tokens_per_task": 1234.5, "cost_per_task": 0.000123,
      "tasks": 500, "rejected": 0, **changes}


def test_an_iteration_is_one_line_in_a_fixed_order():
  assert iteration_line(12, 160, ITERATION) == (
      "   12/160  reward 0.71  accuracy 0.44  parse 1.00  steps 1.31  entropy 2.51 bits"
      "  sample 0.61 s  execute 0.42 s  wait 1.10 s  train 0.75 s")


def test_a_warm_start_step_shows_its_loss():
  line = iteration_line(100, 300, {"loss": 0.51234, "grad_norm": 1.0, "seconds": 0.05})
  assert line == "  100/300  loss 0.5123  step 0.05 s"


def test_a_value_that_a_step_has_none_of_is_a_dash():
  assert "steps –  " in iteration_line(1, 9, {**ITERATION, "steps_per_plan": None})


def test_a_loss_that_is_not_finite_is_said():
  line = iteration_line(1, 9, {**ITERATION, "loss": math.nan})
  assert line.startswith("  1/9  loss not finite  reward 0.71")


def test_rejected_and_late_rollouts_and_skipped_updates_are_said_when_there_are_any():
  assert "too late 2 groups" in iteration_line(1, 9, {**ITERATION, "dropped_groups": 2})
  assert "rejected 1.6%" in iteration_line(1, 9, {**ITERATION, "rejected": 1 / 64})
  assert "update skipped" in iteration_line(1, 9, {**ITERATION, "skipped": 1.0})
  line = iteration_line(1, 9, ITERATION)
  assert not any(word in line for word in ("rejected", "skipped", "too late"))


def test_a_pipe_gets_plain_whole_lines_only():
  stream = io.StringIO()
  terminal = Terminal(Console(file=stream, width=40))
  with terminal.phase("GRPO", start=10, total=12) as phase:
    phase.advance(10, ITERATION)
    terminal.print("checkpoint [bold]11[/bold]")
    phase.advance(11, ITERATION)
  assert stream.getvalue() == (
      iteration_line(11, 12, ITERATION) + "\ncheckpoint [bold]11[/bold]\n"
      + iteration_line(12, 12, ITERATION) + "\n")


def test_a_terminal_gets_a_bar_and_the_same_lines():
  stream = io.StringIO()
  terminal = Terminal(Console(file=stream, force_terminal=True, width=200))
  with terminal.phase("GRPO", start=0, total=2) as phase:
    phase.advance(0, ITERATION)
    phase.advance(1, ITERATION)
  assert iteration_line(1, 2, ITERATION) in stream.getvalue()
  assert "━" in stream.getvalue()


def test_calls_in_flight_the_rates_of_the_last_seconds_and_the_spending_are_shown():
  activity, now = Activity(in_flight=3, calls={"fast": 10}, cost=0.0), 100.0
  text = CallRates(activity, lambda: now)
  assert text() == "3 in flight"
  now, activity.calls, activity.cost = 105.0, {"fast": 30, "slow": 5}, 1.234
  assert text() == "3 in flight  $1.23  fast 4.0/s  slow 1.0/s"
  now, activity.calls = 112.0, {"fast": 30, "slow": 12}
  assert text() == "3 in flight  $1.23  slow 1.0/s"


def test_a_terminal_shows_what_is_waited_for_and_a_pipe_does_not():
  for is_terminal in (True, False):
    stream = io.StringIO()
    terminal = Terminal(Console(file=stream, force_terminal=is_terminal, width=200))
    with terminal.waiting("random plan", lambda: "7 in flight"):
      pass
    assert ("random plan" in stream.getvalue()) == is_terminal
    assert ("7 in flight" in stream.getvalue()) == is_terminal


def test_a_result_is_a_line_over_the_tasks_with_a_verdict():
  assert accuracy_line(result(0.1925, rejected=20)) == "accuracy 19.2% of 480 tasks"
  assert accuracy_line({**result(0.5, rejected=500), "accuracy": None}) == "accuracy – of 0 tasks"


@pytest.mark.parametrize("total,printed", [(10, [4, 8, 10]), (8, [4, 8])])
def test_every_so_many_steps_and_the_last_are_printed(total, printed):
  stream = io.StringIO()
  with Terminal(Console(file=stream)).phase("warm start", start=0, total=total, every=4) as phase:
    for step in range(total):
      phase.advance(step, {"loss": 1.0})
  steps = [int(line.split("/")[0]) for line in stream.getvalue().splitlines()]
  assert steps == printed


def test_the_comparison_has_the_agreed_columns_and_a_row_per_kind():
  headings, rows = comparison({
      "random_plan": result(0.2), "extra": result(0.1), "best_single_worker": result(0.4),
      "after_rl": result(0.6), "before_rl": result(0.3)})
  assert headings == ["", "before RL", "after RL", "best single worker", "random plan", "extra"]
  assert rows[:3] == [
      ["accuracy", "30.0%", "60.0%", "40.0%", "20.0%", "10.0%"],
      ["  sorting", "100.0%", "100.0%", "100.0%", "100.0%", "100.0%"],
      ["  words", "15.0%", "30.0%", "20.0%", "10.0%", "5.0%"]]
  by_label = {label: cells[0] for label, *cells in rows}
  assert by_label["tokens per task"] == "1,234"
  assert by_label["cost per task, $"] == "0.000123"
  assert by_label["tasks"] == "500"
  assert "of them without a verdict" not in by_label


def test_intervals_stand_under_the_accuracies_where_they_are_known():
  _, rows = comparison({"after_rl": result(0.6, accuracy_interval=[0.5512, 0.6487]),
                        "random_plan": result(0.2)})
  assert rows[:2] == [["accuracy", "60.0%", "20.0%"], ["  95% interval", "55.1–64.9%", "–"]]


def test_held_out_tasks_without_a_verdict_are_counted_where_there_are_any():
  _, rows = comparison({"after_rl": result(0.6), "random_plan": result(0.2, rejected=3)})
  assert rows[-1] == ["of them without a verdict", "0", "3"]


def test_what_a_result_lacks_is_a_dash_and_what_all_lack_is_no_row():
  lacking = {"parse_rate": None, "worker_entropy_bits": None}
  _, rows = comparison({
      "after_rl": result(0.6, worker_entropy_bits=None),
      "best_single_worker": result(0.4, accuracy_by_kind={"words": 0.1}, **lacking)})
  by_label = {label: cells for label, *cells in rows}
  assert by_label["plans that parse"] == ["99.0%", "–"]
  assert by_label["  sorting"] == ["100.0%", "–"]
  assert "worker entropy, bits" not in by_label


def test_accuracies_by_round_have_rows_where_there_are_rounds():
  _, rows = comparison({
      "after_rl": result(0.6, accuracy_by_round={"1": 0.5, "2": 0.6, "10": 0.625},
                         another_plan={"right": 0.125, "wrong": None}),
      "random_plan": result(0.2, accuracy_by_round={}, another_plan={}),
      "extra": result(0.2)})
  assert rows[3:8] == [
      ["  after round 1", "50.0%", "–", "–"], ["  after round 2", "60.0%", "–", "–"],
      ["  after round 10", "62.5%", "–", "–"], ["  another plan if right", "12.5%", "–", "–"],
      ["  another plan if wrong", "–", "–", "–"]]
  _, rows = comparison({"after_rl": result(0.6, accuracy_by_round={}, another_plan={})})
  assert not any("round" in label or "another" in label for label, *_ in rows)


def test_a_second_round_has_its_accuracy_beside_the_first():
  line = iteration_line(1, 9, {**ITERATION, "round2/accuracy": 0.625})
  assert "accuracy 0.44  round 2 0.62  parse 1.00" in line


def test_the_printed_table_fits_eighty_columns_without_control_codes():
  stream = io.StringIO()
  names = ("before_rl", "after_rl", "best_single_worker", "random_plan")
  Terminal(Console(file=stream, width=80)).results({name: result(
      0.5, accuracy_by_round={"1": 0.25, "2": 0.5}, another_plan={"right": 0.1, "wrong": 0.9})
      for name in names})
  text = stream.getvalue()
  assert "\x1b" not in text and "…" not in text
  assert max(map(len, text.splitlines())) <= 80
  assert text.count("50.0%") == 4 * 3 and text.count("25.0%") == 4 * 2
