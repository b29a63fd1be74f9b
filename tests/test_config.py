"""The paper's configurations hold the paper's values."""

import math

import pytest

from conductor_jax.config_checks import check_config, check_shape
from conductor_jax.errors import UserError
from conductor_jax.training.optimizer import make_schedule
from configs import adaptive7b, conductor3b, conductor7b, conductor7b_paper, recursive7b
from experiments.components import make_offers, worker_names
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
  assert config.reward.to_dict() == {
      "unparsed": 0.0, "wrong": 0.5, "right": 1.0, "per_dollar": 0.0, "per_thousand_tokens": 0.0,
      "per_second": 0.0}
  workflow = config.workflow
  assert (workflow.max_steps, workflow.access, workflow.subtasks) == (5, "binary", True)
  assert (workflow.few_shot, workflow.few_shot_source) == (4, "outside")
  assert workflow.prefill == "Let me plan this step by step.\n"
  assert (workflow.max_rounds, grpo.recursion.share, config.pool.offer) == (1, 0.0, "all")
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


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("family", [adaptive7b, recursive7b, conductor3b],
                         ids=lambda module: module.__name__)
def test_the_papers_other_conductors_are_possible_on_the_same_devices(family, variant):
  config = family.get_config(variant)
  check_config(config)
  check_shape(config, model_shape(config))
  make_offers(config)
  assert math.prod(config.mesh.values()) == VARIANTS[variant]


def test_the_recursive_conductor_has_the_papers_values_and_is_otherwise_the_same():
  config, same = recursive7b.get_config(), conductor7b.get_config()
  grpo = config.grpo
  assert (grpo.iterations, config.tasks.train, config.workflow.max_rounds) == (20, 350, 2)
  assert (grpo.recursion.share, grpo.recursion.discount) == (0.5, 0.25)
  assert (grpo.recursion.first_reward, grpo.recursion.group) == ("discounted", "round")
  assert grpo.prompts * grpo.recursion.share == 2
  same.tasks.train, same.workflow.max_rounds = 350, 2
  same.rollout.max_prompt_tokens = config.rollout.max_prompt_tokens
  same.grpo.update(dict(iterations=20, recursion=grpo.recursion))
  assert config == same


def test_the_adaptive_conductor_is_offered_two_to_seven_workers_and_is_otherwise_the_same():
  config, same = adaptive7b.get_config(), conductor7b.get_config()
  assert (config.pool.offer, config.pool.renumber) == ("uniform:2-7", False)
  groups = dict(config.pool.groups)
  assert [len(groups[name]) for name in ("closed", "open")] == [3, 4]
  assert sorted(groups["closed"] + groups["open"]) == sorted(worker_names(config))
  for name, ids in (("closed", (0, 1, 2)), ("open", (3, 4, 5, 6))):
    config.evaluation.offer = f"groups:{name}"
    assert make_offers(config).heldout.whole.workers == ids
  same.pool, same.evaluation = config.pool, config.evaluation
  same.grpo.iterations = config.grpo.iterations
  assert config == same


def test_the_smaller_conductor_is_qwen_of_3_billion_parameters_and_otherwise_the_same():
  config, same = conductor3b.get_config("h200"), conductor7b.get_config("h200")
  shape = model_shape(config)
  assert (shape.num_layers, shape.hidden_size, shape.num_heads) == (36, 2048, 16)
  same.model.name = config.model.name
  assert config == same


def test_devices_without_a_variant_are_refused_with_those_that_have_one():
  with pytest.raises(UserError, match=(
      "^--config=configs/conductor7b.py:v9: after the colon must be one of "
      f"{', '.join(VARIANTS)}$")):
    conductor7b.get_config("v9")
