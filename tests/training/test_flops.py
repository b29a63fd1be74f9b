import numpy as np
import pytest

from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.training.batch import GroupedBatch
from conductor_jax.training.flops import (
    forward_flops,
    hardware_flops,
    layer_weights,
    model_flops,
    throughput,
    utilisation,
)

# Width 2, 2 layers of 1 head and 1 key-value head of width 2, SwiGLU of 3, vocabulary 5: a layer's
# kernels have 2 · (2 + 2 + 2 + 2 + 3 · 3) = 34 weights, the head has 10.
TINY = Qwen2Config(
    vocab_size=5, hidden_size=2, intermediate_size=3, num_layers=2, num_heads=1, num_kv_heads=1,
    head_dim=2, max_positions=16, tied=False)

# One row: a prompt of 3 tokens and completions of 2 and 1. Tokens: 6. Pairs: the prompt's
# 1 + 2 + 3, then 4 + 5 of the first completion and 4 of the second: 19.
PROMPTS, COMPLETIONS = np.array([3]), np.array([[2, 1]])
LAYERS = 2 * 2 * 34 * 6
HEAD = 2 * 10 * 3
ATTENTION = 4 * 2 * 2 * 19


def test_a_forward_pass_equals_the_hand_count():
  assert layer_weights(TINY) == 34
  assert forward_flops(TINY, PROMPTS, COMPLETIONS) == (LAYERS, HEAD, ATTENTION) == (816, 60, 304)


def test_a_step_is_three_forward_passes():
  assert model_flops(TINY, PROMPTS, COMPLETIONS) == 3 * (816 + 60 + 304)


def test_frozen_kernels_cost_four_operations_a_weight_and_their_adapters_six():
  expected = 2 * (816 + 60) + 3 * 304 + 6 * 7 * 6
  assert model_flops(TINY, PROMPTS, COMPLETIONS, adapter_weights=7) == expected


def test_a_reference_adds_one_forward_pass():
  with_reference = model_flops(TINY, PROMPTS, COMPLETIONS, reference=True)
  assert with_reference - model_flops(TINY, PROMPTS, COMPLETIONS) == 816 + 60 + 304


def test_a_shared_prompt_is_counted_once_a_row():
  shared = forward_flops(TINY, PROMPTS, COMPLETIONS)
  apart = forward_flops(TINY, np.array([3, 3]), np.array([[2], [1]]))
  assert apart.layers - shared.layers == 2 * 2 * 34 * 3
  assert apart.head == shared.head
  assert apart.attention - shared.attention == 4 * 2 * 2 * (1 + 2 + 3)


def test_only_tokens_that_are_there_count():
  padded = forward_flops(TINY, np.array([3, 0]), np.array([[2, 1], [0, 0]]))
  assert padded == forward_flops(TINY, PROMPTS, COMPLETIONS)


@pytest.mark.parametrize(("remat", "again"), [
    ("none", 60 + 304 / 2), ("dots", 60 + 304 / 2), ("full", 60 + 304 / 2 + 816 + 304)])
def test_recomputation_is_counted_apart_from_the_model(remat, again):
  hardware = hardware_flops(TINY, PROMPTS, COMPLETIONS, remat=remat)
  assert hardware - model_flops(TINY, PROMPTS, COMPLETIONS) == again


def test_utilisation_is_the_share_of_all_devices_peak():
  assert utilisation(197e12, 2.0, 4, "TPU v5 lite") == pytest.approx(1 / 8)
  assert utilisation(989e12, 1.0, 1, "NVIDIA H100 80GB HBM3") == pytest.approx(1.0)


def test_utilisation_of_an_unknown_device_is_not_guessed():
  assert utilisation(1e12, 1.0, 1, "cpu") is None


def test_throughput_counts_what_is_no_padding():
  mask = np.array([[[True, True], [True, False]]])
  batch = GroupedBatch(
      prompt_tokens=np.zeros((1, 5), np.int32), prompt_mask=np.arange(5)[None] < 3,
      completion_tokens=np.zeros(mask.shape, np.int32), completion_mask=mask,
      advantages=np.zeros(mask.shape, np.float32),
      sampler_logprobs=np.zeros(mask.shape, np.float32))
  flops = model_flops(TINY, PROMPTS, COMPLETIONS)
  assert throughput(TINY, (batch,), 2.0, devices=1, device_kind="cpu") == {
      "tokens_per_second": 3.0, "model_flops_per_second": flops / 2}
  known = throughput(TINY, (batch,), 2.0, devices=4, device_kind="NVIDIA H200")
  assert known["mfu"] == flops / (2.0 * 4 * 989e12)
  # A later batch, whose rows have another shape: 4 tokens of a prompt and 1 of a completion.
  later = GroupedBatch(
      prompt_tokens=np.zeros((1, 8), np.int32), prompt_mask=np.arange(8)[None] < 4,
      completion_tokens=np.zeros((1, 1, 1), np.int32), completion_mask=np.ones((1, 1, 1), bool),
      advantages=np.zeros((1, 1, 1), np.float32), sampler_logprobs=np.zeros((1, 1, 1), np.float32))
  both = throughput(TINY, (batch, later), 2.0, devices=1, device_kind="cpu")
  assert both == {
      "tokens_per_second": (6 + 5) / 2,
      "model_flops_per_second": (flops + model_flops(TINY, np.array([4]), np.array([[1]]))) / 2}
