"""results.html: an evaluation on one page that needs nothing beside it."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from matplotlib.figure import Figure

from conductor_jax.reporting.evaluation_markdown import INTERVALS, PAIRED, ROUNDS, USE
from conductor_jax.reporting.evaluation_plots import accuracy_by_cost, worker_use
from conductor_jax.reporting.evaluation_table import (
    Table,
    accuracy_table,
    differences,
    pass_table,
    plans_table,
    plus_minus,
    rounds_table,
    strategy_labels,
    use_table,
)
from conductor_jax.reporting.figure import PAGE, inline_svg
from conductor_jax.reporting.page import page, section, table
from conductor_jax.reporting.spending import spending_table


def evaluation_page(
    results: Mapping[str, Any], *, name: str, notes: Sequence[str], config_text: str) -> str:
  """The document. What has no data is left out.

  Args:
    results: of the evaluation, with its "spending".
    name: of the work directory.
    notes: what a reader must know beside the numbers, in sentences.
    config_text: the configuration as shown at the end.
  """
  labels = strategy_labels(results)
  several = " The mean is over benchmarks." if len(results["benchmarks"]) > 1 else ""
  over = " Numbers are means over benchmarks." if several else ""
  passes, rounds = pass_table(results), rounds_table(results)
  return page(name, "evaluation", [
      _headline(results, labels),
      "".join(f'<p class="lead">{escape(note)}</p>' for note in notes),
      section("Accuracy", f"<p>In %, with the number of questions.{several} {INTERVALS}</p>"
              + _table(accuracy_table(results))),
      section("Accuracy against cost", _figure(
          accuracy_by_cost(results["mean"]["strategies"], labels, PAGE), "cost",
          "Accuracy against cost",
          "The bars are 95 % intervals. The dashed line is the Pareto front: what is below it is "
          "beaten by something that costs no more. Full points are on it.")),
      section("Which is better", _differences(results, labels)),
      section("What an answer takes", f"<p>{escape(USE + over)}</p>" + _table(use_table(results))),
      section("Round by round", "" if rounds is None else
              f"<p>{escape(ROUNDS + over)}</p>" + _table(rounds)),
      section("One of k answers right", "" if passes is None else _table(passes)),
      section("Plans and verdicts", _table(plans_table(results))),
      section("Which worker is called", _figure(
          worker_use(results, labels, PAGE), "workers", "Worker use",
          "Of the steps of all plans, in percent. Strategies that always ask the same worker are "
          "left out.")),
      section("What the workers were paid", spending_table(results.get("spending") or {})),
      section("Configuration", f"<pre>{escape(config_text)}</pre>" if config_text else ""),
  ])


def _headline(results: Mapping[str, Any], labels: Mapping[str, str]) -> str:
  """The first strategy's accuracy, and a sentence that compares it with the best of the others."""
  means = {name: numbers for name, numbers in results["mean"]["strategies"].items()
           if numbers["accuracy"] is not None}
  first = next(iter(labels), None)
  if first not in means:
    return ""
  benchmarks = results["benchmarks"]
  over = benchmarks[0] if len(benchmarks) == 1 else f"the mean of {len(benchmarks)} benchmarks"
  accuracy = plus_minus(means[first]["accuracy"], means[first]["accuracy_interval"], "%")
  sentence = ""
  others = [name for name in means if name != first]
  if others:
    best = max(others, key=lambda name: means[name]["accuracy"])
    found = differences(results).get((first, best))
    if found is not None:
      verdict = "better than" if found.low > 0 else "worse than" if found.high < 0 else (
          "not clearly different from")
      sentence = (f'<p class="lead">{escape(labels[first])} is {verdict} {escape(labels[best])}, '
                  f"the best of the others: {found} points.</p>")
  return (f'<p class="headline"><strong>{accuracy}</strong>'
          f"<span>accuracy of {escape(labels[first])}, {escape(over)}</span></p>{sentence}")


def _table(content: Table) -> str:
  rows = []
  for number, (label, *cells) in enumerate(content.rows):
    rows.append([f"<th scope=row>{escape(label)}</th>"] + [
        f'<td{" class=main" if (number, column) in content.best else ""}>{escape(cell)}</td>'
        for column, cell in enumerate(cells, start=1)])
  return table(content.headings, rows)


def _differences(results: Mapping[str, Any], labels: Mapping[str, str]) -> str:
  """By how many points each strategy in the rows is better than each in the columns."""
  found = differences(results)
  if not found:
    return ""

  def cell(a: str, b: str) -> str:
    if (a, b) not in found:
      return "<td></td>" if a == b else "<td>–</td>"
    each = found[a, b]
    colour = ("" if not each.clear else ' class="up"' if each.points > 0 else ' class="down"')
    return f"<td{colour}>{each.text}<small>{each.ends}</small></td>"

  rows = [[f"<th scope=row>{escape(label)}</th>", *(cell(a, b) for b in labels)]
          for a, label in labels.items()]
  return (f"<p>By how much the strategy in the row is better than that in the column. {PAIRED} "
          "Where the interval leaves out 0, the field has a colour; of many such comparisons, one "
          "in twenty does by chance.</p>" + table(["", *labels.values()], rows))


def _figure(figure: Figure | None, identifier: str, title: str, note: str) -> str:
  if figure is None:
    return ""
  return (f'<figure class="broad">{inline_svg(figure, identifier, title)}'
          f"<p>{escape(note)}</p></figure>")
