"""The files that hold the results of an ablation."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conductor_jax.reporting.ablation_plot import ablation_plot
from conductor_jax.reporting.ablation_table import ablation_markdown
from conductor_jax.reporting.figure import PAPER, write_figure
from conductor_jax.reporting.metrics import atomic_file


def write_ablation(workdir: Path, results: Mapping[str, Any], *, notes: Sequence[str]) -> Path:
  """Writes results.json, table.md, plot.svg and plot.png.

  Args:
    workdir: the work directory.
    results: see `ablation_results`.
    notes: what a reader must know beside the numbers, in sentences.

  Returns:
    The table's path.
  """
  for file, text in (
      ("results.json", json.dumps(
          {**results, "notes": list(notes)}, indent=2, allow_nan=False) + "\n"),
      ("table.md", ablation_markdown(results, notes))):
    with atomic_file(workdir / file) as opened:
      opened.write(text.encode())
  write_figure(workdir / "plot", ablation_plot(results, PAPER))
  return workdir / "table.md"
