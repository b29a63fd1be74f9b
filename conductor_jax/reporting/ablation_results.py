"""What the cells of an ablation add up to: means over seeds, and differences from the first arm."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conductor_jax.evaluation.item import Item
from conductor_jax.evaluation.metrics import summarise
from conductor_jax.evaluation.statistics import t_interval

_METRICS = (
    "accuracy", "parse_rate", "correct_given_parsed", "steps_per_plan", "worker_entropy_bits",
    "tokens_per_task", "cost_per_task",
)
_BY_KIND = ("accuracy", "steps_per_plan")
_BY_ROUND = ("accuracy_by_round", "another_plan")


@dataclass(frozen=True)
class Cell:
  """One trained policy in one measurement.

  Attributes:
    arm, measurement, seed: which one it is.
    numbers: what `measured` returned.
  """

  arm: str
  measurement: str
  seed: int
  numbers: Mapping[str, float | None]


def measured(
    items: Sequence[Item], *, kinds: Sequence[str], workers: int) -> dict[str, float | None]:
  """The numbers of one cell.

  Accuracy is over all questions, so a kind of more questions counts for more.

  Args:
    items: of one strategy, at least one.
    kinds: of tasks, in the order wanted; those without an item are left out.
    workers: how many workers are in the pool.

  Returns:
    What `summarise` returns, by the names of the metrics; those of a kind or a round have its name
    behind a slash, as in "accuracy/two-hop" and "accuracy_by_round/2".
  """
  whole = summarise(items, workers=workers)
  numbers = {name: whole[name] for name in (*_METRICS, "rejected")}
  for kind in kinds:
    own = [item for item in items if item.key.benchmark == kind]
    if own:
      found = summarise(own, workers=workers)
      numbers |= {f"{name}/{kind}": found[name] for name in _BY_KIND}
  return numbers | {
      f"{name}/{part}": value for name in _BY_ROUND for part, value in whole[name].items()}


def ablation_results(
    cells: Iterable[Cell], *, title: str, arms: Sequence[str], measurements: Sequence[str]
) -> dict[str, Any]:
  """Adds up cells.

  Args:
    cells: in any order.
    title: of the ablation.
    arms, measurements: their names, in the order wanted; those without a cell are left out.

  Returns:
    JSON types.

        title   of the ablation
        first   the arm that the others are compared with
        rows    of each measurement and arm: `measurement`, `arm`, `seeds`; `numbers`: by metric its
                `mean` over the seeds that have it, its `interval` and its values `by_seed`; and
                `difference`: of this arm's accuracy less the first arm's by the same seeds and in
                the same measurement its `mean`, its `interval` and its values `by_seed`, None for
                the first arm and where the two have no seed in common

    Intervals are of 95 %, see `t_interval`, and None of a single seed. A mean of nothing is None.
  """
  found: dict[tuple[str, str], dict[int, Mapping[str, float | None]]] = {}
  for cell in sorted(cells, key=lambda cell: cell.seed):
    found.setdefault((cell.measurement, cell.arm), {})[cell.seed] = cell.numbers
  rows = []
  for measurement in measurements:
    first = _accuracies(found.get((measurement, arms[0]), {}))
    for arm in arms:
      by_seed = found.get((measurement, arm))
      if by_seed is None:
        continue
      own = _accuracies(by_seed)
      common = {seed: own[seed] - first[seed] for seed in own if seed in first}
      metrics = dict.fromkeys(name for numbers in by_seed.values() for name in numbers)
      rows.append({
          "measurement": measurement, "arm": arm, "seeds": list(by_seed),
          "numbers": {name: _over_seeds({seed: numbers.get(name)
                                         for seed, numbers in by_seed.items()})
                      for name in metrics},
          "difference": _over_seeds(common) if common and arm != arms[0] else None})
  return {"title": title, "first": arms[0], "rows": rows}


def _accuracies(by_seed: Mapping[int, Mapping[str, float | None]]) -> dict[int, float]:
  return {seed: numbers["accuracy"] for seed, numbers in by_seed.items()
          if numbers["accuracy"] is not None}


def _over_seeds(by_seed: Mapping[int, float | None]) -> dict[str, Any]:
  known = [value for value in by_seed.values() if value is not None]
  interval = t_interval(known)
  return {"mean": float(np.mean(known)) if known else None,
          "interval": None if interval is None else list(interval),
          "by_seed": {str(seed): value for seed, value in by_seed.items()}}
