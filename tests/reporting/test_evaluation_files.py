"""What an evaluation leaves: complete, self-contained, and safe with any name."""

import html
import json
import re
from xml.etree import ElementTree

import pytest

from conductor_jax.reporting.evaluation_files import write_results
from conductor_jax.reporting.evaluation_markdown import markdown
from conductor_jax.reporting.evaluation_page import evaluation_page
from tests.reporting.evaluations import evaluation, hand_made
from tests.reporting.test_report import read

SPENDING = {"small": {"calls": 1200, "tokens": 34_000, "cost": 0.25, "possible_tokens": 0,
                      "possible_cost": 0.0, "possibly_billed": 0, "estimated": 7}}
NAMES = {"results.json", "results.md", "results.html", "accuracy_by_cost.svg",
         "accuracy_by_cost.png", "worker_use.svg", "worker_use.png"}


def page(results, notes=(), config_text="{}"):
  return evaluation_page(results, name="run", notes=notes, config_text=config_text)


def headings(text):
  return re.findall(r"<h2>(.*?)</h2>", text)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("whole")
  results = {**evaluation(repeats=2), "spending": SPENDING}
  path = write_results(workdir, results, notes=["One answer is missing."], config_text="{}")
  assert path == workdir / "results.html"
  return workdir, results


def test_every_file_is_written_and_the_numbers_are_in_one_of_them(written):
  workdir, results = written
  assert {path.name for path in workdir.iterdir()} == NAMES
  found = json.loads((workdir / "results.json").read_text())
  assert found == {**results, "notes": ["One answer is missing."]}


def test_a_plot_without_anything_to_show_is_taken_away(written, tmp_path):
  _, results = written
  write_results(tmp_path, results, notes=[], config_text="")
  write_results(tmp_path, evaluation(strategies=("small",)), notes=[], config_text="")
  assert {path.name for path in tmp_path.iterdir()} == {
      name for name in NAMES if not name.startswith("worker_use")}


def test_the_page_has_every_section(written):
  text, _ = read(written[0] / "results.html")
  assert headings(text) == [
      "Accuracy", "Accuracy against cost", "Which is better", "What an answer takes",
      "One of k answers right", "Plans and verdicts", "Which worker is called",
      "What the workers were paid", "Configuration"]
  assert text.count("<figure") == 2
  assert "One answer is missing." in text
  assert "default-src 'none'" in text and not re.search(r'(src|href)="(?!#)', text)


def test_sections_without_data_are_left_out():
  text = page(evaluation(strategies=("small",), benchmarks=("gsm8k",)), config_text="")
  assert headings(text) == [
      "Accuracy", "Accuracy against cost", "What an answer takes", "Plans and verdicts"]


def test_rounds_have_a_table_where_there_are_several():
  results = hand_made(
      conductor={"accuracy_by_round": {"1": 0.5, "2": 0.75},
                 "another_plan": {"right": 0.1, "wrong": 0.9}}, random_plan={})
  text = page(results)
  assert "Round by round" in headings(text)
  section = text[text.index("Round by round"):text.index("Plans and verdicts")]
  assert re.findall("<td>(.*?)</td>", section) == ["50.0", "75.0", "10.0", "90.0"]
  assert "| conductor | 50.0 | 75.0 | 10.0 | 90.0 |" in rows(
      markdown(results, name="run", notes=[]))
  results = hand_made(conductor={}, random_plan={})
  assert "Round by round" not in headings(page(results))
  assert "Round by round" not in markdown(results, name="run", notes=[])


@pytest.mark.parametrize(("difference", "interval", "words"), [
    (0.1, [0.05, 0.15], "conductor is better than random plan, the best of the others: +10.0"),
    (-0.1, [-0.15, -0.05], "conductor is worse than random plan, the best of the others: −10.0"),
    (0.0, [-0.05, 0.05], "conductor is not clearly different from random plan")])
