"""The files that hold the results of an evaluation."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conductor_jax.reporting.evaluation_markdown import markdown
from conductor_jax.reporting.evaluation_page import evaluation_page
from conductor_jax.reporting.evaluation_plots import accuracy_by_cost, worker_use
from conductor_jax.reporting.evaluation_table import strategy_labels
from conductor_jax.reporting.figure import PAPER, write_figure
from conductor_jax.reporting.metrics import atomic_file


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
    write_figure(workdir / plot, figure)
  return workdir / "results.html"


def _write(path: Path, content: bytes) -> None:
  with atomic_file(path) as file:
    file.write(content)
