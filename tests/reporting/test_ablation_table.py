import json

import pytest

from conductor_jax.reporting.ablation_files import write_ablation
from conductor_jax.reporting.ablation_table import ablation_markdown, tables
from tests.reporting.ablations import numbers, results, three_seeds


def line(table, label):
  row, = (row for row in table.rows if row[0] == label)
  return dict(zip(table.headings[1:], row[1:], strict=True))


def test_every_number_stands_with_half_of_its_interval():
  found = line(tables(results(*three_seeds()))["Results"], "without")
  # 4.3027 · 0.02646 / √3, and of the difference 4.3027 · 0.03 / √3.
  assert found["accuracy, %"] == "72.0 ± 6.6"
  assert found["against with"] == "−10.0 ± 7.5"
  assert (found["seeds"], found["steps"], found["worker entropy, bits"]) == (
      "3", "1.50 ± 0.00", "2.25 ± 0.00")
  assert (found["tokens"], found["cost, $"]) == ("1,234 ± 0", "0.000125 ± 0")
  assert found["plans that parse, %"] == "100.0 ± 0.0"


def test_the_first_arm_has_no_difference():
  assert line(tables(results(*three_seeds()))["Results"], "with")["against with"] == "–"


def test_one_seed_has_no_interval():
  cells = [("with", "full", 0, numbers(0.5)), ("without", "full", 0, numbers(0.625))]
  found = line(tables(results(*cells))["Results"], "without")
  assert (found["accuracy, %"], found["against with"]) == ("62.5 ± –", "+12.5 ± –")


def test_a_number_that_no_seed_has_is_a_dash():
  cells = [("with", "full", seed, numbers(0.0, steps_per_plan=None)) for seed in (0, 1)]
  assert line(tables(results(*cells))["Results"], "with")["steps"] == "–"


def test_arms_are_named_with_their_measurement_where_there_are_several():
  found = tables(results(*three_seeds(), *three_seeds("reduced")))["Results"]
  assert [row[0] for row in found.rows] == [
      "full: with", "full: without", "reduced: with", "reduced: without"]


def test_kinds_and_rounds_have_tables_of_their_own():
  cells = [("with", "full", seed, numbers(
      0.5, **{"accuracy/words": 0.9, "accuracy/two-hop": accuracy, "steps_per_plan/words": 1.0,
              "steps_per_plan/two-hop": 2.0, "accuracy_by_round/1": 0.4,
              "accuracy_by_round/2": 0.5, "another_plan/right": 0.1, "another_plan/wrong": None}))
           for seed, accuracy in enumerate((0.1, 0.3))]
  found = tables(results(*cells))
  assert list(found) == ["Results", "Accuracy by kind of task, %", "Steps per plan by kind of task",
                         "Accuracy by round, %", "Further rounds"]
  # t with 1 degree of freedom is 12.706, and s / √2 is 0.1.
  assert line(found["Accuracy by kind of task, %"], "with") == {
      "words": "90.0 ± 0.0", "two-hop": "20.0 ± 127.1"}
  assert line(found["Steps per plan by kind of task"], "with")["two-hop"] == "2.00 ± 0.00"
  assert line(found["Accuracy by round, %"], "with") == {
      "after 1": "40.0 ± 0.0", "after 2": "50.0 ± 0.0"}
  assert line(found["Further rounds"], "with") == {
      "another plan after a right answer, %": "10.0 ± 0.0",
      "another plan after a wrong one, %": "–"}


def test_tables_without_a_column_are_left_out():
  assert list(tables(results(*three_seeds()))) == ["Results"]


def test_the_document_has_the_title_the_notes_and_the_tables():
  text = ablation_markdown(results(*three_seeds()), ["6 of 10 measurements are there."])
  assert text.startswith("# Subtasks\n\n6 of 10 measurements are there.\n\n")
  assert "| with | 3 | 82.0 ± 5.0 | – |" in text


@pytest.mark.parametrize("notes", [[], ["one of them"]])
def test_the_files_hold_the_results(tmp_path, notes):
  found = results(*three_seeds())
  table = write_ablation(tmp_path / "grid", found, notes=notes)
  assert table.read_text() == ablation_markdown(found, notes)
  assert json.loads((tmp_path / "grid" / "results.json").read_text()) == {**found, "notes": notes}
  assert {path.name for path in (tmp_path / "grid").iterdir()} == {
      "table.md", "results.json", "plot.svg", "plot.png"}
