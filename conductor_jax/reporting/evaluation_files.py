"""The files that hold the results of an evaluation."""

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from conductor_jax.reporting.evaluation_markdown import markdown
from conductor_jax.reporting.evaluation_page import evaluation_page
from conductor_jax.reporting.evaluation_plots import accuracy_by_cost, worker_use
from conductor_jax.reporting.evaluation_table import strategy_labels
from conductor_jax.reporting.figure import PAPER, svg_document
from conductor_jax.reporting.metrics import atomic_file

_DOTS_PER_INCH = 160


def write_results(
    workdir: Path, results: Mapping[str, Any], *, notes: Sequence[str], config_text: str) -> Path:
  """Writes results.json, results.md, results.html, and each plot as SVG and PNG.

  A plot that has nothing to show is not there.

  Args:
    workdir: the work directory.
    results: of the evaluation; JSON types.
    notes: what a reader must know beside the numbers, in sentences.
    config_text: the configuration, for the page.

  Returns:
    The page's path.
  """
  name, labels = workdir.resolve().name, strategy_labels(results)
  page = evaluation_page(results, name=name, notes=notes, config_text=config_text)
  for file, text in (
      ("results.json", json.dumps(
          {**results, "notes": list(notes)}, indent=2, allow_nan=False) + "\n"),
      ("results.md", markdown(results, name=name, notes=notes)), ("results.html", page)):
    _write(workdir / file, text.encode("utf-8", "backslashreplace"))
  for plot, figure in (
      ("accuracy_by_cost", accuracy_by_cost(results["mean"]["strategies"], labels, PAPER)),
      ("worker_use", worker_use(results, labels, PAPER))):
    _write_figure(workdir / plot, figure)
  return workdir / "results.html"


def _write(path: Path, content: bytes) -> None:
  with atomic_file(path) as file:
    file.write(content)


def _write_figure(path: Path, figure: Figure | None) -> None:
  """Writes a figure in both formats; takes away that of an earlier session where there is none."""
  svg, png = path.with_suffix(".svg"), path.with_suffix(".png")
  if figure is None:
    svg.unlink(missing_ok=True)
    png.unlink(missing_ok=True)
    return
  _write(svg, svg_document(figure, path.name).encode())
  picture = BytesIO()
  figure.savefig(picture, format="png", dpi=_DOTS_PER_INCH)
  _write(png, picture.getvalue())
