"""A real grid in small, killed and resumed, as a user starts it."""

import json
import signal
from pathlib import Path

import pytest

from tests.experiments.small_run import SMALL, metrics, wait_for

pytestmark = pytest.mark.integration

OPTIONS = (*SMALL, "--config.sft.steps=20", "--config.grpo.iterations=4", "--seeds=3",
           "--config.evaluation.tasks=6")
RECURSION = dict(module="experiments.ablations.recursion")


def started(program, workdir: Path):
  return program.start(workdir, *OPTIONS, "--arms=ordinary,fine-tuned", **RECURSION)


def test_a_grid_that_is_killed_goes_on_and_trains_nothing_twice(program, tmp_path):
  workdir = tmp_path / "grid"
  first, second = workdir / "ordinary/seed-3", workdir / "fine-tuned/seed-3"
  process = started(program, workdir)
  wait_for(process, first, "grpo", 3)
  process.send_signal(signal.SIGKILL)
  process.communicate()
  # Checkpoints are written every second iteration.
  assert not (first / "summary.json").exists() and not (workdir / "table.md").exists()
  process = started(program, workdir)
  wait_for(process, second, "grpo", 1)
  process.send_signal(signal.SIGTERM)
  out, err = process.communicate(timeout=300)
  assert process.returncode == 143, err
  # Its one iteration was trained: the run ended, and the grid did not go on.
  assert err.splitlines()[-1] == (
      "stopped after fine-tuned, seed 3: training: run the same command to go on")
  assert "going on with a run" in out and "[1/2] ordinary, seed 3: training" in out
  assert [line["step"] for line in metrics(first) if line["phase"] == "grpo"] == [0, 1, 2, 3]
  assert "| 1-round: ordinary | 1 |" in (workdir / "table.md").read_text()
  summary = (first / "summary.json").stat().st_mtime_ns

  done = program.run(workdir, *OPTIONS, "--arms=ordinary,fine-tuned", **RECURSION)
  assert done.returncode == 0, done.stderr
  assert "ordinary, seed 3: training" not in done.stdout
  assert (first / "summary.json").stat().st_mtime_ns == summary
  config = json.loads((second / "config.json").read_text())
  assert config["model"]["weights"] == str(first / "policy") and config["sft"]["steps"] == 0
  results = json.loads((workdir / "results.json").read_text())
  assert [(row["measurement"], row["arm"]) for row in results["rows"]] == [
      (f"{rounds}", arm) for rounds in ("1-round", "2-rounds", "3-rounds")
      for arm in ("ordinary", "fine-tuned")]
  assert results["notes"] == [] and (workdir / "plot.png").exists()
  assert "3-rounds: fine-tuned" in done.stdout


def test_a_worker_that_is_not_there_is_one_line_and_status_2(program, tmp_path):
  done = program.run(tmp_path / "grid", *OPTIONS, "--without=nobody",
                     module="experiments.ablations.adaptive")
  assert done.returncode == 2 and done.stdout == ""
  assert done.stderr.startswith("error: --without: there is no worker 'nobody', of ")
  assert done.stderr.count("\n") == 1 and not (tmp_path / "grid").exists()
