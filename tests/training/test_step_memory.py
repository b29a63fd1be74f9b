"""What a step needs beside its state, read off the compiled program."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

from conductor_jax.models.placement import Placement
from conductor_jax.models.qwen2 import Qwen2, Qwen2Config
from conductor_jax.training.batch import GroupedBatch
from conductor_jax.training.logprobs import batch_statistics
from conductor_jax.training.optimizer import adamw
from conductor_jax.training.sft import likelihood_loss
from conductor_jax.training.sharding import abstract
from conductor_jax.training.step import TrainStep, abstract_state
from tests.training.gradient_steps import grid

# Parameters outweigh the activations of a few tokens by far, and a layer is a small part of them.
CONFIG = Qwen2Config(
    vocab_size=256, hidden_size=256, intermediate_size=1024, num_layers=16, num_heads=4,
    num_kv_heads=2, head_dim=64, max_positions=32, tied=False)
MICRO_BATCHES = 4


@pytest.fixture(scope="module")
def step():
  """Bytes of the parameters, and (batches in shapes) → memory of the compiled programs of a step
  in four micro-batches."""
  def build(placement: Placement):
    return Qwen2(
        CONFIG, compute_dtype="float32", remat="full", placement=placement, rngs=nnx.Rngs(0))

  def loss(statistics, batch, counts, state):
    del state
    return likelihood_loss(statistics, batch, counts)

  mesh = grid(1, 1, 1)
  graph, params = abstract(mesh, build)
  schedule = optax.constant_schedule(1e-2)
  optimizer = adamw(schedule, b1=0.9, b2=0.99, weight_decay=0.1, mu_dtype="float32")
  state = abstract_state(mesh, params, optimizer)
  step = TrainStep(
      partial(batch_statistics, graph=graph, temperature=1.0, chunk=8), loss, optimizer, schedule,
      clip_norm=1.0, mesh=mesh, state=state, micro_batches=MICRO_BATCHES,
      later_micro_batches=MICRO_BATCHES)
  own = sum(4 * leaf.size for leaf in jax.tree.leaves(params))

  def memory(*batches: GroupedBatch):
    return [each.compile().memory_analysis() for each in step.lower(state, *batches)]

  return own, memory


def rows(samples: int, prompt: int = 4) -> GroupedBatch:
  """A batch in shapes, one row in each micro-batch."""
  def shape(dtype, *sizes):
    return jax.ShapeDtypeStruct((MICRO_BATCHES, *sizes), dtype)

  return GroupedBatch(
      prompt_tokens=shape(jnp.int32, prompt), prompt_mask=shape(bool, prompt),
      completion_tokens=shape(jnp.int32, samples, 4), completion_mask=shape(bool, samples, 4),
      advantages=shape(jnp.float32, samples, 4), sampler_logprobs=shape(jnp.float32, samples, 4))


@pytest.fixture(scope="module")
def alone(step):
  own, memory = step
  analysis, = memory(rows(2))
  return own, analysis


@pytest.fixture(scope="module")
def with_a_later_batch(step):
  own, memory = step
  return own, memory(rows(2), rows(1, prompt=8))


def test_micro_batches_add_to_one_gradient_and_there_is_never_a_second(alone):
  own, analysis = alone
  # The gradient, and what one layer of sixteen adds to it. A second gradient makes it 2.06.
  assert own < analysis.temp_size_in_bytes < 1.2 * own


def test_parameters_and_both_moments_are_updated_where_they_lie(alone):
  own, analysis = alone
  assert 3 * own <= analysis.alias_size_in_bytes <= analysis.output_size_in_bytes < 3.001 * own


def test_a_step_on_two_batches_never_needs_more_than_its_state_one_gradient_and_a_layer(
    with_a_later_batch):
  own, (begin, go_on, finish) = with_a_later_batch
  for program in (begin, go_on):
    # The state lies there while gradients are made, with both moments, and is counted.
    needed = (program.argument_size_in_bytes + program.temp_size_in_bytes
              + program.output_size_in_bytes - program.alias_size_in_bytes)
    assert 4 * own < needed < 4.2 * own
  # The second batch adds to the gradient of the first one where it lies.
  assert own <= go_on.alias_size_in_bytes < 1.001 * own
  assert go_on.temp_size_in_bytes < 0.2 * own
  assert finish.temp_size_in_bytes < 0.01 * own
  assert 3 * own <= finish.alias_size_in_bytes <= finish.output_size_in_bytes < 3.001 * own
