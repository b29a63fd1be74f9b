"""What a person sees of an evaluation while it goes on: how far it is, and how right so far."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from conductor_jax.evaluation.item import Item
from conductor_jax.evaluation.metrics import Question
from conductor_jax.evaluation.statistics import bootstrap
from conductor_jax.reporting.evaluation_table import Table, plus_minus
from conductor_jax.reporting.progress import Terminal

# For one look at an accuracy.
_RESAMPLES = 400
# Where there is no terminal: lines, and strategies that these have room for.
_LINES, _NAMED = 10, 4


class _Score:
  """How a strategy does so far."""

  def __init__(self):
    self.done = self.rejected = 0
    self._sums: dict[Question, tuple[int, int]] = {}

  def add(self, item: Item) -> None:
    self.done += 1
    if item.right is None:
      self.rejected += 1
      return
    question = item.key.benchmark, item.key.task
    right, answers = self._sums.get(question, (0, 0))
    self._sums[question] = right + item.right, answers + 1

  def __call__(self) -> str:
    """Such as `94.2% ± 2.1`, over the questions so far."""
    scores = np.array([right / answers for right, answers in list(self._sums.values())])
    (accuracy,), _ = bootstrap(
        scores[:, None], generator=np.random.default_rng(0), resamples=_RESAMPLES)
    text = "no verdict" if accuracy is None else plus_minus(
        accuracy.value, (accuracy.low, accuracy.high), unit="%")
    return text + (f" ({self.rejected} rejected)" if self.rejected else "")


class _Called(ProgressColumn):
  """A bar's own text, made anew once a second."""

  max_refresh = 1.0

  def __init__(self):
    super().__init__(Column(no_wrap=True, overflow="ellipsis"))

  def render(self, task: Any) -> Text:
    return Text(task.fields["text"]())


def text_lines(table: Table) -> list[str]:
  """A table as lines of text."""
  rows = [table.headings, *table.rows]
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return ["  ".join([row[0].ljust(widths[0]), *(
      cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
      for row in rows]


class Scoreboard:
  """The progress of an evaluation; a context manager. Without a terminal it prints plain lines."""

  def __init__(
      self, terminal: Terminal, totals: Mapping[str, int], before: Iterable[Item],
      live: Callable[[], str]):
    """Args:
      terminal: where to print.
      totals: how many items each strategy has, by name.
      before: those that earlier sessions have finished.
      live: what the workers are doing, a text that is asked for again and again.
    """
    self._terminal, self._live = terminal, live
    self._total = sum(totals.values())
    self._scores = {name: _Score() for name in totals}
    self._progress = Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(), _Called(), console=terminal.console, transient=True,
        disable=not terminal.console.is_terminal)
    self._bars = {name: self._progress.add_task(name, total=total, text=self._scores[name])
                  for name, total in totals.items()}
    self._all = self._progress.add_task("all", total=self._total, text=live)
    self._count(before)

  def add(self, items: Iterable[Item]) -> None:
    """Counts items that have ended."""
    lines = self._lines
    self._count(items)
    if self._lines > lines and not self._terminal.console.is_terminal:
      scores = [f"{name} {score()}" for name, score in list(self._scores.items())[:_NAMED]]
      self._terminal.print("  ".join([f"  {self._done}/{self._total}", *scores, self._live()]))

  @property
  def _done(self) -> int:
    return sum(score.done for score in self._scores.values())

  @property
  def _lines(self) -> int:
    return self._done * _LINES // self._total if self._total else 0

  def _count(self, items: Iterable[Item]) -> None:
    for item in items:
      self._scores[item.key.strategy].add(item)
    for name, bar in self._bars.items():
      self._progress.update(bar, completed=self._scores[name].done)
    self._progress.update(self._all, completed=self._done)

  def __enter__(self) -> "Scoreboard":
    self._progress.start()
    return self

  def __exit__(self, *exception) -> None:
    self._progress.stop()
