"""The results of an evaluation: every strategy on every benchmark, their means and differences."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from conductor_jax.evaluation.item import Item
from conductor_jax.evaluation.metrics import interval, latencies, question_scores, summarise
from conductor_jax.evaluation.statistics import Estimate, bootstrap, estimate
from conductor_jax.workflows.plan_metrics import entropy_bits, mean

# What a strategy's mean over benchmarks adds up instead.
_COUNTS = ("tasks", "items", "rejected")
_Pair = tuple[str, str]


def evaluation_results(
    items: Iterable[Item], *, strategies: Sequence[str], benchmarks: Sequence[str],
    workers: Sequence[str], seed: int
) -> dict[str, Any]:
  """Adds up items.

  Args:
    items: in any order.
    strategies: their names, in the order wanted; those that have no item are left out.
    benchmarks: likewise.
    workers: the names of the workers, by id.
    seed: fixes the intervals.

  Returns:
    JSON types.

        strategies, benchmarks, workers   names
        variants       what answered for a strategy, where its name does not say it
        by_benchmark   by name, `strategies`: by name, what `summarise` and `latencies` return and
                       `accuracy_interval`; `differences`: for each two strategies `a` and `b` with
                       common questions, the mean of a's score less b's over these `questions`,
                       and its `interval`
        mean           the same, as means over all benchmarks (counts as sums, the entropy that of
                       the mean worker shares); None and no difference for a strategy that has not
                       been measured on each of them

    Worker shares are by name. Intervals are of 95 %, see `statistics`.
  """
  by_cell: dict[tuple[str, str], list[Item]] = defaultdict(list)
  # The order of the file is that in which answers came.
  for item in sorted(items, key=lambda item: item.key):
    by_cell[item.key.strategy, item.key.benchmark].append(item)
  strategies = [name for name in strategies if any(name == s for s, _ in by_cell)]
  benchmarks = [name for name in benchmarks if any(name == b for _, b in by_cell)]
  tables, accuracies, differences = {}, {}, {}
  for benchmark in benchmarks:
    cells = {name: by_cell[name, benchmark] for name in strategies if (name, benchmark) in by_cell}
    accuracies[benchmark], differences[benchmark], common = _estimates(cells, benchmark, seed)
    tables[benchmark] = {
        "strategies": {
            name: {**_named(summarise(cell, workers=len(workers)), workers), **latencies(cell),
                   "accuracy_interval": interval(accuracies[benchmark][name])}
            for name, cell in cells.items()},
        "differences": [_difference(pair, found, questions=common[pair])
                        for pair, found in differences[benchmark].items()]}
  return {
      "strategies": strategies, "benchmarks": benchmarks, "workers": list(workers),
      "variants": {item.key.strategy: item.variant for cell in by_cell.values() for item in cell
                   if item.variant},
      "by_benchmark": tables,
      "mean": {
          "strategies": {name: _mean_of(name, tables, _over_benchmarks(name, accuracies))
                         for name in strategies},
          "differences": [_difference(pair, found) for pair in combinations(strategies, 2)
                          if (found := _over_benchmarks(pair, differences)) is not None]}}


def _estimates(
    cells: dict[str, list[Item]], benchmark: str, seed: int
) -> tuple[dict[str, Estimate | None], dict[_Pair, Estimate], dict[_Pair, int]]:
  """Accuracies, differences, and over how many questions these are, of one benchmark."""
  scores = {name: question_scores(cell) for name, cell in cells.items()}
  questions = sorted(set().union(*scores.values()))
  table = np.array([[scores[name].get(question, np.nan) for name in cells]
                    for question in questions]).reshape(len(questions), len(cells))
  names, pairs = list(cells), list(combinations(range(len(cells)), 2))
  columns, differences = bootstrap(
      table, pairs, generator=np.random.default_rng([seed, *benchmark.encode()]))
  found = {(names[a], names[b]): each for (a, b), each in zip(pairs, differences, strict=True)
           if each is not None}
  common = {(a, b): len(scores[a].keys() & scores[b].keys()) for a, b in found}
  return dict(zip(names, columns, strict=True)), found, common


def _over_benchmarks(name: str | _Pair, estimates: dict[str, dict[Any, Estimate | None]]
                     ) -> Estimate | None:
  """The mean over all benchmarks, which are drawn independently; None if one has none."""
  found = [each.get(name) for each in estimates.values()]
  if not found or any(each is None for each in found):
    return None
  return estimate(float(np.mean([each.value for each in found])),
                  np.mean([each.draws for each in found], axis=0))


def _mean_of(name: str, tables: dict[str, Any], accuracy: Estimate | None) -> dict[str, Any]:
  """What a strategy's numbers are on average, its counts in all."""
  cells = [table["strategies"][name] for table in tables.values() if name in table["strategies"]]
  whole = len(cells) == len(tables)

  def average(values: Sequence[Any]) -> Any:
    if any(value is None for value in values) or not whole:
      return None
    if isinstance(values[0], dict):
      return {key: average([value[key] for value in values])
              for key in values[0] if all(key in value for value in values)}
    return mean(values)

  numbers = {key: (sum if key in _COUNTS else average)([cell[key] for cell in cells])
             for key in cells[0] if key != "accuracy_interval"}
  shares = numbers["worker_shares"]
  # Who asks one worker on each benchmark does not always ask the same one.
  return {**numbers, "accuracy_interval": interval(accuracy),
          "worker_entropy_bits": None if shares is None else entropy_bits(shares.values())}


def _named(numbers: dict[str, Any], workers: Sequence[str]) -> dict[str, Any]:
  """The same with the worker shares by name."""
  shares = numbers["worker_shares"]
  return {**numbers, "worker_shares":
          None if shares is None else dict(zip(workers, shares, strict=True))}


def _difference(pair: _Pair, found: Estimate, **more: Any) -> dict[str, Any]:
  return {"a": pair[0], "b": pair[1], "difference": found.value, "interval": interval(found),
          **more}
