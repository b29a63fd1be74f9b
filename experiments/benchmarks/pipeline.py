"""Times GRPO iterations with and without rollouts that are collected while a step trains.

    python -m experiments.benchmarks.pipeline --python=.venv-vllm/bin/python

The workers of the arena are made to take so long that rollouts take as long as training. With
`--python`, an interpreter that has vLLM, the first half of the CPU cores trains and the second one
samples and executes, as two devices would; without it the sampler is the embedded one, which
computes on the cores that train, so that an iteration takes what both compute in any order. Prints
one JSON line: the median seconds of rollouts and of training where one waits for the other
(`max_staleness` 0), what an iteration takes there as a share of their sum, and at `max_staleness` 1
as a share of the longer of the two.
"""

import contextlib
import json
import os
import statistics
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from absl import flags
from ml_collections import ConfigDict

from conductor_jax.errors import UserError
from conductor_jax.reporting.metrics import read_metrics
from conductor_jax.tasks.graders import Graders
from configs import quickstart
from experiments.conductor import make_conductor, open_sampler
from experiments.policy import Policy
from experiments.program import start
from experiments.run import open_run
from experiments.training import train_grpo, train_sft

_COMPILED = 4  # iterations at the start, which compile, and are not timed


def benchmark_config(sft_steps: int, python: str | None) -> ConfigDict:
  """The quickstart in fewer questions, with a model that takes longer to train than to sample."""
  config = quickstart.get_config()
  config.model.update(dict(
      hidden_size=384, intermediate_size=1536, num_layers=4, num_heads=6, num_kv_heads=2,
      head_dim=64))
  config.grpo.prompts = 4
  config.optimizer.learning_rate = 3e-4
  config.sft.steps = sft_steps
  if python:
    config.rollout.sampler = "vllm"
    config.rollout.vllm.update(dict(
        python=python, dtype="float32",
        arguments=("--enforce-eager", "--no-enable-chunked-prefill")))
  return config


def halves_of_cores() -> tuple[set[int], set[int]]:
  """The cores that this thread may use, in two parts.

  Raises:
    app.UsageError: there is one.
  """
  cores = sorted(os.sched_getaffinity(0))
  if len(cores) < 2:
    raise UserError("--python: a core is needed for training and another one for the server")
  return set(cores[:len(cores) // 2]), set(cores[len(cores) // 2:])


def run_iterations(
    config: ConfigDict, policy: Policy | None, *, iterations: int, staleness: int, latency: float,
    cores: set[int] | None
) -> tuple[Policy, dict[str, float]]:
  """GRPO from a policy, or from a warm start where there is none yet.

  Args:
    config: of the run, but for what follows.
    policy: to begin with.
    iterations: that are timed.
    staleness: `rollout.max_staleness`.
    latency: seconds that a worker takes.
    cores: of everything that is not done in this thread: the server, the executor, grading; None
      for any.

  Returns:
    The policy that it began with, and the median of everything that the timed iterations recorded.
  """
  config = config.copy_and_resolve_references()
  config.rollout.max_staleness, config.pool.latency = staleness, latency
  config.grpo.iterations = iterations + _COMPILED
  with tempfile.TemporaryDirectory() as folder, open_run(config, Path(folder)) as run, \
      contextlib.closing(Graders()) as graders:
    if cores is not None:
      # The server is started from that thread, and inherits them.
      run.portal.call(os.sched_setaffinity, 0, cores)
    policy = train_sft(run) if policy is None else policy
    # GRPO gives the arrays away.
    begin = replace(policy, trained=jax.tree.map(jnp.copy, policy.trained))
    with open_sampler(run, begin) as sampler:
      train_grpo(run, begin, make_conductor(run, sampler, graders), sampler, dict)
    lines = [line for line in read_metrics(Path(folder) / "metrics.jsonl")
             if line["phase"] == "grpo"][_COMPILED:]
  return policy, {name: statistics.median(line[name] for line in lines)
                  for name in ("seconds", "seconds_waiting", "seconds_training")}


def measure(config: ConfigDict, iterations: int, cores: set[int] | None) -> dict[str, float]:
  """What the program prints."""
  run = partial(run_iterations, config, cores=cores)
  policy, quick = run(None, iterations=4, staleness=0, latency=0.0)
  # A guess of two calls in a row, and its correction.
  guess = max(0.1, (quick["seconds_training"] - quick["seconds_waiting"]) / 2)
  _, guessed = run(policy, iterations=4, staleness=0, latency=guess)
  calls = max(1.0, (guessed["seconds_waiting"] - quick["seconds_waiting"]) / guess)
  latency = max(0.0, guessed["seconds_training"] - quick["seconds_waiting"]) / calls
  _, apart = run(policy, iterations=iterations, staleness=0, latency=latency)
  _, beside = run(policy, iterations=iterations, staleness=1, latency=latency)
  parts = apart["seconds_waiting"], apart["seconds_training"]
  return {
      "worker_seconds": round(latency, 3), "sampling_seconds": round(quick["seconds_waiting"], 3),
      "rollout_seconds": round(parts[0], 3), "training_seconds": round(parts[1], 3),
      "iteration_seconds_0": round(apart["seconds"], 3),
      "iteration_seconds_1": round(beside["seconds"], 3),
      "share_of_sum_0": round(apart["seconds"] / sum(parts), 3),
      "share_of_longer_1": round(beside["seconds"] / max(parts), 3)}


def main() -> None:
  python = flags.DEFINE_string(
      "python", None, "Interpreter that has vLLM; none for the embedded sampler.")
  iterations = flags.DEFINE_integer("iterations", 20, "GRPO iterations that are timed.")
  sft_steps = flags.DEFINE_integer("sft_steps", 80, "Of the warm start, so that plans parse.")
  start(lambda: _print_measured(python.value, iterations.value, sft_steps.value), [])


def _print_measured(python: str | None, iterations: int, sft_steps: int) -> None:
  others = None
  if python:
    ours, others = halves_of_cores()
    # Before JAX starts its threads, which inherit it.
    os.sched_setaffinity(0, ours)
  with contextlib.redirect_stdout(sys.stderr):
    measured = measure(benchmark_config(sft_steps, python), iterations, others)
  print(json.dumps(measured))


if __name__ == "__main__":
  main()
