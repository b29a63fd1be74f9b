"""One optimizer step, for any loss over a `GroupedBatch`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from conductor_jax.training.batch import Counts, GroupedBatch, batch_counts
from conductor_jax.training.batch import Measurements as LossMeasurements
from conductor_jax.training.logprobs import Params, TokenStatistics
from conductor_jax.training.sharding import batch_sharding, parameter_shardings, replicated

Measurements = dict[str, jax.Array]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
  """What a step changes.

  Attributes:
    params: float32 master weights.
    optimizer: the optimizer's state.
    step: steps taken, skipped ones included.
    skipped: steps in a row, up to the last one, that were skipped for a non-finite gradient.
  """

  params: Params
  optimizer: optax.OptState
  step: jax.Array
  skipped: jax.Array


def make_optimizer(
    *, learning_rate: float, steps: int, warmup_fraction: float, decay: str, b1: float, b2: float,
    weight_decay: float, clip_norm: float
) -> tuple[optax.GradientTransformation, optax.Schedule]:
  """AdamW behind a global-norm clip, with linear warm-up, then cosine decay to 0 or none.

  Returns:
    The transformation, and its schedule: step → learning rate.
  """
  warmup = round(warmup_fraction * steps)
  if decay == "cosine":
    schedule = optax.warmup_cosine_decay_schedule(0.0, learning_rate, warmup, steps)
  else:
    schedule = optax.join_schedules(
        [optax.linear_schedule(0.0, learning_rate, warmup),
         optax.constant_schedule(learning_rate)], [warmup])
  return optax.chain(
      optax.clip_by_global_norm(clip_norm),
      optax.adamw(schedule, b1=b1, b2=b2, weight_decay=weight_decay)), schedule


def initial_state(
    mesh: Mesh, params: Params, optimizer: optax.GradientTransformation) -> TrainState:
  """A fresh state around parameters that are on the mesh already."""
  shardings = parameter_shardings(mesh, jax.eval_shape(optimizer.init, params))
  return TrainState(
      params=params,
      optimizer=jax.jit(optimizer.init, out_shardings=shardings)(params),
      step=jax.device_put(jnp.int32(0), replicated(mesh)),
      skipped=jax.device_put(jnp.int32(0), replicated(mesh)))


Loss = Callable[
    [TokenStatistics, GroupedBatch, Counts, TrainState], tuple[jax.Array, LossMeasurements]]


def make_step(
    loss: Loss,
    statistics: Callable[[Params, Params | None, GroupedBatch], TokenStatistics],
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
    mesh: Mesh,
    state: TrainState,
) -> Callable[[TrainState, Params | None, GroupedBatch], tuple[TrainState, Measurements]]:
  """Compiles one step. The state is donated.

  A step whose loss or gradient is not finite changes nothing but its own counters.

  Args:
    loss: a pure function of arrays.
    statistics: (params, reference, batch) → what the loss reads of the model.
    optimizer: what to do with the gradient.
    schedule: the optimizer's, for the record.
    mesh: where everything lives.
    state: one that tells the shardings.

  Returns:
    (state, reference, batch) → (state, measurements).
  """
  shardings = parameter_shardings(mesh, state)

  @partial(jax.jit, donate_argnums=0, out_shardings=(shardings, replicated(mesh)))
  def step(state, reference, batch):
    counts = batch_counts(batch)

    def objective(params):
      value, measurements = loss(statistics(params, reference, batch), batch, counts, state)
      return value, measurements.sums | measurements.maxima

    (value, measurements), gradient = jax.value_and_grad(objective, has_aux=True)(state.params)
    norm = optax.tree.norm(gradient)
    finite = jnp.isfinite(value) & jnp.isfinite(norm)
    updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)

    def keep(new, old):
      return jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, old)

    # Skipped steps do not move the optimizer's own count, which is what its schedule reads.
    (_, count), *_ = optax.tree_utils.tree_get_all_with_path(state.optimizer, "count")
    measurements |= {
        "loss": value, "grad_norm": norm, "learning_rate": schedule(count),
        "skipped": (~finite).astype(jnp.float32)}
    return TrainState(
        params=keep(params, state.params),
        optimizer=keep(optimizer_state, state.optimizer),
        step=state.step + 1,
        skipped=jnp.where(finite, 0, state.skipped + 1)), measurements

  def put_and_step(state, reference, batch):
    return step(state, reference, jax.device_put(batch, batch_sharding(mesh)))

  return put_and_step
