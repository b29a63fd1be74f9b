"""One optimizer step, for any loss over the statistics of `GroupedBatch`es."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from conductor_jax.models.lora import merge_trees
from conductor_jax.training.batch import Counts, GroupedBatch, Measurements, batch_counts
from conductor_jax.training.logprobs import Params, TokenStatistics
from conductor_jax.training.optimizer import clip_scale
from conductor_jax.training.sharding import (
    batch_sharding,
    parameter_shardings,
    place_batch,
    place_counts,
    replicated,
    sharded_shapes,
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
  """What a step changes.

  Attributes:
    params: what is trained, master weights.
    optimizer: the optimizer's state.
    step: steps taken, skipped ones included.
    skipped: steps in a row, up to the last one, that were skipped for a non-finite gradient.
    entropy_coefficient: weight of the entropy bonus at the next step.
  """

  params: Params
  optimizer: optax.OptState
  step: jax.Array
  skipped: jax.Array
  entropy_coefficient: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Gradient:
  """What comes of a batch.

  Attributes:
    totals: the gradient, float32, shaped like what is trained.
    loss: its value.
    counts: whether any token does.
    sums, maxima: see `Measurements`.
  """

  totals: Params
  loss: jax.Array
  counts: jax.Array
  sums: dict[str, jax.Array]
  maxima: dict[str, jax.Array]

  def after(self, before: "_Gradient") -> "_Gradient":
    """Of both batches; the totals have been added up already."""
    return _Gradient(
        self.totals, self.loss + before.loss, self.counts | before.counts,
        jax.tree.map(jnp.add, self.sums, before.sums),
        jax.tree.map(jnp.maximum, self.maxima, before.maxima))


Statistics = Callable[[Params, Params | None, GroupedBatch], TokenStatistics]
Loss = Callable[
    [TokenStatistics, GroupedBatch, Counts, TrainState], tuple[jax.Array, Measurements]]


def initial_state(
    mesh: Mesh, params: Params, optimizer: optax.GradientTransformation, *,
    entropy_coefficient: float = 0.0
) -> TrainState:
  """A fresh state around parameters that are on the mesh already."""
  state = abstract_state(mesh, params, optimizer)
  shardings = jax.tree.map(lambda x: x.sharding, state.optimizer)

  def scalar(value, dtype):
    return jax.device_put(jnp.asarray(value, dtype), replicated(mesh))

  return TrainState(
      params=params, optimizer=jax.jit(optimizer.init, out_shardings=shardings)(params),
      step=scalar(0, jnp.int32), skipped=scalar(0, jnp.int32),
      entropy_coefficient=scalar(entropy_coefficient, jnp.float32))


def abstract_state(
    mesh: Mesh, params: Params, optimizer: optax.GradientTransformation) -> TrainState:
  """Shapes, dtypes and shardings of a state around such parameters."""
  def scalar(dtype):
    return jax.ShapeDtypeStruct((), dtype)

  return sharded_shapes(mesh, TrainState(
      params=params, optimizer=jax.eval_shape(optimizer.init, params), step=scalar(jnp.int32),
      skipped=scalar(jnp.int32), entropy_coefficient=scalar(jnp.float32)))


class TrainStep:
  """One compiled step: (state, batch) → (state, measurements). The state is donated.

  The gradient of every micro-batch is added into one set of float32 arrays as the backward pass
  goes, so that there is never a second one. A later batch, whose rows have another shape, is a part
  of the same batch as far as losses and counts go. A step whose loss or gradient is not finite, or
  whose batches have no token that counts, changes nothing but its own counters.

  Args:
    statistics: (parameters, reference, batch) → what the policy says of the batch's tokens.
    loss: of these statistics.
    optimizer: what to do with the clipped gradient; its `update` takes `usable`, and its state
      stays as it is where that is False.
    schedule: the optimizer's, for the record.
    clip_norm: largest norm of the gradient.
    mesh: where everything lives.
    state: one that tells shapes and shardings.
    frozen: parameters beside those that are trained; None for none.
    reference: of a KL term, shaped like the trained parameters; None for none.
    micro_batches: parts of a batch that are worked off one after the other.
    later_micro_batches: of a later one.
    steer_entropy: (coefficient, entropy) → the entropy bonus's next coefficient; None keeps it.
  """

  def __init__(
      self, statistics: Statistics, loss: Loss,
      optimizer: optax.GradientTransformationExtraArgs, schedule: optax.Schedule, *,
      clip_norm: float, mesh: Mesh, state: TrainState, frozen: Params | None = None,
      reference: Params | None = None, micro_batches: int = 1, later_micro_batches: int = 1,
      steer_entropy: Callable[[jax.Array, jax.Array], jax.Array] | None = None):
    self._mesh, self._frozen, self._reference = mesh, frozen, reference
    self._micro_batches = (micro_batches, later_micro_batches)

    def gradient(state, frozen, reference, counts, batch, before):
      totals = jax.tree.map(jax.new_ref, before.totals if before is not None else jax.tree.map(
          lambda p: jnp.zeros(p.shape, jnp.float32), state.params))

      def micro_batch(_, part):
        def value(params):
          measured = statistics(
              merge_trees(params, frozen),
              None if reference is None else merge_trees(reference, frozen), part)
          return loss(measured, part, counts, state)

        value, pull, measurements = jax.vjp(value, state.params, has_aux=True)
        pull.with_refs(totals)(jnp.ones_like(value))
        return None, (value, measurements)

      _, (values, measurements) = jax.lax.scan(micro_batch, None, batch)
      found = _Gradient(
          jax.tree.map(jax.freeze, totals), values.sum(), batch.completion_mask.any(),
          {name: x.sum() for name, x in measurements.sums.items()},
          {name: x.max() for name, x in measurements.maxima.items()})
      return found if before is None else found.after(before)

    def finish(state, found):
      norm = optax.tree.norm(found.totals)
      finite = jnp.isfinite(found.loss) & jnp.isfinite(norm)
      # Momentum would move a policy that learns nothing from its batch.
      usable = finite & found.counts
      scale = clip_scale(norm, clip_norm)
      updates, optimizer_state = optimizer.update(
          jax.tree.map(lambda g: g * scale, found.totals), state.optimizer, state.params,
          usable=usable)
      params = jax.tree.map(
          lambda p, u: jnp.where(usable, (p + u).astype(p.dtype), p), state.params, updates)

      count = optax.tree.get(state.optimizer, "count")
      coefficient = state.entropy_coefficient
      if steer_entropy is not None:
        coefficient = jnp.where(
            usable, steer_entropy(coefficient, found.sums["entropy"]), coefficient)
      measurements = found.sums | found.maxima | {
          "loss": found.loss, "grad_norm": norm, "learning_rate": schedule(count),
          "skipped": (~finite).astype(jnp.float32),
          "entropy_coefficient": state.entropy_coefficient}
      return TrainState(
          params=params, optimizer=optimizer_state,
          step=state.step + 1,
          skipped=jnp.where(finite, 0, state.skipped + 1),
          entropy_coefficient=coefficient), measurements

    def shardings(tree):
      return parameter_shardings(mesh, tree)

    def step(state, *arguments):
      return finish(state, gradient(state, *arguments, before=None))

    arguments = (shardings(state), shardings(frozen), shardings(reference), replicated(mesh),
                 batch_sharding(mesh))
    stepped = (shardings(state), replicated(mesh))
    found = _Gradient(shardings(state.params), *[replicated(mesh)] * 4)
    self._step = jax.jit(
        step, donate_argnums=0, in_shardings=arguments, out_shardings=stepped)
    # The same for two batches. In one program there would have to be one for each combination of
    # their shapes. What they do not use of the state takes memory all the same, and is counted.
    self._begin = jax.jit(
        partial(gradient, before=None), in_shardings=arguments, out_shardings=found,
        keep_unused=True)
    self._go_on = jax.jit(
        gradient, donate_argnums=5, in_shardings=(*arguments, found), out_shardings=found,
        keep_unused=True)
    self._finish = jax.jit(
        finish, donate_argnums=0, in_shardings=(shardings(state), found), out_shardings=stepped)

  def __call__(
      self, state: TrainState, batch: GroupedBatch, later: GroupedBatch | None = None
  ) -> tuple[TrainState, dict[str, jax.Array]]:
    parts, later_parts = self._micro_batches
    counts = batch_counts(batch, *() if later is None else (later,))
    arguments = (state, self._frozen, self._reference, place_counts(self._mesh, counts))
    batch = place_batch(self._mesh, batch, parts)
    if later is None:
      return self._step(*arguments, batch)
    found = self._begin(*arguments, batch)
    found = self._go_on(*arguments, place_batch(self._mesh, later, later_parts), found)
    return self._finish(state, found)

  def lower(
      self, state: Any, batch: GroupedBatch, later: GroupedBatch | None = None
  ) -> list[jax.stages.Lowered]:
    """Lowers the step's programs for abstract arguments.

    Args:
      state: from `abstract_state`.
      batch, later: shapes and dtypes.
    """
    def in_parts(batch, parts):
      return jax.tree.map(lambda x: jax.ShapeDtypeStruct(
          (parts, x.shape[0] // parts, *x.shape[1:]), x.dtype,
          sharding=batch_sharding(self._mesh)), batch)

    count = jax.ShapeDtypeStruct((), jnp.float32, sharding=replicated(self._mesh))
    arguments = (state, self._frozen, self._reference, Counts(count, count))
    batch = in_parts(batch, self._micro_batches[0])
    if later is None:
      return [self._step.lower(*arguments, batch)]
    begin = self._begin.lower(*arguments, batch)
    found = sharded_shapes(self._mesh, jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), begin.out_info))
    go_on = self._go_on.lower(*arguments, in_parts(later, self._micro_batches[1]), found)
    return [begin, go_on, self._finish.lower(state, found)]
