"""The plots of an evaluation: accuracy against cost, and which workers do the work."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from conductor_jax.reporting.figure import FONT, Palette, new_figure, style_axes
from conductor_jax.reporting.point_labels import label_points

_WIDTH, _HEIGHT = 700, 380  # points
_HATCHES = ("", "////", "....")
# Of a worker's share that has room for its number.
_ROOM = 0.07


def pareto_front(costs: Sequence[float], accuracies: Sequence[float]) -> list[int]:
  """The points that none beats: by rising cost, those alike side by side.

  A point beats another if it costs no more and is right as often, and one of the two is better.
  """
  front: list[int] = []
  for index in sorted(range(len(costs)), key=lambda i: (costs[i], -accuracies[i], i)):
    if not front or accuracies[index] > accuracies[front[-1]] or (
        (costs[index], accuracies[index]) == (costs[front[-1]], accuracies[front[-1]])):
      front.append(index)
  return front


def accuracy_by_cost(
    strategies: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str], palette: Palette
) -> Figure | None:
  """Accuracy against what the workers are paid for a question, with the Pareto front.

  Where no strategy costs anything, tokens stand in for dollars.

  Args:
    strategies: numbers by name, as in the results; those without an accuracy are left out.
    labels: what to call them.
    palette: colours.

  Returns:
    The figure, None if there is nothing to draw.
  """
  known = {name: numbers for name, numbers in strategies.items()
           if numbers["accuracy"] is not None and numbers["cost_per_task"] is not None}
  if not known:
    return None
  paid = any(numbers["cost_per_task"] > 0 for numbers in known.values())
  key, unit = (("cost_per_task", "dollars") if paid else ("tokens_per_task", "worker tokens"))
  costs = np.array([numbers[key] for numbers in known.values()], float)
  heights = 100 * np.array([numbers["accuracy"] for numbers in known.values()])
  bars = 100 * np.array([numbers["accuracy_interval"] for numbers in known.values()])
  figure = new_figure(_WIDTH, _HEIGHT, palette)
  axes = figure.add_subplot()
  style_axes(axes, palette, f"{unit} per question", "accuracy, %")
  axes.grid(True, color=palette.grid, linewidth=0.7)
  places = _log_axis(axes, costs, palette)
  front = pareto_front(costs.tolist(), heights.tolist())
  colour = palette.series[0]
  axes.vlines(places, bars[:, 0], bars[:, 1], color=colour, alpha=0.45, linewidth=1.6)
  low, high = bars.min(), bars.max()
  room = max(0.08 * (high - low), 1.5)
  axes.set_ylim(max(low - room, -2), min(high + room, 102))
  path = _staircase(places[front], heights[front], axes.get_xlim()[1])
  axes.plot(*path.T, color=colour, linewidth=1.2, linestyle=(0, (4, 2)))
  inside = np.isin(np.arange(len(places)), front)
  axes.plot(places[~inside], heights[~inside], "o", markersize=7, markerfacecolor=palette.ground,
            markeredgecolor=colour, markeredgewidth=1.4)
  axes.plot(places[inside], heights[inside], "o", color=colour, markersize=7)
  label_points(axes, [labels[name] for name in known], np.stack([places, heights], axis=1), bars,
               path, palette)
  return figure


def _staircase(costs: np.ndarray, accuracies: np.ndarray, end: float) -> np.ndarray:
  """The corners of the most that is had for a cost: it rises where a point of the front is."""
  corners = [(costs[0], accuracies[0])]
  for cost, accuracy in zip(costs[1:], accuracies[1:], strict=True):
    corners += [(cost, corners[-1][1]), (cost, accuracy)]
  return np.array([*corners, (end, corners[-1][1])])


def _log_axis(axes: Axes, costs: np.ndarray, palette: Palette) -> np.ndarray:
  """Makes the x axis logarithmic, with a place of its own for 0; returns where each cost is."""
  above = costs[costs > 0]
  low, high = (above.min(), above.max()) if above.size else (1.0, 1.0)
  # Half a decade at least, so that equal costs do not look different.
  margin = max(0.06 * math.log10(high / low), (0.5 - math.log10(high / low)) / 2)
  low, high = low / 10**margin, high * 10**margin
  axes.set_xscale("log")
  free = low / 10 ** (0.12 * math.log10(high / low))
  if above.size < costs.size:
    axes.axvline(math.sqrt(free * low), color=palette.grid, linewidth=0.9, linestyle=(0, (2, 2)))
    axes.set_xlim(free / (low / free) ** 0.6, high)
  else:
    axes.set_xlim(low, high)
  ticks = [tick for tick in LogLocator(subs=_subs(low, high)).tick_values(low, high)
           if low <= tick <= high]
  axes.xaxis.set_major_locator(FixedLocator([free, *ticks] if above.size < costs.size else ticks))
  axes.xaxis.set_major_formatter(FuncFormatter(
      lambda x, _: "0" if x < low else np.format_float_positional(
          x, precision=2, fractional=False, trim="-")))
  axes.xaxis.set_minor_locator(NullLocator())
  axes.xaxis.set_minor_formatter(NullFormatter())
  return np.where(costs > 0, np.maximum(costs, np.finfo(float).tiny), free)


def _subs(low: float, high: float) -> tuple[float, ...]:
  """Which multiples of powers of ten have a tick."""
  decades = math.log10(high / low)
  for most, subs in ((0.8, (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)), (1.6, (1.0, 2.0, 5.0)),
                     (3.0, (1.0, 3.0))):
    if decades < most:
      return subs
  return (1.0,)


def worker_use(
    results: Mapping[str, Any], labels: Mapping[str, str], palette: Palette) -> Figure | None:
  """The share of the steps that each worker is given, by strategy and benchmark.

  Strategies that always ask the same worker are left out.

  Args:
    results: of the evaluation.
    labels: what to call the strategies.
    palette: colours.

  Returns:
    The figure, None if every strategy always asks the same worker.
  """
  shares = {}
  for name in results["strategies"]:
    rows = {benchmark: table["strategies"][name]["worker_shares"]
            for benchmark, table in results["by_benchmark"].items()
            if table["strategies"].get(name, {}).get("worker_shares")}
    asked = {worker for row in rows.values() for worker, share in row.items() if share > 0}
    if len(asked) > 1:
      shares[name] = rows
  if not shares:
    return None
  workers = [worker for worker in results["workers"]
             if any(row.get(worker) for rows in shares.values() for row in rows.values())]
  columns = max(1, min(len(workers), 620 // (6 * max(map(len, workers)) + 42)))
  lines = math.ceil(len(workers) / columns)
  heights = [len(rows) for rows in shares.values()]
  figure = new_figure(_WIDTH, 40 + 18 * lines + 21 * sum(heights) + 34 * len(shares), palette)
  panels = figure.subplots(len(shares), 1, squeeze=False, sharex=True,
                           height_ratios=[height + 0.4 for height in heights])[:, 0]
  for axes, (name, rows) in zip(panels, shares.items(), strict=True):
    _stacked(axes, rows, results["workers"], palette)
    axes.set_title(labels[name], loc="left", fontsize=FONT, color=palette.ink, parse_math=False)
  panels[-1].set_xlabel("share of the steps", color=palette.ink, fontsize=FONT)
  drawn = {bar.get_label(): bar for bar in panels[0].containers}
  figure.legend(
      [drawn[worker] for worker in workers], workers, loc="outside upper left", ncols=columns,
      fontsize=FONT, labelcolor=palette.ink, frameon=False, handlelength=1.4, handleheight=1.0)
  return figure


def _stacked(
    axes: Axes, rows: Mapping[str, Mapping[str, float]], workers: Sequence[str], palette: Palette
) -> None:
  """Draws a bar for each benchmark, with a part for each worker."""
  style_axes(axes, palette, "", "")
  axes.spines["bottom"].set_visible(False)
  axes.tick_params(length=0)
  places, starts = np.arange(len(rows))[::-1], np.zeros(len(rows))
  for index, worker in enumerate(workers):
    widths = np.array([row.get(worker, 0.0) for row in rows.values()])
    axes.barh(
        places, widths, left=starts, height=0.78, label=worker, edgecolor=palette.ground,
        linewidth=0.8, color=palette.series[index % len(palette.series)],
        hatch=_HATCHES[index // len(palette.series) % len(_HATCHES)])
    for place, start, width in zip(places, starts, widths, strict=True):
      if width > _ROOM:
        axes.text(start + width / 2, place, f"{100 * width:.0f}", color=palette.ground,
                  fontsize=FONT - 1, ha="center", va="center_baseline",
                  bbox={"facecolor": palette.series[index % len(palette.series)],
                        "edgecolor": "none", "pad": 1.2})
    starts += widths
  axes.set_yticks(places, list(rows))
  for text in axes.get_yticklabels():
    text.set_parse_math(False)
  axes.set_xlim(0, 1)
  axes.set_xticks(np.linspace(0, 1, 5), [f"{share:.0%}" for share in np.linspace(0, 1, 5)])
