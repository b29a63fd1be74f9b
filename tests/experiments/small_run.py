"""A small run of the training programs, started as a user starts them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp

from tests.training import host_devices

ROOT = Path(__file__).parents[2]

# The quickstart in small: every part of the road, two checkpoints on the way.
SMALL = (
    "--config.model.hidden_size=32", "--config.model.intermediate_size=64",
    "--config.model.num_heads=2", "--config.model.num_kv_heads=1", "--config.model.head_dim=16",
    "--config.sft.steps=30", "--config.sft.prompts=4", "--config.sft.plans=4",
    "--config.sft.checkpoint_every=10", "--config.sft.learning_rate=0.01",
    "--config.grpo.iterations=6", "--config.grpo.prompts=4", "--config.grpo.group_size=4",
    "--config.evaluation.tasks=12", "--config.tasks.train=300", "--config.checkpoint.every=2",
    "--config.report.rollouts_every=2",
)


class Program:
  """Starts the training programs as a user does."""

  def __init__(self, cache: Path):
    # Compiled programs are shared: only the first run of a shape pays for it.
    self._caching = {"JAX_COMPILATION_CACHE_DIR": str(cache),
                     "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    self._environment = os.environ | {"JAX_PLATFORMS": "cpu"} | self._caching

  def start(self, workdir: Path, *options: str, config="configs/quickstart.py",
            module="experiments.train", devices=1, platforms="cpu", **popen) -> subprocess.Popen:
    command = [sys.executable, "-m", module, f"--workdir={workdir}",
               *([f"--config={config}"] if config else []), *options]
    environment = self._environment | {"JAX_PLATFORMS": platforms} if devices == 1 else (
        host_devices.environment(devices) | self._caching)
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, **popen)

  def run(self, workdir: Path, *options: str, **start) -> subprocess.CompletedProcess:
    process = self.start(workdir, *options, **start)
    try:
      out, err = process.communicate(timeout=300)
    except BaseException:
      process.kill()
      raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def metrics(workdir: Path) -> list[dict]:
  """What was recorded, without the times and what follows from them."""
  lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
  return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


def arrays(workdir: Path, phase: str, step: int) -> dict[str, np.ndarray]:
  """Every array of a checkpoint, by its path."""
  folder = workdir / "checkpoints" / phase / str(step) / "state"
  restored = ocp.StandardCheckpointer().restore(folder)
  found = {}

  def walk(node, path):
    if isinstance(node, dict):
      for key, value in node.items():
        walk(value, f"{path}/{key}")
    elif isinstance(node, (list, tuple)):
      for key, value in enumerate(node):
        walk(value, f"{path}/{key}")
    elif node is not None:
      found[path] = np.asarray(node)

  walk(restored, "")
  return found


def assert_same_run(one: Path, other: Path, *, but: str = "") -> None:
  """Both learnt the same, to the last bit, and recorded the same but for one metric."""
  learnt = [[{name: value for name, value in line.items() if name != but} for line in metrics(run)]
            for run in (one, other)]
  assert learnt[0] == learnt[1]
  left, right = arrays(one, "grpo", 6), arrays(other, "grpo", 6)
  assert left.keys() == right.keys() and len(left) > 30
  for name, array in left.items():
    np.testing.assert_array_equal(array, right[name], err_msg=name, strict=True)
  results = [json.loads((w / "summary.json").read_text())["heldout"] for w in (one, other)]
  assert results[0] == results[1]


def recorded(workdir: Path, phase: str) -> int:
  path = workdir / "metrics.jsonl"
  return path.read_text().count(f'"phase": "{phase}"') if path.exists() else 0


def wait_for(process, workdir: Path, phase: str, steps: int) -> None:
  while recorded(workdir, phase) < steps:
    assert process.poll() is None, process.stderr.read()
    time.sleep(0.005)


def gone(pid: int, seconds: float = 10) -> bool:
  deadline = time.monotonic() + seconds
  while time.monotonic() < deadline:
    try:
      if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
        return True
    except FileNotFoundError:
      return True
    time.sleep(0.05)
  return False
