"""The tables of an ablation as text, for Markdown and the terminal alike."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conductor_jax.reporting.evaluation_markdown import markdown_table
from conductor_jax.reporting.evaluation_table import Table, dollars

_NOTHING = "–"
# (metric, heading, format) beside the accuracy.
_COLUMNS = (
    ("parse_rate", "plans that parse, %", "{:.1f}"),
    ("correct_given_parsed", "correct given parsed, %", "{:.1f}"),
    ("steps_per_plan", "steps", "{:.2f}"),
    ("worker_entropy_bits", "worker entropy, bits", "{:.2f}"),
    ("tokens_per_task", "tokens", "{:,.0f}"),
    ("cost_per_task", "cost, $", ""),
)
_ROUNDS = {"right": "another plan after a right answer, %",
           "wrong": "another plan after a wrong one, %"}
_HOW = (
    "Means over seeds ± half of the 95 % interval of Student's t; one seed has none. Differences "
    "are in percentage points of accuracy, between runs with the same seed. Accuracy is over all "
    "questions together. Tokens and dollars are those of the workers for an answer.")


def ablation_markdown(results: Mapping[str, Any], notes: Sequence[str]) -> str:
  """The document of table.md.

  Args:
    results: see `ablation_results`.
    notes: what a reader must know beside the numbers, in sentences.
  """
  parts = [f"# {results['title']}", *notes, _HOW]
  for title, table in tables(results).items():
    parts += [f"## {title}", markdown_table(table)]
  return "\n\n".join(parts) + "\n"


def tables(results: Mapping[str, Any]) -> dict[str, Table]:
  """The tables by their titles: all numbers, then those of kinds of tasks and of rounds."""
  found = {
      "Results": _whole(results),
      "Accuracy by kind of task, %": _parts(results, "accuracy", _percent),
      "Steps per plan by kind of task": _parts(results, "steps_per_plan", "{:.2f}".format),
      "Accuracy by round, %": _parts(
          results, "accuracy_by_round", _percent, lambda part: f"after {part}"),
      "Further rounds": _parts(results, "another_plan", _percent, _ROUNDS.__getitem__)}
  return {title: table for title, table in found.items() if len(table.headings) > 1}


def _label(results: Mapping[str, Any], row: Mapping[str, Any]) -> str:
  several = len({each["measurement"] for each in results["rows"]}) > 1
  return f"{row['measurement']}: {row['arm']}" if several else row["arm"]


def _whole(results: Mapping[str, Any]) -> Table:
  rows = []
  for row in results["rows"]:
    numbers = row["numbers"]
    rows.append((
        _label(results, row), f"{len(row['seeds'])}", _estimate(numbers["accuracy"], _percent),
        _estimate(row["difference"], _points),
        *(_estimate(numbers[name], _form(title, form)) for name, title, form in _COLUMNS)))
  headings = ("seeds", "accuracy, %", f"against {results['first']}",
              *(title for _, title, _ in _COLUMNS))
  return Table(("", *headings), tuple(rows))


def _parts(
    results: Mapping[str, Any], metric: str, form: Callable[[float], str],
    heading: Callable[[str], str] = str
) -> Table:
  """A column for each kind or round that a metric is known of."""
  rows = results["rows"]
  parts = list(dict.fromkeys(
      name.partition("/")[2] for row in rows for name in row["numbers"]
      if name.startswith(f"{metric}/")))
  return Table(("", *map(heading, parts)), tuple(
      (_label(results, row), *(_estimate(row["numbers"].get(f"{metric}/{part}"), form)
                               for part in parts)) for row in rows))


def _estimate(estimate: Mapping[str, Any] | None, form: Callable[[float], str]) -> str:
  """Such as `94.2 ± 2.1`, of a single seed `94.2 ± –`."""
  if estimate is None or estimate["mean"] is None:
    return _NOTHING
  interval = estimate["interval"]
  arm = _NOTHING if interval is None else form((interval[1] - interval[0]) / 2).lstrip("+")
  return f"{form(estimate['mean'])} ± {arm}"


def _form(title: str, form: str) -> Callable[[float], str]:
  if title.endswith("$"):
    return dollars
  return _percent if title.endswith("%") else form.format


def _percent(share: float) -> str:
  return f"{100 * share:.1f}"


def _points(share: float) -> str:
  # A minus as wide as the plus; and no sign before 0.0.
  rounded = round(100 * share, 1)
  return "0.0" if math.isclose(rounded, 0) else f"{rounded:+.1f}".replace("-", "−")
