"""The benchmark of the pipeline measures what it says."""

import pytest

from experiments.benchmarks import pipeline


def test_a_run_in_small_is_timed():
  config = pipeline.benchmark_config(sft_steps=10, python=None)
  config.model.update(dict(
      hidden_size=32, intermediate_size=64, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=16))
  config.sft.update(dict(prompts=4, plans=4, learning_rate=0.01))
  config.grpo.update(dict(prompts=2, group_size=4))
  config.tasks.train = 100
  policy, medians = pipeline.run_iterations(
      config, None, iterations=2, staleness=1, latency=0.01, cores=None)
  assert policy.shape.hidden_size == 32
  assert medians["seconds"] >= medians["seconds_training"] > 0 <= medians["seconds_waiting"]


@pytest.mark.parametrize("sampling, latency", [(0.5, 0.75), (1.9, 0.05), (3.0, 0.0)])
def test_workers_take_so_long_that_rollouts_take_as_long_as_training(
    monkeypatch, sampling, latency):
  latencies = []

  def run_iterations(config, policy, *, iterations, staleness, latency, cores):
    latencies.append(latency)
    rollouts = sampling + 2 * latency  # two calls in a row
    seconds = max(rollouts, 2.0) if staleness else rollouts + 2.0
    return policy, {"seconds": seconds, "seconds_waiting": rollouts, "seconds_training": 2.0}

  monkeypatch.setattr(pipeline, "run_iterations", run_iterations)
  measured = pipeline.measure(None, iterations=5, cores=None)
  assert measured["worker_seconds"] == pytest.approx(latency)
  assert latencies[-2:] == pytest.approx([latency, latency])
  assert measured["rollout_seconds"] == pytest.approx(max(sampling, 2.0))
  assert measured["share_of_sum_0"] == measured["share_of_longer_1"] == 1
