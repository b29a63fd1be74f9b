"""A run on workers that are paid: its budget, its journal, and what it says of both."""

import json
import re
import sqlite3

import pytest

from tests.experiments.small_run import SMALL, metrics

pytestmark = pytest.mark.integration

# Warm-started until some plans parse, so that the rollouts ask workers too.
PAID = (*SMALL, "--config.sft.steps=150", "--config.grpo.iterations=3",
        "--config.evaluation.tasks=6")


def journal(workdir):
  return sqlite3.connect(workdir / "journal.sqlite")


def test_a_run_stops_at_a_checkpoint_when_its_budget_is_spent_and_goes_on_with_a_higher_one(
    program, tmp_path):
  workdir = tmp_path / "run"
  # The baselines take about 70 calls, an iteration about 15.
  stopped = program.run(workdir, *PAID, "--config.pool.budget.calls=90")
  assert stopped.returncode == 2 and "Traceback" not in stopped.stderr
  assert re.match(
      "error: the budget of the run, 90 calls, has no room for a call of '.*; spent so far: .* for "
      ".* tokens in .* calls, .*: raise --config.pool.budget", stopped.stderr.splitlines()[-1])
  assert journal(workdir).execute("SELECT count(*) FROM attempts").fetchone() == (90,)
  done = len([line for line in metrics(workdir) if line["phase"] == "grpo"])
  assert 1 <= done < 3
  assert (workdir / "checkpoints" / "grpo" / str(done)).is_dir()

  resumed = program.run(workdir, *PAID)
  assert resumed.returncode == 0, resumed.stderr
  assert f"GRPO: resuming after step {done}" in resumed.stdout
  assert len([line for line in metrics(workdir) if line["phase"] == "grpo"]) == 3
  # What was answered before is not asked again.
  asked = journal(workdir).execute(
      "SELECT count(*), count(DISTINCT key), sum(outcome = 'answered') FROM attempts").fetchone()
  assert asked[0] == asked[1] == asked[2] > 90
  spending = json.loads((workdir / "summary.json").read_text())["spending"]
  assert sum(worker["calls"] for worker in spending.values()) == asked[0]
  assert "What the workers were paid" in (workdir / "report.html").read_text()
