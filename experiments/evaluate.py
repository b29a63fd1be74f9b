"""Measures strategies on benchmarks: their accuracy, what they cost, and how sure that is.

    python -m experiments.evaluate --config=configs/quickstart.py --run=runs/quickstart \\
        --workdir=runs/quickstart-evaluation --repeats=3 \\
        --strategies=conductor,best_single_worker,random_plan,all_workers

`--strategies` are those of `experiments/strategies.py` and names of workers. The conductor is the
policy of the training run that `--run` names, or else that of `--config.model.weights`.
`--benchmarks` are the config's unless told otherwise, without the questions that it trains on.

Every answer is in `items.jsonl` as soon as it is there. Run again on the same work directory, it
asks what is missing or has no verdict: other strategies, benchmarks and repeats add to what there
is. `results.html`, `results.md` and `results.json` hold the results.

Time: half a minute on 2 CPU cores for the 9,000 answers of the command above.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict

from conductor_jax.errors import OutOfBudget, UserError
from conductor_jax.evaluation.evaluate import Assignment, answers, assignments, unfinished
from conductor_jax.evaluation.item import Item, Key
from conductor_jax.evaluation.item_file import ItemFile
from conductor_jax.evaluation.results import evaluation_results
from conductor_jax.reporting.evaluation_files import write_results
from conductor_jax.reporting.evaluation_table import accuracy_table
from conductor_jax.reporting.progress import CallRates, Terminal
from conductor_jax.reporting.scoreboard import Scoreboard, text_lines
from conductor_jax.training.loop import Interrupted
from experiments.components import Workers, make_graders, open_workers, worker_names
from experiments.evaluation_tasks import benchmark_names, evaluation_tasks, with_benchmarks
from experiments.program import main
from experiments.spending import told_what_was_spent
from experiments.strategies import Setting, check_policy, make_strategy, strategy_names
from experiments.workdir import StopSignals, check_claim, claim


def evaluate(
    config: ConfigDict, workdir: Path, *, strategies: Sequence[str],
    benchmarks: Sequence[str] = (), repeats: int = 1, most: int = 0, run: Path | None = None,
    stop: StopSignals | None = None
) -> None:
  """One session: asks for what is missing, and writes the results of all there is.

  Args:
    config: the options.
    workdir: where the answers are kept; made if it is not there.
    strategies: their names.
    benchmarks: names; the config's by default.
    repeats: answers to each task.
    most: tasks of each benchmark at most, 0 for all.
    run: the work directory of the conductor's training run.
    stop: whether to end early; it listens for signals by itself where there is none.

  Raises:
    UserError: a name, a file or a worker is not as it must be, or no answer has a verdict.
    OutOfBudget: a budget is spent; the results of what there is are written.
    Interrupted: it was asked to stop.
  """
  terminal, stop = Terminal(), stop or StopSignals()
  # Names are settled before anything is loaded or started.
  check_claim(workdir, config)
  names = strategy_names(strategies, worker_names(config))
  check_policy(names, config, run)
  benchmarks = benchmark_names(config, benchmarks)
  asked = evaluation_tasks(config, benchmarks, most, run)
  for note in asked.notes:
    terminal.print(f"tasks: {note}")
  with contextlib.ExitStack() as stack:
    workers = stack.enter_context(
        open_workers(with_benchmarks(config, benchmarks), workdir, say=terminal.print))
    graders = stack.enter_context(contextlib.closing(make_graders(config)))
    claim(workdir, config)
    file = stack.enter_context(ItemFile(workdir / "items.jsonl", say=terminal.print))
    setting = Setting(
        config, workdir, terminal, stop, stack, workers, graders, asked.training, asked.tasks, run,
        {key.strategy: item.variant for key, item in file.items.items()})
    with told_what_was_spent(workers.client):
      work = assignments(
          [make_strategy(name, setting) for name in names], asked.tasks, repeats)
      waiting = unfinished(work, file.items)
      terminal.print(f"{workdir}: {len(work)} answers of {len(names)} strategies to "
                     f"{len(asked.tasks)} tasks, {len(waiting)} of them to be asked for")
      conclude = partial(_conclude, config, workdir, terminal, workers, file.items, work)
      try:
        _ask(waiting, work, file, workers, config, terminal, stop)
      except OutOfBudget:
        conclude()
        raise
      conclude()
    _refuse_without_answers(waiting, work, file.items)


def _ask(
    waiting: Sequence[Assignment], work: Sequence[Assignment], file: ItemFile, workers: Workers,
    config: ConfigDict, terminal: Terminal, stop: StopSignals
) -> None:
  """Has those that wait answered; an answer is in the file before it is shown."""
  asked = {each.key for each in waiting}
  with Scoreboard(
      terminal, Counter(each.key.strategy for each in work),
      [file.items[each.key] for each in work if each.key not in asked],
      CallRates(workers.client.activity)) as board:
    for records in answers(waiting, workers.portal, seed=config.seed,
                           concurrent=config.evaluation.concurrent, stop=stop):
      board.add(file.append(records))


def _conclude(
    config: ConfigDict, workdir: Path, terminal: Terminal, workers: Workers,
    items: Mapping[Key, Item], work: Sequence[Assignment]
) -> None:
  """Writes the results of all sessions, and prints the accuracies."""
  if not items:
    return
  keys = [each.key for each in work] + list(items)
  results = evaluation_results(
      items.values(), strategies=list(dict.fromkeys(key.strategy for key in keys)),
      benchmarks=list(dict.fromkeys(key.benchmark for key in keys)),
      workers=[worker.name for worker in workers.executor.pool.workers], seed=config.seed)
  results["spending"] = {
      name: asdict(spent) for name, spent in workers.client.budget.spending().items()}
  missing = sum(each.key not in items for each in work)
  faults = [item.fault for item in items.values() if item.fault]
  notes = []
  if missing:
    notes.append(f"{missing} of {len(work)} answers are missing: the evaluation was stopped.")
  if faults:
    notes.append(f"{len(faults)} of {len(items)} answers have no verdict and count for nothing, "
                 f"the last because {faults[-1]}.")
  page = write_results(
      workdir, results, notes=notes, config_text=(workdir / "config.json").read_text())
  for line in (*text_lines(accuracy_table(results)), *notes, f"the results: {page}"):
    terminal.print(line)


def _refuse_without_answers(
    waiting: Sequence[Assignment], work: Sequence[Assignment], items: Mapping[Key, Item]) -> None:
  """Raises where the evaluation was stopped, or nobody could be asked."""
  missing = sum(each.key not in items for each in work)
  if missing:
    raise Interrupted(f"stopped after {len(work) - missing} of {len(work)} answers")
  faults = [items[each.key].fault for each in waiting]
  if faults and all(faults):
    raise UserError(f"none of {len(faults)} answers has a verdict, the last because {faults[-1]}: "
                    "mend it, then run the same command to ask again")


def _main() -> None:
  strategies = flags.DEFINE_list("strategies", [], "Which strategies, separated by commas.")
  benchmarks = flags.DEFINE_list("benchmarks", [], "Which benchmarks; the config's by default.")
  repeats = flags.DEFINE_integer("repeats", 1, "Answers to each task.", lower_bound=1)
  tasks = flags.DEFINE_integer(
      "tasks", 0, "Tasks of each benchmark at most; 0: all.", lower_bound=0)
  run = flags.DEFINE_string("run", None, "The work directory of the conductor's training run.")
  main(lambda config, workdir: evaluate(
      config, workdir, strategies=strategies.value, benchmarks=benchmarks.value,
      repeats=repeats.value, most=tasks.value, run=Path(run.value) if run.value else None))


if __name__ == "__main__":
  _main()
