"""Trains and measures the arms of an ablation over seeds, and writes a table and a plot of it.

A work directory of a grid:

    ARM/seed-N/                the run, as experiments/train.py leaves it
    ARM/seed-N/MEASUREMENT/    an evaluation of its policy, as experiments/evaluate.py leaves it
    table.md, results.json     all results so far
    plot.svg, plot.png

A run that ended has its summary, a measurement that ended its `cell.json`: neither is done again,
and what was stopped in between goes on from where its own files say.
"""

import gc
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
from absl import flags
from ml_collections import ConfigDict

from conductor_jax.errors import UserError
from conductor_jax.evaluation.item_file import read_items
from conductor_jax.reporting.ablation_files import write_ablation
from conductor_jax.reporting.ablation_results import Cell, ablation_results, measured
from conductor_jax.reporting.ablation_table import tables
from conductor_jax.reporting.metrics import atomic_file
from conductor_jax.reporting.progress import Terminal
from conductor_jax.reporting.scoreboard import text_lines
from conductor_jax.training.loop import Interrupted
from experiments.ablations.ablation import (
    Ablation,
    Arm,
    MakeAblation,
    Measurement,
    check_arms,
    policy_folder,
    run_folder,
    training_config,
    with_changes,
)
from experiments.components import worker_names
from experiments.evaluate import evaluate
from experiments.evaluation_tasks import benchmark_names
from experiments.export import export
from experiments.program import main
from experiments.train import train
from experiments.workdir import StopSignals, check_claim

# A part of a grid; ends early, by an exception, if it is told to.
_Work = Callable[[StopSignals], None]


def run_grid(
    ablation: Ablation, config: ConfigDict, workdir: Path, *, seeds: Sequence[int],
    repeats: int = 1, arms: Sequence[str] = ()
) -> None:
  """Does what is missing of a grid, seed by seed; the results so far are on disk after every part.

  Args:
    ablation: what is compared.
    config: the options that all arms share.
    workdir: of the grid.
    seeds: one run of each arm for each.
    repeats: answers to each held-out task in every measurement.
    arms: names of those to train; all by default. The results are of all that there are.

  Raises:
    UserError: an option cannot work, or the work directory holds another grid.
    OutOfBudget: a budget is spent.
    Interrupted: it was asked to stop.
  """
  grid = _Grid(ablation, config, workdir, repeats)
  chosen = ablation.chosen(arms)
  check_arms(ablation, config)
  grid.check_claims(seeds)
  terminal, stop = Terminal(), StopSignals()
  parts = [(seed, arm) for seed in seeds for arm in chosen]
  for number, (seed, arm) in enumerate(parts, start=1):
    for name, work in grid.missing(arm, seed):
      terminal.print(f"[{number}/{len(parts)}] {arm.name}, seed {seed}: {name}")
      work(stop)
      _free_memory()
      if stop():
        raise Interrupted(f"stopped after {arm.name}, seed {seed}: {name}")
  table, lines = grid.conclude()
  for line in (*lines, f"the results: {table}"):
    terminal.print(line)


def _free_memory() -> None:
  """Frees what a run has left: its arrays, and programs that were compiled for it alone."""
  jax.clear_caches()
  gc.collect()


