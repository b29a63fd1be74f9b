"""Trains a conductor: warm start on example plans, then GRPO on the rewards of executed plans.

    python -m experiments.train --config=configs/quickstart.py --workdir=runs/quickstart

Any option of the config can be set on the command line, as in `--config.grpo.group_size=16`. Run
again on the same work directory, it goes on where it stopped.
"""

import contextlib
import resource
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from conductor_jax.collapse import CollapseGuard, collapse_warnings
from conductor_jax.evaluation.evaluate import evaluate
from conductor_jax.reporting.metrics import RolloutLog, read_metrics, write_summary
from conductor_jax.reporting.progress import CallRates, accuracy_line, heading
from conductor_jax.reporting.report import write_report
from conductor_jax.strategies.random_plan import RandomPlan
from conductor_jax.strategies.single_worker import best_single_worker
from conductor_jax.strategies.strategy import Strategy
from experiments.components import make_graders
from experiments.conductor import conductor_strategy, make_conductor, open_sampler
from experiments.program import main
from experiments.run import Run, open_run
from experiments.spending import told_what_was_spent
from experiments.training import train_grpo, train_sft
from experiments.workdir import StopSignals


def train(config: ConfigDict, workdir: Path, stop: StopSignals | None = None) -> None:
  """One run, from its config to its report.

  Args:
    config: the options.
    workdir: made if it is not there.
    stop: whether to end early; listens for signals by itself where there is none.

  Raises:
    UserError: something is not as it must be.
    OutOfBudget: a budget is spent.
    Interrupted: it was asked to stop. The same call goes on, in these two cases.
  """
  with (open_run(config, workdir, stop) as run,
        contextlib.closing(make_graders(config)) as graders, told_what_was_spent(run.client)):
    policy = train_sft(run)
    with open_sampler(run, policy) as sampler:
      conductor = make_conductor(run, sampler, graders)
      trained = conductor_strategy(run, conductor)

      def wait_for(name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        with run.terminal.waiting(name, CallRates(run.client.activity)):
          return run.portal.call(work)

      def measure(name: str, strategy: Strategy) -> dict[str, Any]:
        result = wait_for(heading(name), partial(
            evaluate, strategy, run.splits.heldout, seed=config.seed,
            workers=len(run.executor.pool), concurrent=config.evaluation.concurrent))
        run.terminal.print(f"{heading(name)}: {accuracy_line(result)}")
        return result

      def baselines() -> dict[str, Any]:
        chosen_on = run.splits.train[:config.evaluation.tasks]
        best = wait_for("every worker alone", partial(
            best_single_worker, run.executor, graders, chosen_on, offers=run.offers.heldout,
            seed=config.seed))
        plans = RandomPlan(
            run.executor, graders, format=run.chat.template.format, offers=run.offers.heldout)
        return {name: measure(name, strategy) for name, strategy in (
            ("before_rl", trained), ("best_single_worker", best), ("random_plan", plans))}

      state, measured = train_grpo(run, policy, conductor, sampler, baselines)
      heldout = {"before_rl": measured["before_rl"], "after_rl": measure("after_rl", trained),
                 **measured}
    _conclude(run, int(state.step), heldout)


def _conclude(run: Run, iterations: int, heldout: dict[str, Any]) -> None:
  """Writes the summary and the report, and prints the table."""
  peak = sum(resource.getrusage(who).ru_maxrss
             for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
  log, metrics = RolloutLog(run.workdir), read_metrics(run.workdir / "metrics.jsonl")
  summary = {
      "seconds": round(run.clock.seconds(), 1), "iterations": iterations,
      "peak_memory_gib": round(peak / 2**20, 2), "seed": run.config.seed, "heldout": heldout,
      "spending": {name: asdict(spent) for name, spent in run.client.budget.spending().items()},
      "warnings": collapse_warnings(
          CollapseGuard(**run.config.report.collapse),
          [record for record in metrics if record["phase"] == "grpo"])}
  page = write_report(
      run.workdir, summary, (run.workdir / "config.json").read_text(), metrics,
      log.read(log.iterations()[-1]))
  write_summary(run.workdir, summary)
  run.terminal.results(heldout)
  run.terminal.print(
      f"{summary['seconds']:.0f} s, {summary['peak_memory_gib']} GiB at most; the report: {page}")


if __name__ == "__main__":
  main(train)
