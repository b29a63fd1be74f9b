"""Whole runs that train second rounds and measure them, on the quickstart in small."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from conductor_jax.reporting.metrics import RolloutLog
from tests.experiments.small_run import SMALL, assert_same_run, metrics, recorded, wait_for

RECURSIVE = (
    *SMALL, "--config.workflow.max_rounds=2", "--config.grpo.recursion.share=0.5",
    "--config.grpo.recursion.micro_batches=2", "--config.rollout.max_prompt_tokens=192",
    "--config.pool.offer=uniform:2-4", "--config.report.rollouts_every=1",
    "--config.sft.steps=300", "--config.sft.checkpoint_every=100", "--config.sft.prompts=8",
    "--config.checkpoint.every=1")


@pytest.fixture(scope="module")
def whole(program, tmp_path_factory) -> Path:
  workdir = tmp_path_factory.mktemp("runs") / "whole"
  done = program.run(workdir, *RECURSIVE)
  assert done.returncode == 0, done.stderr
  return workdir


def rollouts(workdir: Path) -> list[list[dict]]:
  """Of each iteration."""
  log = RolloutLog(workdir)
  return [log.read(iteration) for iteration in log.iterations()]


@pytest.mark.integration
def test_half_of_the_questions_of_an_iteration_have_a_second_round(whole):
  lines = [line for line in metrics(whole) if line["phase"] == "grpo"]
  assert len(lines) == len(rollouts(whole)) == 6
  assert any(line.get("round2/parse_rate", 0) > 0 for line in lines)
  for line, rows in zip(lines, rollouts(whole), strict=True):
    first = [row for row in rows if row["previous_answer"] is None]
    later = [row for row in rows if row["previous_answer"] is not None]
    assert len(first) == 4 * 4
    # Of the two questions that have one, every plan that ran.
    ran = {}
    for row in first:
      ran.setdefault(row["task"]["id"], []).append(row["answer"] is not None)
    counts = [sum(row["task"]["id"] == task for row in later) for task in ran]
    assert sum(map(bool, counts)) <= 2
    assert all(count in (0, sum(parsed)) for count, parsed in zip(
        counts, ran.values(), strict=True))
    assert {len(row["offered"]) for row in rows} <= {2, 3, 4}
    assert np.isfinite([line["loss"], line["grad_norm"]]).all() and line["skipped"] == 0
  assert sum(len(rows) for rows in rollouts(whole)) > 6 * 4 * 4


@pytest.mark.integration
def test_the_sampler_and_the_trainer_agree_on_the_tokens_of_both_rounds(whole):
  gaps = [line["logprob_gap_max"] for line in metrics(whole) if line["phase"] == "grpo"]
  assert max(gaps) < 1e-4


@pytest.mark.integration
def test_held_out_questions_are_answered_in_two_rounds(whole):
  heldout = json.loads((whole / "summary.json").read_text())["heldout"]
  for name in ("before_rl", "after_rl"):
    by_round = heldout[name]["accuracy_by_round"]
    assert list(by_round) == ["1", "2"] and by_round["2"] == heldout[name]["accuracy"]
  assert heldout["random_plan"]["accuracy_by_round"] == {}


@pytest.mark.integration
def test_a_killed_run_resumes_bit_for_bit_with_the_same_second_rounds(program, whole, tmp_path):
  workdir = tmp_path / "run"
  process = program.start(workdir, *RECURSIVE)
  wait_for(process, workdir, "grpo", 3)
  process.kill()
  process.communicate()
  assert recorded(workdir, "grpo") < 6
  resumed = program.run(workdir, *RECURSIVE)
  assert resumed.returncode == 0, resumed.stderr
  assert re.search("GRPO: resuming after step [2-5] from", resumed.stdout)
  # A journal answers again without asking.
  assert_same_run(whole, workdir, but="attempts_per_call")

  def texts(run):
    return [[(row["task"]["id"], row["offered"], row["previous_answer"], row["completion"],
              row["reward"]) for row in rows] for rows in rollouts(run)]

  assert texts(workdir) == texts(whole)
