"""A small model, a ragged batch, and a step whose optimizer does nothing but keep the gradient."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from conductor_jax.models.lora import LoraConfig, split_adapters
from conductor_jax.models.placement import Placement
from conductor_jax.models.qwen2 import Qwen2, Qwen2Config
from conductor_jax.training.batch import Group, GroupedBatch
from conductor_jax.training.grpo import grpo_loss
from conductor_jax.training.logprobs import batch_statistics
from conductor_jax.training.sharding import MESH_AXES, abstract, parameter_shardings
from conductor_jax.training.step import TrainState, TrainStep, initial_state

CONFIG = Qwen2Config(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_layers=2, num_heads=4,
    num_kv_heads=2, head_dim=4, max_positions=32, tied=False)
LORA = LoraConfig(rank=2, alpha=3.0, targets=("query", "value", "output", "down"))
GRPO = {
    "aggregation": "token", "max_tokens": 8, "ratio": "token", "clip_low": 0.2, "clip_high": 0.3,
    "dual_clip": 0.0, "importance_cap": 0.0, "kl_estimator": "exact", "kl_coefficient": 0.5,
    "entropy_coefficient": None}


@dataclass(frozen=True)
class Case:
  """What a step minimises, and of what.

  Attributes:
    loss: options of `grpo_loss` that differ from `GRPO`.
    lora: whether adapters are trained, beside a frozen base in bfloat16.
    reference: whether there is a KL term.
    tied: whether the output head is the embedding.
  """

  loss: Mapping[str, Any]
  lora: bool = False
  reference: bool = False
  tied: bool = False


CASES = {
    "policy alone": Case({}, tied=True),
    "KL and entropy": Case(
        {"aggregation": "sequence", "entropy_coefficient": 0.3}, reference=True),
    "adapters": Case({"kl_estimator": "k3"}, lora=True, reference=True),
}


def grid(*sizes: int) -> Mesh:
  """A mesh of the first devices there are."""
  return Mesh(np.array(jax.devices()[:np.prod(sizes)]).reshape(sizes), MESH_AXES)


def build(case: Case, placement: Placement) -> Qwen2:
  return Qwen2(
      replace(CONFIG, tied=case.tied), compute_dtype="float32", remat="dots",
      param_dtype="bfloat16" if case.lora else "float32", lora=LORA if case.lora else None,
      placement=placement, rngs=nnx.Rngs(0))


def random_parameters(mesh: Mesh, shapes: dict, seed: int) -> dict:
  """Parameters of which none is 0, adapters included, on the mesh."""
  generator = np.random.default_rng(seed)

  def values(path, shape):
    centre = 1.0 if "norm" in path[-1].key else 0.0
    return generator.normal(centre, 0.2, shape.shape).astype(shape.dtype)

  return jax.tree.map(
      lambda value, sharding: jax.make_array_from_callback(
          value.shape, sharding, lambda index: value[index]),
      jax.tree_util.tree_map_with_path(values, shapes), parameter_shardings(mesh, shapes))


def groups() -> list[Group]:
  """Four ragged groups of four completions, one of them rejected."""
  generator = np.random.default_rng(1)
  found = []
  for width in (3, 6, 1, 5):
    lengths = generator.integers(1, 9, size=4)
    found.append(Group(
        prompt_tokens=generator.integers(32, size=width),
        completion_tokens=[generator.integers(32, size=n) for n in lengths],
        sampler_logprobs=[generator.normal(-3.5, 0.5, n) for n in lengths],
        advantages=np.zeros(4), accepted=np.arange(4) != width))
  return [replace(group, advantages=generator.normal(size=4)) for group in found]


class Kept(NamedTuple):
  count: jax.Array
  gradient: dict


def keep_gradient() -> optax.GradientTransformationExtraArgs:
  """Changes no parameter; its state is the gradient."""
  def init(params):
    return Kept(jnp.int32(0), jax.tree.map(jnp.zeros_like, params))

  def update(gradient, state, params, *, usable):
    del usable
    return jax.tree.map(jnp.zeros_like, params), Kept(state.count + 1, gradient)

  return optax.GradientTransformationExtraArgs(init, update)


def make(
    case: Case, mesh: Mesh, optimizer: optax.GradientTransformationExtraArgs, *,
    micro_batches: int = 1, **options
) -> tuple[TrainStep, TrainState, dict | None]:
  """A step for the case, a first state, and what is frozen."""
  graph, shapes = abstract(mesh, partial(build, case))
  params, reference = (random_parameters(mesh, shapes, seed) for seed in (0, 1))
  frozen = None
  if case.lora:
    params, frozen = split_adapters(params)
    reference, _ = split_adapters(reference)
  state = initial_state(mesh, params, optimizer, entropy_coefficient=0.1)

  def loss(statistics, batch, counts, state):
    del state
    return grpo_loss(statistics, batch, counts, **{**GRPO, **case.loss})

  step = TrainStep(
      partial(batch_statistics, graph=graph, temperature=0.8, chunk=16), loss, optimizer,
      optax.constant_schedule(1e-2), mesh=mesh, state=state, frozen=frozen,
      reference=reference if case.reference else None, micro_batches=micro_batches,
      **{"clip_norm": 1e9, **options})
  return step, state, frozen


def loss_and_gradient(
    case: Case, mesh: Mesh, batch: GroupedBatch, micro_batches: int = 1) -> tuple[float, dict]:
  step, state, _ = make(case, mesh, keep_gradient(), micro_batches=micro_batches)
  state, measurements = step(state, batch)
  return float(measurements["loss"]), jax.tree.map(np.asarray, state.optimizer.gradient)


def largest_difference(first: dict, second: dict) -> float:
  """Of any entry, as a part of the largest entry there is in the second."""
  def largest(tree):
    return max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(tree))

  return largest(jax.tree.map(np.subtract, first, second)) / largest(second)
