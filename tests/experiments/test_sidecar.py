"""Runs that sample from a vLLM server of their own, for which a stand-in takes its place."""

import os
import signal
import stat
import sys
import time
from pathlib import Path

import pytest

from conductor_jax.reporting.metrics import RolloutLog
from tests.experiments.small_run import ROOT, SMALL, gone, metrics, wait_for

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
  """An interpreter whose vLLM is the stand-in."""
  path = tmp_path_factory.mktemp("environment") / "python"
  stand_in = ROOT / "tests" / "sampling" / "fake_vllm"
  path.write_text(f'#!/bin/sh\nPYTHONPATH={stand_in} exec {sys.executable} "$@"\n')
  path.chmod(path.stat().st_mode | stat.S_IXUSR)
  return path


@pytest.fixture
def options(python, tmp_path) -> tuple[str, ...]:
  (tmp_path / "weights").mkdir()
  return (
      *SMALL, "--config.rollout.sampler=vllm", f"--config.rollout.vllm.python={python}",
      "--config.rollout.vllm.dtype=float32", "--config.report.rollouts_every=1",
      f"--config.rollout.vllm.weights_folder={tmp_path / 'weights'}")


def servers(workdir: Path) -> list[int]:
  """Ids of the stand-ins that a run has started, as each says in the log."""
  log = workdir / "vllm.log"
  lines = log.read_text().splitlines() if log.exists() else []
  return [int(line.split()[1]) for line in lines if line.startswith("server ")]


def assert_nothing_is_left(workdir: Path) -> None:
  assert servers(workdir) and all(gone(pid, 30) for pid in servers(workdir))
  # Where the run was killed, the guard removes them after the server.
  deadline = time.monotonic() + 30
  while any((workdir.parent / "weights").iterdir()):
    assert time.monotonic() < deadline, "the weights are left"
    time.sleep(0.05)


def grpo_metrics(workdir: Path) -> list[dict]:
  return [line for line in metrics(workdir) if line["phase"] == "grpo"]


def assert_whole(workdir: Path, steps: int = 6) -> None:
  lines = grpo_metrics(workdir)
  assert [line["step"] for line in lines] == list(range(steps))
  # The server's weights were the trainer's at every step.
  assert max(line["logprob_gap_max"] for line in lines) < 1e-4
  log = RolloutLog(workdir)
  for step in range(steps):
    assert {tuple(row["weight_versions"]) for row in log.read(step)} == {(step,)}
  assert_nothing_is_left(workdir)


def test_every_step_trains_on_what_its_own_weights_wrote_in_the_server(program, options, tmp_path):
  workdir = tmp_path / "run"
  done = program.run(workdir, *options)
  assert done.returncode == 0, done.stderr
  assert_whole(workdir)


def test_adapters_are_merged_into_what_the_server_loads(program, options, tmp_path):
  workdir = tmp_path / "run"
  done = program.run(
      workdir, *options, "--config.model.lora_rank=4", "--config.optimizer.learning_rate=0.01",
      "--config.optimizer.warmup_fraction=0.0")
  assert done.returncode == 0, done.stderr
  assert_whole(workdir)


def test_a_sharded_trainer_hands_over_whole_weights(program, options, tmp_path):
  workdir = tmp_path / "run"
  done = program.run(
      workdir, *options, "--config.mesh.fsdp=2", "--config.mesh.data=2", "--config.sft.steps=10",
      "--config.grpo.iterations=3", devices=4)
  assert done.returncode == 0, done.stderr
  assert_whole(workdir, steps=3)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_no_server_and_no_weights_and_goes_on_later(
    program, options, tmp_path, end):
  workdir = tmp_path / "run"
  process = program.start(workdir, *options)
  wait_for(process, workdir, "grpo", 3)
  process.send_signal(end)
  process.communicate(timeout=60)
  assert_nothing_is_left(workdir)
  resumed = program.run(workdir, *options)
  assert resumed.returncode == 0, resumed.stderr
  assert "GRPO: resuming after step" in resumed.stdout
  assert_whole(workdir)


def test_a_killed_server_is_started_again_and_the_run_goes_on(program, options, tmp_path):
  workdir = tmp_path / "run"
  process = program.start(workdir, *options)
  wait_for(process, workdir, "grpo", 2)
  os.kill(servers(workdir)[0], signal.SIGKILL)
  out, err = process.communicate(timeout=200)
  assert process.returncode == 0, err
  assert "it is started again" in out and len(servers(workdir)) == 2
  assert_whole(workdir)


def test_an_interpreter_without_vllm_is_one_line_with_the_remedy(program, options, tmp_path):
  workdir = tmp_path / "run"
  done = program.run(workdir, *options, f"--config.rollout.vllm.python={sys.executable}")
  assert done.returncode == 2 and "Traceback" not in done.stderr
  line = done.stderr.strip().splitlines()[-1]
  assert line.startswith("error: ") and "has no vllm package" in line and "BUILD.md" in line
  assert list((tmp_path / "weights").iterdir()) == []
