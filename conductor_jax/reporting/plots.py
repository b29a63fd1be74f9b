"""Curves of a run as inline SVG that follows the page's light or dark colours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from conductor_jax.reporting.figure import (
    DASHES,
    FONT,
    PAGE,
    inline_svg,
    new_figure,
    style_axes,
)

_WIDTH, _HEIGHT = 340, 200  # points


@dataclass(frozen=True)
class LegendEntry:
  """One series: its name, the CSS variable of its colour and its SVG dash pattern."""

  label: str
  colour: str
  dash: str


@dataclass(frozen=True)
class Plot:
  """One panel.

  Attributes:
    title: what is drawn.
    note: a sentence on how to read it, "" if it needs none.
    legend: one entry per series, with the values it is read by.
    svg: an `<svg>` element for an HTML page that defines `--ink`, `--grid`, `--ground` and
      `--series-0` to `--series-6`. Its ids start with the panel's identifier.
  """

  title: str
  note: str
  legend: tuple[LegendEntry, ...]
  svg: str


@dataclass(frozen=True)
class Curves:
  """Which metrics make up a panel.

  Attributes:
    identifier: unique on the page; ids in the SVG start with it.
    title: heading of the panel.
    axis: label of the y axis, with the unit.
    series: label by metric key; a key that no step has is left out.
    note: how to read it.
    share: whether the values are shares, drawn on an axis from 0 to 1.
    from_zero: whether the axis starts at 0.
    log: whether the axis is logarithmic; linear all the same when no value is above 0.
  """

  identifier: str
  title: str
  axis: str
  series: Mapping[str, str]
  note: str = ""
  share: bool = False
  from_zero: bool = False
  log: bool = False


def values_of(records: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
  """The metric at every step as float64[steps], NaN where it is missing or null."""
  return np.array([np.nan if r.get(key) is None else r[key] for r in records], dtype=np.float64)


def smoothing_window(steps: int) -> int:
  """Over how many steps a curve is averaged: an odd number, 1 for a short run."""
  return 1 if steps < 24 else steps // 12 | 1


def smooth(values: np.ndarray, window: int) -> np.ndarray:
  """The centred mean over `window` steps, fewer at the ends; NaN counts for nothing."""
  known = np.isfinite(values)
  kernel = np.ones(window)
  # Full convolution and a slice: mode "same" has the kernel's length when that is the longer.
  half = slice(window // 2, window // 2 + len(values))
  total = np.convolve(np.where(known, values, 0.0), kernel)[half]
  count = np.convolve(known.astype(np.float64), kernel)[half]
  return np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)


def curves(
    panel: Curves, records: Sequence[Mapping[str, Any]], x_label: str,
    level: tuple[str, float] | None = None,
) -> Plot | None:
  """Draws metrics against the step: each step faint, the mean over a window bold.

  Args:
    panel: what to draw.
    records: the lines of one phase, as `read_metrics` returns them.
    x_label: what a step is.
    level: label and height of a horizontal line to compare with.

  Returns:
    The panel, None if no step has any of its metrics.
  """
  data = {key: values_of(records, key) for key in panel.series}
  data = {key: values for key, values in data.items() if np.isfinite(values).any()}
  if not data:
    return None
  steps = np.array([record["step"] for record in records])
  window = smoothing_window(len(steps))
  figure, axes = _figure(x_label, panel.axis)
  legend = []
  for index, (key, values) in enumerate(data.items()):
    colour = PAGE.series[index % len(PAGE.series)]
    line, dash = DASHES[index % len(DASHES)]
    smoothed = smooth(values, window)
    if window > 1:
      axes.plot(steps, values, color=colour, alpha=0.28, linewidth=0.8)
    axes.plot(steps, smoothed, color=colour, linewidth=1.7, linestyle=line,
              marker="o" if len(steps) < 24 else "", markersize=2.5)
    legend.append(_entry(panel.series[key], smoothed, index, dash))
  if level is not None:
    axes.axhline(level[1], color=PAGE.ink, linewidth=0.9, linestyle=(0, (1, 2)))
    axes.annotate(level[0], (1, level[1]), (-2, 4), xycoords=("axes fraction", "data"),
                  textcoords="offset points", color=PAGE.ink, fontsize=FONT, ha="right",
                  bbox={"facecolor": PAGE.ground, "edgecolor": "none", "pad": 1})
  _limits(axes, panel, data, 0.0 if level is None else level[1])
  svg = inline_svg(figure, panel.identifier, panel.title)
  return Plot(panel.title, panel.note, tuple(legend), svg)


def stacked_seconds(
    identifier: str, title: str, records: Sequence[Mapping[str, Any]], series: Mapping[str, str],
    x_label: str,
) -> Plot | None:
  """Draws how long the parts of a step took, one on the other.

  Args:
    identifier: unique on the page.
    title: heading of the panel.
    records: the lines of one phase.
    series: label by metric key, from the bottom up; a key that no step has is left out.
    x_label: what a step is.

  Returns:
    The panel, None if no step has any of the metrics.
  """
  data = {key: values_of(records, key) for key in series}
  data = {key: values for key, values in data.items() if np.isfinite(values).any()}
  if not data:
    return None
  steps = np.array([record["step"] for record in records])
  figure, axes = _figure(x_label, "seconds")
  layers = np.nan_to_num(np.stack(list(data.values())))
  # Each step is a column of its own width, so a run of one step shows too.
  edges = np.append(steps - 0.5, steps[-1] + 0.5)
  base = np.zeros(len(steps))
  legend = []
  for index, (key, layer) in enumerate(zip(data, layers, strict=True)):
    axes.stairs(base + layer, edges, baseline=base, fill=True, color=PAGE.series[index], alpha=0.85,
                linewidth=0)
    base = base + layer
    colour = f"--series-{index}"
    legend.append(LegendEntry(f"{series[key]} {np.median(layer):.2f} s", colour, ""))
  ceiling = 1.25 * float(np.percentile(base, 95, method="lower"))
  tall = base > 2 * ceiling
  note = "The legend has the medians."
  if ceiling > 0 and tall.any():
    # One iteration that compiles would flatten all the others.
    axes.set_ylim(0, ceiling)
    count = int(tall.sum())
    note += f" The axis is cut: {count} {x_label}{'s' * (count > 1)} took up to {base.max():.0f} s."
  else:
    axes.set_ylim(bottom=0)
  axes.set_xlim(edges[0], edges[-1])
  return Plot(title, note, tuple(legend), inline_svg(figure, identifier, title))


def _figure(x_label: str, y_label: str) -> tuple[Figure, Axes]:
  figure = new_figure(_WIDTH, _HEIGHT, PAGE)
  axes = figure.add_subplot()
  style_axes(axes, PAGE, x_label, y_label)
  axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
  axes.grid(True, axis="y", color=PAGE.grid, linewidth=0.7)
  axes.margins(x=0.02)
  return figure, axes


def _limits(axes: Axes, panel: Curves, data: Mapping[str, np.ndarray], level: float) -> None:
  highest = max(level, *(values[np.isfinite(values)].max() for values in data.values()))
  if panel.log and highest > 0:
    # A value of 0, as a KL before the first update, is not drawn.
    axes.set_yscale("log", nonpositive="mask")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if high < 1e4 * low else (1.0,)))
    # matplotlib's own labels are formulas in its own font.
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)
  elif panel.share:
    axes.set_ylim(-0.02, max(1.0, highest) + 0.03)
  elif panel.from_zero:
    # Room above for the label of the level.
    axes.set_ylim(0, 1.12 * highest if highest > 0 else 1.0)


def _entry(label: str, values: np.ndarray, index: int, dash: str) -> LegendEntry:
  """The series with its first and last value as drawn."""
  ends = values[np.isfinite(values)][[0, -1]]
  first, last = (f"{0.0 + end:.3g}".replace("-", "−") for end in ends)
  span = last if len(values) == 1 else f"{first} → {last}"
  return LegendEntry(f"{label} {span}", f"--series-{index % len(PAGE.series)}", dash)
