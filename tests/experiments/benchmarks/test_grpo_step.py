"""The step's benchmark on a model that takes no time."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.benchmarks.grpo_step import benchmark_config, random_batch
from experiments.policy import model_shape


def test_one_json_line_counts_a_prompt_for_every_sample():
  result = subprocess.run(
      [sys.executable, "-m", "experiments.benchmarks.grpo_step", "--shape=tiny", "--rows=2",
       "--samples=3", "--prompt=8", "--completion=4", "--steps=2", "--micro_batches=2"],
      cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
  line = json.loads(result.stdout)
  assert (line["rows"], line["samples"], line["prompt"], line["completion"]) == (2, 3, 8, 4)
  tokens = line["tokens_per_second"] * line["step_seconds"]
  assert tokens == pytest.approx(2 * 3 * (8 + 4), rel=0.2)  # seconds are rounded
  assert line["share_of_matmul"] == pytest.approx(
      line["model_gflops_per_second"] / line["matmul_gflops_per_second"], abs=2e-3)
  assert 0.1 < line["peak_rss_gib"] < 4


def test_the_batch_has_no_padding_and_advantages_of_whole_completions():
  config = benchmark_config("smollm2-135m", "dots", 1)
  assert config.model.remat == "dots" and model_shape(config).num_layers == 30
  batch = random_batch(model_shape(config), rows=2, samples=3, prompt=5, completion=4)
  assert batch.prompt_mask.all() and batch.completion_mask.all()
  assert batch.completion_tokens.shape == (2, 3, 4)
  assert np.ptp(batch.advantages, axis=-1).max() == 0 and np.ptp(batch.advantages) > 0
