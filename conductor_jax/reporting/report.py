"""report.html: one page on a run that needs nothing beside it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from conductor_jax.reporting.metrics import atomic_file
from conductor_jax.reporting.page import page, section, table
from conductor_jax.reporting.plots import Plot, smoothing_window
from conductor_jax.reporting.progress import comparison, heading
from conductor_jax.reporting.rollout_samples import rollout_samples
from conductor_jax.reporting.spending import spending_table
from conductor_jax.reporting.training_curves import (
    training_plots,
    warm_start_plots,
    worker_names,
)


def write_report(
    workdir: str | Path, summary: Mapping[str, Any], config_text: str,
    metrics: Sequence[Mapping[str, Any]], rollouts: Sequence[Mapping[str, Any]],
) -> Path:
  """Writes report.html. What has no data is left out.

  Args:
    workdir: the work directory.
    summary: what summary.json holds: "seconds", "iterations", "peak_memory_gib", "heldout",
      "spending" and "warnings".
    config_text: the configuration as shown at the end.
    metrics: the lines of metrics.jsonl.
    rollouts: rows of the last iteration, as in the rollout log.

  Returns:
    The file's path.
  """
  workdir = Path(workdir)
  heldout = summary.get("heldout") or {}
  training = [record for record in metrics if record["phase"] == "grpo"]
  warm_start = [record for record in metrics if record["phase"] == "sft"]
  sections = [
      _headline(heldout),
      _facts(summary, heldout),
      section("Warnings", _warnings(summary.get("warnings") or ())),
      section("Held-out tasks", _comparison_table(heldout) if heldout else ""),
      section("Learning curves", _panels(training_plots(training), len(training), "iteration")),
      section("Which worker is called", _worker_table(training)),
      section("What the workers were paid", spending_table(summary.get("spending") or {})),
      section("Warm start", _panels(warm_start_plots(warm_start), len(warm_start), "step")),
      section("Sample rollouts of the last iteration",
              rollout_samples(rollouts, worker_names(training))),
      section("Configuration", f"<pre>{escape(config_text)}</pre>" if config_text else ""),
  ]
  path = workdir / "report.html"
  with atomic_file(path) as file:
    text = page(workdir.resolve().name, "training report", sections)
    # A completion may hold half of a surrogate pair, which UTF-8 cannot.
    file.write(text.encode("utf-8", "backslashreplace"))
  return path


def _headline(heldout: Mapping[str, Mapping[str, Any]]) -> str:
  """Accuracy before and after, and a sentence that compares it with the best single worker."""
  accuracy = {name: result["accuracy"] for name, result in heldout.items()
              if _known(result.get("accuracy"))}
  if "after_rl" not in accuracy:
    return ""
  after = accuracy["after_rl"]
  numbers = f"<strong>{after:.1%}</strong>"
  if "before_rl" in accuracy:
    numbers = f"{accuracy['before_rl']:.1%} → {numbers}"
  sentences = []
  if "best_single_worker" in accuracy:
    best = accuracy["best_single_worker"]
    points = 100 * (after - best)
    place = ("level with" if abs(points) < 0.05
             else f"{abs(points):.1f} points {'above' if points > 0 else 'below'}")
    sentences.append(f"After training: {place} the best single worker ({best:.1%}).")
  # The accuracy is over the tasks with a verdict.
  tasks = heldout["after_rl"]["tasks"] - heldout["after_rl"]["rejected"]
  low, high = heldout["after_rl"]["accuracy_interval"]
  sentences.append(f"{tasks:,.0f} tasks; the 95% interval is {low:.1%} to {high:.1%}.")
  return (f'<p class="headline">{numbers}<span>held-out accuracy</span></p>'
          f'<p class="lead">{" ".join(sentences)}</p>')


def _facts(summary: Mapping[str, Any], heldout: Mapping[str, Any]) -> str:
  facts = []
  for name in ("best_single_worker", "random_plan"):
    if _known(heldout.get(name, {}).get("accuracy")):
      facts.append((heading(name), f"{heldout[name]['accuracy']:.1%}"))
  for key, label, form in (("iterations", "iterations", "{:,.0f}"), ("seconds", "time", None),
                           ("peak_memory_gib", "peak memory", "{:.1f} GiB")):
    if _known(summary.get(key)):
      facts.append((label, form.format(summary[key]) if form else _duration(summary[key])))
  return '<dl class="facts">' + "".join(
      f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>" for label, value in facts
  ) + "</dl>" if facts else ""


def _warnings(warnings: Sequence[Mapping[str, Any]]) -> str:
  items = "".join(f"<li>After iteration {each['iteration']}: {escape(each['warning'])}</li>"
                  for each in warnings)
  return f'<ul class="warnings">{items}</ul>' if items else ""


def _duration(seconds: float) -> str:
  if seconds < 120:
    return f"{seconds:.0f} s"
  minutes = round(seconds / 60)
  return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _comparison_table(heldout: Mapping[str, Mapping[str, Any]]) -> str:
  headings, rows = comparison(heldout)
  body = []
  for label, *cells in rows:
    # The row that counts stands out, those that break it down are indented.
    kind = ' class="kind"' if label.startswith(" ") else ""
    kind = ' class="main"' if label == "accuracy" else kind
    body.append([f"<th scope=row{kind}>{escape(label.strip())}</th>",
                 *(f"<td{kind}>{escape(cell)}</td>" for cell in cells)])
  return table(headings, body)


def _panels(plots: Iterable[Plot | None], steps: int, x_label: str) -> str:
  figures = []
  for plot in plots:
    if plot is None:
      continue
    legend = "".join(
        f'<li><svg viewBox="0 0 26 8" aria-hidden="true"><path d="M0 4H26" stroke-width="3" '
        f'stroke="var({entry.colour})" stroke-dasharray="{entry.dash}"/></svg>'
        f"{escape(entry.label)}</li>" for entry in plot.legend)
    figures.append(f"<figure><figcaption><h3>{escape(plot.title)}</h3><ul>{legend}</ul>"
                   f"</figcaption>{plot.svg}<p>{escape(plot.note)}</p></figure>")
  window = smoothing_window(steps)
  legend = f"Faint: each {x_label}. Bold: mean over {window} {x_label}s. " if window > 1 else ""
  return (f"<p>{legend}Beside each name: first → last value of its line.</p>"
          f'<div class="panels">{"".join(figures)}</div>') if figures else ""


def _worker_table(records: Sequence[Mapping[str, Any]]) -> str:
  """Worker use by kind of task, averaged over the last iterations, as a heatmap."""
  last = records[-max(1, smoothing_window(len(records))):]
  shares: dict[str, dict[str, list[float]]] = {}
  for record in last:
    for key, value in record.items():
      if key.startswith("share/") and _known(value):
        _, kind, worker = key.split("/", 2)
        shares.setdefault(kind, {}).setdefault(worker, []).append(value)
  if not shares:
    return ""
  workers = worker_names(records)
  rows = []
  for kind in sorted(shares):
    cells = [f"<th scope=row>{escape(kind)}</th>"]
    for worker in workers:
      values = shares[kind].get(worker, [0.0])
      share = sum(values) / len(values)
      # At most 55% of the colour, so that the figure on it stays readable.
      cells.append(f'<td class="heat" style="--share:{55 * share:.1f}%">{share:.0%}</td>')
    rows.append(cells)
  span = "the last iteration" if len(last) == 1 else f"the last {len(last)} iterations"
  return f"<p>Share of the calls of each kind of task, mean over {span}.</p>" + table(
      ["", *workers], rows)


def _known(value: Any) -> bool:
  return value is not None and math.isfinite(value)
