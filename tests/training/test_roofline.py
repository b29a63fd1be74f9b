from dataclasses import replace

import pytest

from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.training.hardware import Accelerator, find_accelerator
from conductor_jax.training.roofline import StepShape, roofline

# Width 2, 2 layers, 1 head and 1 key-value head of width 2, SwiGLU of 3, vocabulary 5: a pass
# multiplies with N = 2 · 34 = 68 weights of layers and n = 10 of the head. There are 6 biases and
# 4 scales more in a layer, and 2 scales and 10 numbers of the embedding beside the layers.
TINY = Qwen2Config(
    vocab_size=5, hidden_size=2, intermediate_size=3, num_layers=2, num_heads=1, num_kv_heads=1,
    head_dim=2, max_positions=16, tied=False)
STEP = StepShape(
    config=TINY, rows=4, samples=2, prompt=3, completion=2, micro_batches=1, remat="none",
    compute_bytes=2)
# A device that does one of everything a second.
UNIT = Accelerator("unit", "unit", 1.0, 1, 1.0, 1.0)
ONE = dict(data=1, fsdp=1, tensor=1)


def test_arithmetic_is_the_recomputing_steps_flops_over_the_peak():
  result = roofline(STEP, UNIT, **ONE)
  assert result.arithmetic == STEP.hardware_flops()
  assert result.useful == STEP.model_flops()


def test_memory_equals_the_hand_count():
  # 28 tokens, 16 of them in completions.
  weights = 2 * (4 * 68 + 2 * 68) + 2 * 2 * 68
  head = (4 + 2) * 10 + 3 * 2 * 10
  gradients = 2 * 2 * 68 + 8 * 68 + 8 * 10
  activations = 3 * 2 * 28 * 2 * (7 * 2 + 2 * 2 + 2 * 2 + 3 * 3)
  logits = 3 * 8 * 16 * 5
  result = roofline(STEP, UNIT, **ONE)
  assert result.memory == weights + head + gradients + activations + logits


def test_one_device_receives_nothing():
  assert roofline(STEP, UNIT, **ONE).interconnect == 0


def test_every_micro_batch_gathers_the_weights_again():
  # Three quarters of 68 weights of 2 bytes: gathered forward and backward, and scattered gradients.
  # Of the three others, 4 hidden states of 2 numbers, as often.
  mesh = dict(data=1, fsdp=4, tensor=1)
  received = 3 * 0.75 * 2 * 68 + 3 * 3 * 2 * 4 * 2
  assert roofline(STEP, UNIT, **mesh).interconnect == received
  split = replace(STEP, rows=8, micro_batches=2)
  assert roofline(split, UNIT, **mesh).interconnect == 2 * received


def test_tensor_parallelism_sums_activations_twice_a_layer_and_pass():
  # Half of 28 tokens of 2 numbers of 2 bytes, sent and received, in 2 layers, twice, in 2 passes.
  result = roofline(STEP, UNIT, data=1, fsdp=1, tensor=2)
  assert result.interconnect == 2 * 2 * 2 * 2 * 0.5 * 28 * 2 * 2


def test_the_update_moves_each_devices_parameters_once():
  parameters = 2 * (34 + 6 + 4) + 20 + 2
  assert roofline(STEP, UNIT, **ONE).update == 32 * parameters
  assert roofline(STEP, UNIT, data=1, fsdp=2, tensor=2).update == 32 * parameters / 4
  adapters = replace(STEP, adapter_weights=9)
  assert roofline(adapters, UNIT, **ONE).update == 32 * 9


def test_gradients_of_data_parallel_replicas_are_summed_once_a_step():
  slow = replace(UNIT, interconnect_bandwidth=0.01)
  parameters = 2 * (34 + 6 + 4) + 20 + 2
  result = roofline(STEP, slow, data=2, fsdp=1, tensor=1)
  assert result.update == pytest.approx(8 * 0.5 * parameters / 0.01)
  # The other replica's 8 hidden states, forward and backward, and their gradients.
  assert result.interconnect == pytest.approx(3 * 2 * 8 * 2 / 0.01)


def test_the_longest_part_decides_and_the_update_is_added():
  result = roofline(STEP, replace(UNIT, memory_bandwidth=1e-3), **ONE)
  assert result.bound == "memory"
  assert result.seconds == result.memory + result.update
  assert result.mfu == result.useful / result.seconds


def test_a_step_on_two_batches_takes_what_both_do_and_updates_once():
  first = roofline(STEP, UNIT, **ONE)
  later = roofline(replace(STEP, rows=6, samples=1, prompt=5), UNIT, **ONE)
  both = first.followed_by(later)
  assert both.arithmetic == first.arithmetic + later.arithmetic > first.arithmetic
  assert both.memory == first.memory + later.memory
  assert both.useful == first.useful + later.useful
  assert both.update == first.update == later.update
  assert both.seconds == first.arithmetic + later.arithmetic + first.update


def test_full_rematerialisation_costs_arithmetic_and_memory():
  full = roofline(replace(STEP, remat="full"), UNIT, **ONE)
  none = roofline(STEP, UNIT, **ONE)
  forward = STEP.model_flops() / 3 - 2 * 10 * 16
  assert full.arithmetic - none.arithmetic == forward
  activations = 2 * 28 * 2 * (7 * 2 + 2 * 2 + 2 * 2 + 3 * 3)
  assert full.memory - none.memory == activations + 2 * 68


def test_a_compute_bound_step_of_a_large_model_stays_below_its_peak():
  qwen = Qwen2Config(
      vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_layers=28, num_heads=28,
      num_kv_heads=4, head_dim=128, max_positions=32768, tied=False)
  step = StepShape(
      config=qwen, rows=64, samples=16, prompt=2048, completion=512, micro_batches=1, remat="full",
      compute_bytes=2)
  result = roofline(step, find_accelerator("TPU v5"), data=1, fsdp=16, tensor=1)
  assert result.bound == "arithmetic"
  assert 0.7 < result.mfu < 0.76  # 6 of 8 operations and more, the rest is recomputation
