"""What a person sees in the terminal while a run goes on, and the comparison at its end."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from conductor_jax.workers.client import Activity

# (metric, label, format) in the order printed; a metric that a step doesn't have is left out.
_ITERATION_FIELDS = (
    ("loss", "loss", "{:.4f}"),
    ("reward", "reward", "{:.2f}"),
    ("accuracy", "accuracy", "{:.2f}"),
    ("round2/accuracy", "round 2", "{:.2f}"),
    ("parse_rate", "parse", "{:.2f}"),
    ("steps_per_plan", "steps", "{:.2f}"),
    ("worker_entropy_bits", "entropy", "{:.2f} bits"),
    ("rejected", "rejected", "{:.1%}"),
    ("skipped", "update", "skipped"),
    ("dropped_groups", "too late", "{:.0f} groups"),
    ("seconds_sampling", "sample", "{:.2f} s"),
    ("seconds_executing", "execute", "{:.2f} s"),
    ("seconds_waiting", "wait", "{:.2f} s"),
    ("seconds_training", "train", "{:.2f} s"),
    ("seconds", "step", "{:.2f} s"),
)
# Of `CallRates`: what rates are measured over, and how many workers have room on a line.
_RATE_SECONDS, _RATES = 10.0, 4
_NOTHING, _NOT_FINITE = "–", "not finite"

_COLUMN_ORDER = ("before_rl", "after_rl", "best_single_worker", "random_plan")
_ROWS = (
    ("accuracy", "accuracy", "{:.1%}"),
    ("parse_rate", "plans that parse", "{:.1%}"),
    ("correct_given_parsed", "correct given parsed", "{:.1%}"),
    ("steps_per_plan", "steps per plan", "{:.2f}"),
    ("worker_entropy_bits", "worker entropy, bits", "{:.2f}"),
    ("tokens_per_task", "tokens per task", "{:,.0f}"),
    ("cost_per_task", "cost per task, $", "{:.3g}"),
    ("tasks", "tasks", "{:,.0f}"),
    ("rejected", "of them without a verdict", "{:,.0f}"),
)


def _cell(value: Any, form: str) -> str:
  if value is None:
    return _NOTHING
  return form.format(value) if math.isfinite(value) else _NOT_FINITE


def _interval(ends: Sequence[float] | None) -> str:
  return f"{100 * ends[0]:.1f}–{ends[1]:.1%}" if ends else _NOTHING


def iteration_line(step: int, total: int, values: Mapping[str, Any]) -> str:
  """One line on one step, such as `  12/160  reward 0.71  accuracy 0.44`.

  Args:
    step: steps done, this one included.
    total: steps of the phase.
    values: the step's metrics.
  """
  parts = [f"  {step:{len(str(total))}d}/{total}"]
  for key, label, form in _ITERATION_FIELDS:
    if key in values and _worth_a_place(key, values):
      parts.append(f"{label} {_cell(values[key], form)}")
  return "  ".join(parts)


def _worth_a_place(key: str, values: Mapping[str, Any]) -> bool:
  if key == "loss" and "reward" in values:
    # A policy gradient's loss is near 0 by construction: only a broken one is news.
    return values["loss"] is not None and not math.isfinite(values["loss"])
  return key not in ("rejected", "skipped", "dropped_groups") or values[key] != 0


def comparison(heldout: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
  """The held-out results as text, for the terminal and the report alike.

  Args:
    heldout: what `evaluate` returned, by name.

  Returns:
    The column headings, the first one empty, and the rows: a label, then one cell per column.
    Rows in which no column has a value are left out, and the rejected tasks where there are none; a
    missing value is "–".
  """
  names = [name for name in _COLUMN_ORDER if name in heldout]
  names += [name for name in heldout if name not in names]
  accuracies = [heldout[name].get("accuracy_by_kind", {}) for name in names]
  kinds = sorted({kind for by_kind in accuracies for kind in by_kind})
  rows = []
  for key, label, form in _ROWS:
    cells = [_cell(heldout[name].get(key), form) for name in names]
    known = any(cell != _NOTHING for cell in cells)
    if known and (key != "rejected" or any(heldout[name].get(key) for name in names)):
      rows.append([label, *cells])
    if key == "accuracy":
      intervals = [heldout[name].get("accuracy_interval") for name in names]
      if any(intervals):
        rows.append(["  95% interval", *map(_interval, intervals)])
      rows += [["  " + kind, *(_cell(by_kind.get(kind), "{:.1%}") for by_kind in accuracies)]
               for kind in kinds]
      rows += _round_rows([heldout[name] for name in names])
  return ["", *(heading(name) for name in names)], rows


def _round_rows(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
  """Accuracy after each round, and how often another plan follows; none without rounds."""
  by_round = [result.get("accuracy_by_round", {}) for result in results]
  rounds = sorted({int(n) for accuracies in by_round for n in accuracies})
  if not rounds:
    return []
  rows = [[f"  after round {n}", *(_cell(each.get(str(n)), "{:.1%}") for each in by_round)]
          for n in rounds]
  return rows + [
      [f"  another plan if {first}",
       *(_cell(result.get("another_plan", {}).get(first), "{:.1%}") for result in results)]
      for first in ("right", "wrong")]


def accuracy_line(result: Mapping[str, Any]) -> str:
  """A held-out result in a few words, such as `accuracy 19.3% of 300 tasks`."""
  accuracy = _cell(result["accuracy"], "{:.1%}")
  return f"accuracy {accuracy} of {result['tasks'] - result['rejected']:,.0f} tasks"


def heading(name: str) -> str:
  """A result's name as people read it: `best_single_worker` is "best single worker"."""
  return name.replace("_", " ").replace(" rl", " RL")


