"""The tables of an evaluation as text, for Markdown, a page and the terminal alike."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conductor_jax.reporting.progress import heading

_NOTHING = "–"
# (metric, heading, format) of the numbers beside the accuracy.
_USE = (
    ("tokens_per_task", "tokens", "{:,.0f}"),
    ("cost_per_task", "cost, $", ""),
    ("latency_median", "latency, s", "{:.2f}"),
    ("latency_p95", "95th percentile", "{:.2f}"),
    ("steps_per_plan", "steps", "{:.2f}"),
)
_PLANS = (
    ("parse_rate", "plans that parse, %", "{:.1f}"),
    ("correct_given_parsed", "correct given parsed, %", "{:.1f}"),
    ("unparsed_answers", "answers not understood, %", "{:.1f}"),
    ("worker_entropy_bits", "worker entropy, bits", "{:.2f}"),
    ("items", "answers", "{:,.0f}"),
    ("rejected", "without a verdict", "{:,.0f}"),
)
# Of a ranking of workers: how many a label has room for.
_RANKED = 2


@dataclass(frozen=True)
class Table:
  """A table of text.

  Attributes:
    headings: of the columns, the first of which names the rows.
    rows: a label, then a cell for each other column.
    best: (row, column) of the cells that are the best of their columns.
  """

  headings: tuple[str, ...]
  rows: tuple[tuple[str, ...], ...]
  best: frozenset[tuple[int, int]] = frozenset()


def plus_minus(value: float, interval: Sequence[float], unit: str = "") -> str:
  """A share in percent with the longer arm of its interval, such as `94.2 ± 2.1`."""
  arm = max(value - interval[0], interval[1] - value)
  return f"{100 * value:.1f}{unit} ± {100 * arm:.1f}"


def strategy_labels(results: Mapping[str, Any]) -> dict[str, str]:
  """What people call the strategies; a worker has its own name.

  Where not all workers are always on offer, the best one is the first of a ranking that is.
  """
  workers, labels = set(results["workers"]), {}
  for name in results["strategies"]:
    labels[name] = name if name in workers else heading(name)
  ranking = results["variants"].get("best_single_worker", "").split(" > ")
  if "best_single_worker" in labels and set(ranking) <= workers:
    named = ranking if len(ranking) <= _RANKED else [*ranking[:_RANKED], "…"]
    labels["best_single_worker"] += f" ({' > '.join(named)})"
  return labels


def accuracy_table(results: Mapping[str, Any]) -> Table:
  """Accuracies in percent of every strategy on every benchmark, and their mean."""
  parts = {name: table["strategies"] for name, table in results["by_benchmark"].items()}
  headings = ["", *(f"{name} ({_questions(part)})" for name, part in parts.items())]
  if len(parts) > 1:
    headings.append("mean")
    parts["mean"] = results["mean"]["strategies"]
  labels = strategy_labels(results)
  accuracies = [[part.get(name, {}).get("accuracy") for part in parts.values()] for name in labels]
  rows = [
      (labels[name], *(_accuracy(part.get(name)) for part in parts.values())) for name in labels]
  best = {(row, column + 1) for column, values in enumerate(zip(*accuracies, strict=True))
          for row, value in enumerate(values)
          if len(labels) > 1 and value is not None
          and value == max(v for v in values if v is not None)}
  return Table(tuple(headings), tuple(rows), frozenset(best))


def _questions(part: Mapping[str, Mapping[str, Any]]) -> str:
  """How many questions the strategies were asked, such as `500` or `480–500`."""
  counts = sorted({numbers["tasks"] for numbers in part.values()})
  return "–".join(f"{count:,}" for count in (counts[:1] + counts[1:][-1:]))


def _accuracy(numbers: Mapping[str, Any] | None) -> str:
  if numbers is None or numbers["accuracy"] is None:
    return _NOTHING
  return plus_minus(numbers["accuracy"], numbers["accuracy_interval"])


def use_table(results: Mapping[str, Any]) -> Table:
  """What an answer takes: tokens, dollars, seconds and steps."""
  return _numbers_table(results, _USE)


def plans_table(results: Mapping[str, Any]) -> Table:
  """Whether plans and answers could be read, and how many have no verdict."""
  return _numbers_table(results, _PLANS)


def _numbers_table(
    results: Mapping[str, Any], columns: Sequence[tuple[str, str, str]]) -> Table:
  labels = strategy_labels(results)
  rows = []
  for name, label in labels.items():
    numbers = results["mean"]["strategies"][name]
    rows.append((label, *(_cell(numbers[key], title, form) for key, title, form in columns)))
  return Table(("", *(title for _, title, _ in columns)), tuple(rows))


def _cell(value: float | None, title: str, form: str) -> str:
  if value is None:
    return _NOTHING
  if title.endswith("$"):
    return dollars(value)
  return form.format(100 * value if title.endswith("%") else value)


def dollars(value: float) -> str:
  """An amount with three digits that say something, and no exponent."""
  return f"{value:.{max(2, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def pass_table(results: Mapping[str, Any]) -> Table | None:
  """pass@k in percent, None where no question was asked twice."""
  means = results["mean"]["strategies"]
  ks = sorted({int(k) for numbers in means.values() for k in numbers["pass_at_k"] or {}})
  if not ks:
    return None
  rows = [(label, *(_cell((means[name]["pass_at_k"] or {}).get(str(k)), "%", "{:.1f}") for k in ks))
          for name, label in strategy_labels(results).items()]
  return Table(("", *(f"pass@{k}" for k in ks)), tuple(rows))


def rounds_table(results: Mapping[str, Any]) -> Table | None:
  """Accuracy after each round, and how often another plan follows; None where there is one round.

  Strategies that have one round are left out.
  """
  means = results["mean"]["strategies"]
  several = [name for name in results["strategies"] if means[name]["accuracy_by_round"]]
  rounds = sorted({int(n) for name in several for n in means[name]["accuracy_by_round"]})
  if not rounds:
    return None
  labels = strategy_labels(results)
  rows = [(labels[name],
           *(_cell(means[name]["accuracy_by_round"].get(str(n)), "%", "{:.1f}") for n in rounds),
           *(_cell(means[name]["another_plan"].get(first), "%", "{:.1f}")
             for first in ("right", "wrong")))
          for name in several]
  return Table(
      ("", *(f"after round {n}, %" for n in rounds), "another plan after a right answer, %",
       "another plan after a wrong one, %"), tuple(rows))


@dataclass(frozen=True)
class Difference:
  """A difference in percentage points, its interval, and whether this leaves 0 out."""

  points: float
  low: float
  high: float

  @property
  def clear(self) -> bool:
    return self.low > 0 or self.high < 0

  @property
  def text(self) -> str:
    return _signed(self.points)

  @property
  def ends(self) -> str:
    return f"{_signed(self.low)} to {_signed(self.high)}"

  def __str__(self) -> str:
    return f"{self.text} ({self.ends})"


def _signed(points: float) -> str:
  # A minus as wide as the plus; and no sign before 0.0.
  return "0.0" if abs(points) < 0.05 else f"{points:+.1f}".replace("-", "−")


def differences(results: Mapping[str, Any]) -> dict[tuple[str, str], Difference]:
  """Of each two strategies, in both directions: how much better the first is, on the mean."""
  found = {}
  for each in results["mean"]["differences"]:
    value, (low, high) = each["difference"], each["interval"]
    found[each["a"], each["b"]] = Difference(100 * value, 100 * low, 100 * high)
    found[each["b"], each["a"]] = Difference(-100 * value, -100 * high, -100 * low)
  return found


def against_table(results: Mapping[str, Any]) -> Table:
  """By how many points the first strategy is better than each of the others."""
  labels, found = strategy_labels(results), differences(results)
  first, *others = labels
  return Table(("", f"{labels[first]} is better by"),
               tuple((labels[name], str(found.get((first, name), _NOTHING))) for name in others))