def test_the_headline_compares_the_first_strategy_with_the_best_of_the_others(
    difference, interval, words):
  results = hand_made(conductor={"accuracy": 0.5}, best_single_worker={"accuracy": 0.3},
                      random_plan={"accuracy": 0.4})
  results["mean"]["differences"] = [
      {"a": "conductor", "b": "random_plan", "difference": difference, "interval": interval}]
  text = page(results)
  assert "<strong>50.0% ± 10.0</strong>" in text and "accuracy of conductor, gsm8k" in text
  assert words in text


def test_only_clear_differences_have_a_colour():
  results = hand_made(a={}, b={}, c={})
  results["mean"]["differences"] = [
      {"a": "a", "b": "b", "difference": 0.1, "interval": [0.05, 0.15]},
      {"a": "a", "b": "c", "difference": 0.1, "interval": [-0.05, 0.25]}]
  text = page(results)
  assert text.count('<td class="up">') == text.count('<td class="down">') == 1


def test_names_are_escaped_everywhere_and_no_formula_is_made_of_them(tmp_path):
  evil = "</pre><script>alert('1')</script><img src=x>&amp;\"' $x_{2}$ | `*a*`"
  results = evaluation(strategies=(evil, "random_plan"), benchmarks=(evil, "mmlu"),
                       workers=(evil, "small"))
  results["spending"] = {evil: SPENDING["small"]}
  write_results(tmp_path, results, notes=[evil], config_text=evil)
  text, parser = read(tmp_path / "results.html")
  assert not parser.seen & {"script", "img", "link", "iframe", "pre x"}
  assert text.count(html.escape(evil)) > 5
  document = ElementTree.parse(tmp_path / "accuracy_by_cost.svg")
  texts = ["".join(node.itertext()) for node in document.iter() if node.tag.endswith("text")]
  assert evil in texts


def test_ids_are_unique_on_the_page(written):
  ids = re.findall(r'\bid="(.*?)"', (written[0] / "results.html").read_text())
  assert len(ids) > 50 and len(ids) == len(set(ids))


def test_the_same_results_give_the_same_files(written, tmp_path):
  workdir, results = written
  other = tmp_path / workdir.name
  other.mkdir()
  write_results(other, results, notes=["One answer is missing."], config_text="{}")
  for name in NAMES - {"accuracy_by_cost.png", "worker_use.png"}:
    assert (other / name).read_bytes() == (workdir / name).read_bytes(), name


def rows(text):
  return [line for line in text.splitlines() if line.startswith("|")]


def test_markdown_has_a_table_that_can_be_pasted():
  results = hand_made(
      conductor={"accuracy": 0.75, "accuracy_interval": [0.7, 0.79]}, random_plan={})
  text = markdown(results, name="a_run", notes=["One answer is missing."])
  assert text.startswith("# Evaluation: a\\_run\n\nOne answer is missing.\n\nAccuracy in %")
  assert rows(text)[:4] == [
      "|  | gsm8k (100) |", "|---|---:|", "| conductor | **75.0 ± 5.0** |",
      "| random plan | 50.0 ± 10.0 |"]
  assert "| random plan | – |" in text  # no difference is known
  assert "| conductor | 1,234 | 0.00123 | 1.25 | 4.00 | 1.00 |" in text


def test_a_table_of_markdown_keeps_its_columns_whatever_a_name_holds():
  results = hand_made(**{"a|b": {}, "c\nd*": {}})
  lines = rows(markdown(results, name="run", notes=[]))
  assert "| a\\|b | **50.0 ± 10.0** |" in lines and "| c d\\* | **50.0 ± 10.0** |" in lines


def test_markdown_of_one_strategy_compares_nothing():
  text = markdown(hand_made(a={}), name="run", notes=[])
  assert re.findall("^## (.*)$", text, re.MULTILINE) == ["What an answer takes",
                                                         "Plans and verdicts"]
