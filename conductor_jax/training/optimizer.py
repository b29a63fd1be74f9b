"""AdamW whose state is updated where it lies."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float


def adamw(
    schedule: optax.Schedule, *, b1: float, b2: float, weight_decay: float, mu_dtype: str,
    eps: float = 1e-8
) -> optax.GradientTransformationExtraArgs:
  """AdamW (arXiv 1711.05101), with optax's state and results.

  optax's own reads the old moments a second time for the update, for which XLA keeps a copy of
  both: as much memory again as the moments take. Here the update is computed from the new moments
  only, which lie where the old ones lay.

  The transformation's `update` takes `usable`; where it is False, the state stays as it is.

  Args:
    schedule: updates made → learning rate.
    b1: decay of the first moment.
    b2: decay of the second moment.
    weight_decay: decoupled.
    mu_dtype: of the first moment. The second has the parameters' dtype: in bfloat16 it would stand
      still, since a step moves it by less than one unit in the last place.
    eps: added to the root of the second moment.
  """
  def init(params):
    return optax.scale_by_adam(mu_dtype=mu_dtype).init(params)

  def update(gradient, state, params, *, usable: Bool[Array, ""]):
    count = state.count + usable

    def moment(decay, power):
      def one(gradient, old):
        new = decay * old.astype(jnp.float32) + (1 - decay) * gradient ** power
        return jnp.where(usable, new.astype(old.dtype), old)
      return one

    mu = jax.tree.map(moment(b1, 1), gradient, state.mu)
    nu = jax.tree.map(moment(b2, 2), gradient, state.nu)
    mu, nu = jax.lax.optimization_barrier((mu, nu))

    def change(mu, nu, param):
      mean = mu.astype(jnp.float32) / (1 - b1 ** count)
      root = jnp.sqrt(nu.astype(jnp.float32) / (1 - b2 ** count))
      # A product with 0 would keep an array of zeros through the whole step.
      decayed = weight_decay * param if weight_decay else 0.0
      return -schedule(state.count) * (mean / (root + eps) + decayed)

    return jax.tree.map(change, mu, nu, params), optax.ScaleByAdamState(count=count, mu=mu, nu=nu)

  return optax.GradientTransformationExtraArgs(init, update)


def clip_scale(norm: Float[Array, ""], limit: float) -> Float[Array, ""]:
  """What a gradient of this norm is multiplied by so that its norm is at most the limit."""
  return limit / jnp.maximum(norm, limit)


def make_schedule(
    *, learning_rate: float, steps: int, warmup_fraction: float, decay: str) -> optax.Schedule:
  """Learning rate of a step: linear warm-up from 0, then cosine decay to 0 or none.

  Args:
    learning_rate: the highest.
    steps: of the whole schedule.
    warmup_fraction: part of the steps in which the rate rises.
    decay: "cosine" or "none".
  """
  warmup = round(warmup_fraction * steps)
  schedules = {
      "cosine": lambda: optax.warmup_cosine_decay_schedule(0.0, learning_rate, warmup, steps),
      "none": lambda: optax.join_schedules(
          [optax.linear_schedule(0.0, learning_rate, warmup),
           optax.constant_schedule(learning_rate)], [warmup])}
  return schedules[decay]()