class CallRates:
  """What the workers are doing, as a text that is asked for again and again.

  Args:
    activity: what a client counts.
    clock: seconds.
  """

  def __init__(self, activity: Activity, clock: Callable[[], float] = time.monotonic):
    self._activity, self._clock = activity, clock
    self._seen: deque[tuple[float, dict[str, int]]] = deque()

  def __call__(self) -> str:
    """Such as `12 in flight  $0.42  gpt-5 3.1/s`: calls, and rates of the last 10 seconds."""
    activity, now = self._activity, self._clock()
    calls = activity.calls.copy()  # another thread counts on
    self._seen.append((now, calls))
    while now - self._seen[0][0] > _RATE_SECONDS:
      self._seen.popleft()
    began, before = self._seen[0]
    rates = {name: (count - before.get(name, 0)) / max(now - began, 1.0)
             for name, count in calls.items()}
    fastest = sorted((name for name in rates if rates[name] >= 0.05), key=lambda n: -rates[n])
    # What a narrow terminal cuts off is the least important.
    parts = [f"{activity.in_flight} in flight", *[f"${activity.cost:.2f}"] * (activity.cost > 0),
             *(f"{name} {rates[name]:.1f}/s" for name in fastest[:_RATES])]
    return "  ".join(parts)


class _Live(ProgressColumn):
  """A text that is made anew whenever the terminal is."""

  max_refresh = 0.5

  def __init__(self, text: Callable[[], str]):
    super().__init__()
    self._text = text

  def render(self, task: Any) -> Text:
    del task
    return Text(self._text())


class Terminal:
  """Prints a run. Without a terminal it writes plain lines: no bar and no control codes.

  Attributes:
    console: where it prints.
  """

  def __init__(self, console: Console | None = None):
    """Chooses where to print.

    Args:
      console: standard output by default.
    """
    self.console = Console(highlight=False) if console is None else console

  def print(self, line: str) -> None:
    """Prints one line as it is, above the bar if there is one."""
    # No wrapping: a pipe is taken to be 80 columns wide, and a log is read by line.
    self.console.print(line, markup=False, highlight=False, soft_wrap=True)

  @contextmanager
  def waiting(self, name: str, live: Callable[[], str]) -> Iterator[None]:
    """Shows what is being done, where there is a terminal, while the block does it.

    Args:
      name: of it.
      live: says how it goes.
    """
    progress = Progress(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), _Live(live),
        console=self.console, transient=True, disable=not self.console.is_terminal)
    progress.add_task(name, total=None)
    with progress:
      yield

  @contextmanager
  def phase(
      self, name: str, *, start: int, total: int, every: int = 1,
      live: Callable[[], str] = lambda: "") -> Iterator["Phase"]:
    """Shows the progress of one phase while the block runs.

    Args:
      name: what stands beside the bar.
      start: steps done before, by the run that this one resumes.
      total: steps of the whole phase.
      every: a line is printed for every so many steps, and for the last.
      live: what stands behind the bar, made anew all the time.
    """
    progress = Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(), _Live(live), console=self.console, transient=True,
        disable=not self.console.is_terminal)
    bar = progress.add_task(name, total=total, completed=start)
    with progress:
      yield Phase(self, progress, bar, total, every)

  def results(self, heldout: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints the comparison of the held-out results."""
    headings, rows = comparison(heldout)
    self.console.print(_table(headings, rows))


class Phase:
  """A running phase; `Terminal.phase` makes it."""

  def __init__(self, terminal: Terminal, progress: Progress, bar: Any, total: int, every: int):
    self._terminal = terminal
    self._progress = progress
    self._bar = bar
    self._total = total
    self._every = every

  def advance(self, step: int, values: Mapping[str, Any]) -> None:
    """Moves the bar and prints the line of a step that has ended.

    Args:
      step: the step within the phase, counted from 0.
      values: its metrics.
    """
    done = step + 1
    self._progress.update(self._bar, completed=done)
    if done % self._every == 0 or done == self._total:
      self._terminal.print(iteration_line(done, self._total, values))


def _table(headings: list[str], rows: Iterable[list[str]]) -> Table:
  table = Table(box=box.SIMPLE_HEAD, title="Held-out tasks", title_justify="left")
  table.add_column(headings[0], no_wrap=True)
  for title in headings[1:]:
    table.add_column(title, justify="right", min_width=max(len(word) for word in title.split()))
  for label, *cells in rows:
    table.add_row(label, *cells, style="bold" if label == "accuracy" else None)
  return table
