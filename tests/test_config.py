"""The paper's configuration holds the paper's values."""

import math

import pytest

from conductor_jax.config_checks import check_config, check_shape
from conductor_jax.errors import UserError
from conductor_jax.training.optimizer import make_schedule
from configs import conductor7b, conductor7b_paper
from experiments.policy import model_shape

# Of configs/conductor7b.py, and the devices of each.
VARIANTS = {"h100-2": 2, "v5e-16": 16, "v5p-4": 4, "h200": 1, "h200-lora": 1}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_paper_size_is_possible_on_each_of_its_devices(variant):
  config = conductor7b.get_config(variant)
  check_config(config)
  check_shape(config, model_shape(config))
  assert math.prod(config.mesh.values()) == VARIANTS[variant]
  # A micro-batch has a row for every device.
  rows = 4 * 64 // config.grpo.samples_per_row
  assert rows // config.grpo.micro_batches == VARIANTS[variant]
  shape = model_shape(config)
  assert (shape.num_layers, shape.hidden_size, shape.vocab_size) == (28, 3584, 152_064)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_papers_values_hold_on_every_device(variant):
  config = conductor7b.get_config(variant)
  grpo, optimizer = config.grpo, config.optimizer
  adapters = variant == "h200-lora"
  assert optimizer.learning_rate == (1e-5 if adapters else 1e-6)
  assert bool(config.model.lora_rank) == adapters
  assert (optimizer.b1, optimizer.b2, optimizer.weight_decay, optimizer.clip_norm) == (
      0.9, 0.999, 0.0, 1.0)
  assert (optimizer.decay, optimizer.warmup_fraction) == ("cosine", 0.03)
  assert (grpo.iterations, grpo.prompts, grpo.group_size) == (200, 4, 64)
  assert (grpo.clip_low, grpo.clip_high, grpo.dual_clip, grpo.importance_cap) == (0.2, 0.2, 0, 0)
  assert (grpo.advantage, grpo.aggregation, grpo.ratio) == ("std", "token", "token")
  assert (grpo.kl_coefficient, grpo.entropy_coefficient, grpo.entropy_target) == (0, 0, 0)
  assert (config.rollout.temperature, config.rollout.max_completion_tokens) == (1.0, 1024)
  assert config.reward.to_dict() == {"unparsed": 0.0, "wrong": 0.5, "right": 1.0}
  assert config.workflow.max_steps == 5
  assert config.sft.steps == 0


def test_the_papers_learning_rate_peaks_after_6_of_200_iterations():
  config = conductor7b.get_config()
  options = config.optimizer
  rate = make_schedule(
      learning_rate=options.learning_rate, steps=config.grpo.iterations,
      warmup_fraction=options.warmup_fraction, decay=options.decay)
  rates = [float(rate(step)) for step in range(200)]
  assert rates.index(max(rates)) in (5, 6) and math.isclose(max(rates), 1e-6, rel_tol=1e-5)
  assert 0 <= rates[-1] < 1e-9


def test_the_papers_questions_are_960_of_four_benchmarks_and_400_held_out():
  config = conductor7b_paper.get_config("h200")
  check_config(config)
  assert config.tasks.benchmarks == ("mmlu", "math500", "rlpr", "livecodebench")
  assert config.tasks.livecodebench_release == "release_v1"
  assert (config.tasks.train, config.tasks.balanced, config.evaluation.tasks) == (960, True, 400)
  assert config.pool.source == "paper"
  # Everything else is the same.
  same = conductor7b.get_config("h200")
  same.tasks, same.pool, same.evaluation = config.tasks, config.pool, config.evaluation
  assert same == config


def test_devices_without_a_variant_are_refused_with_those_that_have_one():
  with pytest.raises(UserError, match=(
      "^--config=configs/conductor7b.py:v9: after the colon must be one of "
      f"{', '.join(VARIANTS)}$")):
    conductor7b.get_config("v9")
