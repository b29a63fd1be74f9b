"""Times GRPO iterations with and without rollouts that are collected while a step trains.

    python -m experiments.benchmarks.pipeline

The workers of the arena are made to take so long that rollouts take as long as training. Prints one
JSON line: the median seconds of rollouts and of training where one waits for the other
(`max_staleness` 0), what an iteration takes there as a share of their sum, and at `max_staleness` 1
as a share of the longer of the two.
"""

import contextlib
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
from absl import app, flags
from ml_collections import ConfigDict

from conductor_jax.reporting.metrics import read_metrics
from conductor_jax.tasks.graders import Graders
from configs import quickstart
from experiments.conductor import make_conductor, open_sampler
from experiments.policy import Policy
from experiments.run import open_run
from experiments.training import train_grpo, train_sft

_ITERATIONS = flags.DEFINE_integer("iterations", 20, "GRPO iterations that are timed.")
_SFT_STEPS = flags.DEFINE_integer("sft_steps", 150, "Of the warm start, so that plans parse.")
_COMPILED = 4  # iterations at the start, which compile, and are not timed


def benchmark_config(sft_steps: int) -> ConfigDict:
  """The quickstart, on half its questions."""
  config = quickstart.get_config()
  config.grpo.prompts = 8
  config.sft.steps = sft_steps
  return config


def run_iterations(
    config: ConfigDict, policy: Policy | None, *, iterations: int, staleness: int, latency: float
) -> tuple[Policy, dict[str, float]]:
  """GRPO from a policy, or from a warm start where there is none yet.

  Returns:
    The policy that it began with, and the median of everything that the timed iterations recorded.
  """
  config = config.copy_and_resolve_references()
  config.rollout.max_staleness, config.pool.latency = staleness, latency
  config.grpo.iterations = iterations + _COMPILED
  with tempfile.TemporaryDirectory() as folder, open_run(config, Path(folder)) as run, \
      contextlib.closing(Graders()) as graders:
    policy = train_sft(run) if policy is None else policy
    # GRPO gives the arrays away.
    begin = replace(policy, trained=jax.tree.map(jnp.copy, policy.trained))
    with open_sampler(run, begin) as sampler:
      train_grpo(run, begin, make_conductor(run, sampler, graders), sampler, dict)
    lines = [line for line in read_metrics(Path(folder) / "metrics.jsonl")
             if line["phase"] == "grpo"][_COMPILED:]
  return policy, {name: statistics.median(line[name] for line in lines)
                  for name in ("seconds", "seconds_waiting", "seconds_training")}


def measure(config: ConfigDict, iterations: int) -> dict[str, float]:
  """What the program prints."""
  policy, quick = run_iterations(config, None, iterations=4, staleness=0, latency=0.0)
  # A guess of two calls in a row, and its correction.
  gap = quick["seconds_training"] - quick["seconds_waiting"]
  _, guessed = run_iterations(config, policy, iterations=4, staleness=0, latency=gap / 2)
  depth = (guessed["seconds_waiting"] - quick["seconds_waiting"]) / (gap / 2)
  latency = (guessed["seconds_training"] - quick["seconds_waiting"]) / depth
  _, apart = run_iterations(config, policy, iterations=iterations, staleness=0, latency=latency)
  _, beside = run_iterations(config, policy, iterations=iterations, staleness=1, latency=latency)
  parts = apart["seconds_waiting"], apart["seconds_training"]
  return {
      "worker_seconds": round(latency, 3), "sampling_seconds": round(quick["seconds_waiting"], 3),
      "rollout_seconds": round(parts[0], 3), "training_seconds": round(parts[1], 3),
      "iteration_seconds_0": round(apart["seconds"], 3),
      "iteration_seconds_1": round(beside["seconds"], 3),
      "share_of_sum_0": round(apart["seconds"] / sum(parts), 3),
      "share_of_longer_1": round(beside["seconds"] / max(parts), 3)}


def main(arguments: list[str]) -> None:
  if len(arguments) > 1:
    raise app.UsageError(f"unknown arguments: {' '.join(arguments[1:])}")
  with contextlib.redirect_stdout(sys.stderr):
    measured = measure(benchmark_config(_SFT_STEPS.value), _ITERATIONS.value)
  print(json.dumps(measured))


if __name__ == "__main__":
  app.run(main)