class _Grid:
  """Where everything lies in the work directory, and what is to be done for it."""

  def __init__(self, ablation: Ablation, config: ConfigDict, workdir: Path, repeats: int):
    self._ablation, self._config, self._workdir = ablation, config, workdir
    self._repeats = repeats

  def check_claims(self, seeds: Sequence[int]) -> None:
    """Looks whether all that the work directory holds is of this grid. Touches nothing.

    Raises:
      UserError: a run or a measurement is of other options; names one that differs.
    """
    for arm in self._ablation.arms:
      for seed in sorted({*seeds, *self._seeds(arm)}):
        own = training_config(self._config, arm, seed, self._workdir)
        check_claim(run_folder(self._workdir, arm.name, seed), own)
        for measurement in self._ablation.measurements:
          check_claim(self._cell(arm, seed, measurement), with_changes(own, measurement.changes))

  def missing(self, arm: Arm, seed: int) -> list[tuple[str, _Work]]:
    """What is still to be done for an arm and a seed, in order: its name, and the work."""
    folder = run_folder(self._workdir, arm.name, seed)
    own = training_config(self._config, arm, seed, self._workdir)
    found = []
    if not (folder / "summary.json").exists():
      found.append(("training", lambda stop: self._train(arm, seed, own, stop)))
    for measurement in self._ablation.measurements:
      cell = self._read(arm, seed, measurement)
      if cell is None or cell["repeats"] < self._repeats:
        found.append((measurement.name, lambda stop, measurement=measurement: self._measure(
            arm, seed, measurement, own, stop)))
    return found

  def conclude(self) -> tuple[Path, list[str]]:
    """Writes the results of all there is; returns the table's path, and its lines."""
    cells, wanted = [], 0
    for arm in self._ablation.arms:
      for seed in self._seeds(arm):
        for measurement in self._ablation.measurements:
          found = self._read(arm, seed, measurement)
          wanted += 1
          if found is not None:
            cells.append(Cell(arm.name, measurement.name, seed, found["numbers"]))
    results = ablation_results(
        cells, title=self._ablation.title, arms=[arm.name for arm in self._ablation.arms],
        measurements=[measurement.name for measurement in self._ablation.measurements])
    notes = [f"{len(cells)} of {wanted} measurements are there."] * (len(cells) < wanted)
    rejected = sum(cell.numbers["rejected"] for cell in cells)
    if rejected:
      notes.append(f"{rejected:.0f} answers have no verdict and count for nothing.")
    lines = [line for title, table in tables(results).items() for line in (
        "", title, *text_lines(table))]
    return write_ablation(self._workdir, results, notes=notes), [*lines, *notes]

  def _train(self, arm: Arm, seed: int, config: ConfigDict, stop: StopSignals) -> None:
    """Trains an arm; before, writes the policy that it goes on from where there is none yet."""
    if arm.after is not None:
      policy = policy_folder(self._workdir, arm.after, seed)
      if not policy.exists():
        export(run_folder(self._workdir, arm.after, seed), policy, merge=True, dtype="float32")
    train(config, run_folder(self._workdir, arm.name, seed), stop)

  def _measure(
      self, arm: Arm, seed: int, measurement: Measurement, config: ConfigDict, stop: StopSignals
  ) -> None:
    """Evaluates the policy of a run, and notes the numbers."""
    own, folder = with_changes(config, measurement.changes), self._cell(arm, seed, measurement)
    evaluate(own, folder, strategies=[measurement.strategy], repeats=self._repeats,
             run=run_folder(self._workdir, arm.name, seed), stop=stop)
    items, _ = read_items(folder / "items.jsonl")
    numbers = measured(list(items.values()), kinds=benchmark_names(own, ()),
                       workers=len(worker_names(own)))
    with atomic_file(folder / "cell.json") as file:
      file.write(json.dumps({"repeats": self._repeats, "numbers": numbers}, indent=2).encode())
    self.conclude()

  def _cell(self, arm: Arm, seed: int, measurement: Measurement) -> Path:
    return run_folder(self._workdir, arm.name, seed) / measurement.name

  def _seeds(self, arm: Arm) -> list[int]:
    """The seeds that the work directory has a run of."""
    folders = (self._workdir / arm.name).glob("seed-*")
    return sorted(int(folder.name.removeprefix("seed-")) for folder in folders
                  if folder.name.removeprefix("seed-").isdecimal())

  def _read(self, arm: Arm, seed: int, measurement: Measurement) -> Mapping | None:
    """What a measurement has noted; None where it has not ended."""
    path = self._cell(arm, seed, measurement) / "cell.json"
    try:
      return json.loads(path.read_text())
    except FileNotFoundError:
      return None
    except ValueError as fault:
      raise UserError(f"{path} is not JSON ({fault}): remove it to measure again") from fault


def run(make: MakeAblation) -> None:
  """Runs a program on the grid of its ablation.

  Args:
    make: the ablation of the config, called when the flags are read.
  """
  seeds = flags.DEFINE_list("seeds", ["0", "1", "2", "3", "4"], "Seeds, separated by commas.")
  repeats = flags.DEFINE_integer(
      "repeats", 1, "Answers to each held-out task in a measurement.", lower_bound=1)
  arms = flags.DEFINE_list("arms", [], "Which arms to train, separated by commas; all by default.")
  main(lambda config, workdir: run_grid(
      make(config), config, workdir, seeds=_numbers(seeds.value), repeats=repeats.value,
      arms=arms.value))


def _numbers(seeds: Sequence[str]) -> list[int]:
  """The seeds of the command line, each once.

  Raises:
    UserError: one is no whole number from 0 on, or there is none.
  """
  if not seeds or not all(seed.isdecimal() for seed in seeds):
    raise UserError(f"--seeds={','.join(seeds)}: must be whole numbers from 0 on, such as 0,1,2")
  return list(dict.fromkeys(map(int, seeds)))
