"""The plot of an ablation: the accuracy of every arm, with its interval and its seeds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from conductor_jax.reporting.figure import FONT, Palette, new_figure, style_axes

_WIDTH = 700  # points


def ablation_plot(results: Mapping[str, Any], palette: Palette) -> Figure | None:
  """A row for every arm, in a panel for every measurement.

  A dot is the mean over seeds, the line its 95 % interval, the faint dots are the seeds. The dashed
  line is the mean of the first arm.

  Args:
    results: see `ablation_results`; rows without an accuracy are left out.
    palette: colours.

  Returns:
    The figure, None if there is nothing to draw.
  """
  panels: dict[str, list[Mapping[str, Any]]] = {}
  for row in results["rows"]:
    if row["numbers"]["accuracy"]["mean"] is not None:
      panels.setdefault(row["measurement"], []).append(row)
  if not panels:
    return None
  heights = [len(rows) for rows in panels.values()]
  titled = len(panels) > 1
  figure = new_figure(_WIDTH, 60 + 30 * sum(heights) + 34 * titled * len(panels), palette)
  drawn = figure.subplots(len(panels), 1, squeeze=False, sharex=True,
                          height_ratios=[height + 0.4 for height in heights])[:, 0]
  figure.suptitle(results["title"], x=0.01, ha="left", fontsize=FONT + 1, color=palette.ink)
  for axes, (measurement, rows) in zip(drawn, panels.items(), strict=True):
    _panel(axes, rows, results["first"], palette)
    if titled:
      axes.set_title(measurement, loc="left", fontsize=FONT, color=palette.ink, parse_math=False)
  drawn[-1].set_xlabel("accuracy, %", color=palette.ink, fontsize=FONT)
  return figure


def _panel(
    axes: Axes, rows: list[Mapping[str, Any]], first: str, palette: Palette) -> None:
  style_axes(axes, palette, "", "")
  axes.tick_params(axis="y", length=0)
  axes.grid(True, axis="x", color=palette.grid, linewidth=0.7)
  colour, places = palette.series[0], np.arange(len(rows))[::-1]
  for place, row in zip(places, rows, strict=True):
    accuracy = row["numbers"]["accuracy"]
    mean = 100 * accuracy["mean"]
    if row["arm"] == first:
      axes.axvline(mean, color=colour, linewidth=1.0, linestyle=(0, (4, 2)), alpha=0.6)
    if accuracy["interval"]:
      # An interval of few seeds may leave what an accuracy can be.
      axes.hlines(place, *np.clip(100 * np.array(accuracy["interval"]), 0, 100), color=colour,
                  linewidth=2.0)
      seeds = [100 * value for value in accuracy["by_seed"].values() if value is not None]
      axes.plot(seeds, np.full(len(seeds), place - 0.22), "o", markersize=4, color=colour,
                alpha=0.35, markeredgewidth=0)
    axes.plot(mean, place, "o", markersize=7, color=colour)
  axes.set_ylim(-0.6, len(rows) - 0.4)
  axes.set_yticks(places, [row["arm"] for row in rows])
  for text in axes.get_yticklabels():
    text.set_parse_math(False)
