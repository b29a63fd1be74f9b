"""Which tasks an evaluation asks: those of benchmarks that no strategy has been fitted to."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from conductor_jax.arena.world import KINDS, stable_hash
from conductor_jax.errors import UserError
from conductor_jax.tasks.configured import configured_table, configured_tasks
from conductor_jax.tasks.splits import without
from conductor_jax.tasks.task import Task
from experiments.components import load_splits
from experiments.trained import read_run_config


class EvaluationTasks(NamedTuple):
  """The tasks to ask, those that strategies may be fitted to, and what to know, in sentences."""

  tasks: list[Task]
  training: list[Task]
  notes: tuple[str, ...]


def benchmark_names(config: ConfigDict, asked: Sequence[str]) -> list[str]:
  """The benchmarks that are meant, each once; all of the config's where none is asked for.

  Raises:
    UserError: there is none of a name; says which there are.
  """
  arena = config.tasks.source == "arena"
  known = KINDS if arena else tuple(configured_table(config.tasks))
  own = known if arena else (*config.tasks.benchmarks, *config.tasks.evaluated)
  for name in asked:
    if name not in known:
      raise UserError(f"--benchmarks: there is no benchmark {name!r}: choose from "
                      f"{', '.join(known)}")
  return list(dict.fromkeys(asked or own))


def with_benchmarks(config: ConfigDict, benchmarks: Sequence[str]) -> ConfigDict:
  """The config as simulated workers need it, who know the answers to the benchmarks it names."""
  if config.tasks.source == "arena":
    return config
  wider = config.copy_and_resolve_references()
  wider.tasks.benchmarks = tuple(dict.fromkeys((*config.tasks.benchmarks, *benchmarks)))
  return wider


def evaluation_tasks(
    config: ConfigDict, benchmarks: Sequence[str], most: int, run: Path | None
) -> EvaluationTasks:
  """Loads or generates the tasks.

  What the config trains on is left out, and what the run was trained on: also where a question
  stands in another benchmark. The order depends on the seed and the questions alone, so a larger
  `most` adds to the same tasks.

  Args:
    config: the options.
    benchmarks: names, also of some that the config does not train on.
    most: tasks of each benchmark at most, 0 for all.
    run: the work directory of a training run that is evaluated, None for none.

  Raises:
    UserError: the tasks cannot be loaded, or a benchmark has none left.
  """
  splits = load_splits(config)
  notes, fitted = list(splits.notes), splits.train
  if run is not None:
    trained = read_run_config(run, "run")
    if _splits_key(trained) != _splits_key(config):
      fitted = [*fitted, *load_splits(trained).train]
  tasks = (splits.heldout if config.tasks.source == "arena"
           else configured_tasks(config.tasks, benchmarks, say=notes.append))
  kept = sorted(without(tasks, fitted), key=lambda task: stable_hash(config.seed, task.question))
  chosen = []
  for name in benchmarks:
    own = [task for task in kept if task.kind == name]
    asked = sum(task.kind == name for task in tasks)
    if not own:
      raise UserError(f"--benchmarks: {name} has no task that is not trained on, of {asked}: lower "
                      "--config.tasks.train, or leave it out")
    if len(own) < asked:
      notes.append(f"{name}: {asked - len(own)} of {asked} questions are not asked, for they are "
                   "trained on")
    chosen += own[:most or None]
  return EvaluationTasks(chosen, splits.train, tuple(notes))


def _splits_key(config: ConfigDict) -> tuple[str, int, int]:
  """What the training tasks follow from."""
  return config.tasks.to_json_best_effort(), config.seed, config.evaluation.tasks
