"""Times one GRPO optimizer step on a Qwen2-architecture model with random weights.

    python -m experiments.benchmarks.grpo_step --shape=smollm2-135m --batch=4 --prompt=384 \\
        --completion=128
    python -m experiments.benchmarks.grpo_step --rows=1 --samples=16 --prompt=768 --completion=128

Prints one JSON line: the median seconds of a step; `tokens_per_second`, counted as if every sample
had a prompt of its own, so that steps with and without shared prompts compare; the model's FLOP/s,
and their share of what a plain jitted float32 matrix product reaches in the same run; peak resident
memory in GiB. Compare with another trainer on the same machine, as a ratio.
"""

import json
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from ml_collections import ConfigDict

from conductor_jax.config import default_config
from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.training.batch import GroupedBatch
from conductor_jax.training.flops import model_flops
from experiments.policy import load_policy, model_shape, open_mesh
from experiments.steps import grpo_step

# Width of the matrices of the product that the step is compared with.
_WIDTH = 2048

_SHAPE = flags.DEFINE_enum(
    "shape", "smollm2-135m", ["tiny", "smollm2-135m", "qwen2.5-0.5b"], "Of the model.")
_BATCH = flags.DEFINE_integer("batch", 4, "Sequences, each with a prompt of its own.")
_ROWS = flags.DEFINE_integer("rows", None, "Prompts; takes the place of --batch, with --samples.")
_SAMPLES = flags.DEFINE_integer("samples", 1, "Completions of each prompt.")
_PROMPT = flags.DEFINE_integer("prompt", 384, "Tokens of a prompt.")
_COMPLETION = flags.DEFINE_integer("completion", 128, "Tokens of a completion.")
_STEPS = flags.DEFINE_integer("steps", 5, "Steps that are timed.")
_REMAT = flags.DEFINE_enum(
    "remat", "dots", ["none", "dots", "full"], "What the backward pass keeps.")
_MICRO_BATCHES = flags.DEFINE_integer("micro_batches", 1, "Parts that the rows are worked off in.")


def benchmark_config(shape: str, remat: str, micro_batches: int) -> ConfigDict:
  """GRPO as configured by default, without a KL term, in float32 on one device."""
  config = default_config()
  config.model.update(dict(compute_dtype="float32", remat=remat, logprob_chunk=512))
  config.grpo.micro_batches = micro_batches
  if shape == "tiny":
    config.model.update(dict(
        hidden_size=128, intermediate_size=512, num_layers=4, num_heads=4, num_kv_heads=2,
        head_dim=32, rope_theta=10_000.0, tied=True))
  else:
    config.model.name = shape
  return config


def random_batch(
    shape: Qwen2Config, rows: int, samples: int, prompt: int, completion: int) -> GroupedBatch:
  """A batch without padding, off-policy by what random weights make of random tokens."""
  generator = np.random.default_rng(0)
  tokens = (rows, samples, completion)

  def draw(*size):
    return generator.integers(3, shape.vocab_size, size, dtype=np.int32)

  advantages = generator.normal(size=(rows, samples, 1)).astype(np.float32)
  return GroupedBatch(
      prompt_tokens=draw(rows, prompt), prompt_mask=np.ones((rows, prompt), bool),
      completion_tokens=draw(*tokens), completion_mask=np.ones(tokens, bool),
      advantages=np.broadcast_to(advantages, tokens).copy(),
      sampler_logprobs=np.full(tokens, -np.log(shape.vocab_size), np.float32))


def seconds_of(function: Callable[[], Any], times: int) -> list[float]:
  """Wall time of each call, its arrays ready."""
  taken = []
  for _ in range(times):
    began = time.perf_counter()
    jax.block_until_ready(function())
    taken.append(time.perf_counter() - began)
  return taken


def measure(
    config: ConfigDict, *, rows: int, samples: int, prompt: int, completion: int, steps: int
) -> dict[str, Any]:
  """What the program prints, of a step on such a batch."""
  shape = model_shape(config)
  step, state = grpo_step(config, load_policy(config, open_mesh(config)), None)
  batch = random_batch(shape, rows, samples, prompt, completion)
  states = [state]
  del state  # the step gives its arrays away

  def one_step():
    states[0], measurements = step(states[0], batch)
    return states[0], measurements

  matrix = jnp.ones((_WIDTH, _WIDTH))
  product = jax.jit(lambda x: x @ x)
  jax.block_until_ready((one_step(), product(matrix)))
  taken, products = [], []
  # In turns, so that both see the same machine.
  for _ in range(steps):
    products += seconds_of(lambda: product(matrix), 3)
    taken += seconds_of(one_step, 1)
  seconds, peak = statistics.median(taken), 2 * _WIDTH ** 3 / statistics.median(products)
  flops = model_flops(
      shape, np.full(rows, prompt), np.full((rows, samples), completion)) / seconds
  return {
      "step_seconds": round(seconds, 3),
      "tokens_per_second": round(rows * samples * (prompt + completion) / seconds, 1),
      "model_gflops_per_second": round(flops / 1e9, 1),
      "matmul_gflops_per_second": round(peak / 1e9, 1),
      "share_of_matmul": round(flops / peak, 3),
      "peak_rss_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)}


def main(arguments: list[str]) -> None:
  if len(arguments) > 1:
    raise app.UsageError(f"unknown arguments: {' '.join(arguments[1:])}")
  rows = _ROWS.value or _BATCH.value
  work = dict(rows=rows, samples=_SAMPLES.value, prompt=_PROMPT.value,
              completion=_COMPLETION.value)
  config = benchmark_config(_SHAPE.value, _REMAT.value, _MICRO_BATCHES.value)
  print(json.dumps({
      "trainer": "conductor_jax", "shape": _SHAPE.value, **work,
      "micro_batches": _MICRO_BATCHES.value, "remat": _REMAT.value,
      **measure(config, steps=_STEPS.value, **work)}))


if __name__ == "__main__":
  app.run(main)
