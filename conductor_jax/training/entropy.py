"""Keeps the policy's entropy from falling below a target."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def steer_entropy(
    coefficient: Float[Array, ""], entropy: Float[Array, ""], *, target: float, rate: float,
    maximum: float
) -> Float[Array, ""]:
  """The next step's entropy coefficient: a fixed step up below the target, down above it.

      c' = clip(c + rate · sign(target − entropy), 0, maximum)

  After the adaptive entropy control of Skywork-OR1 (arXiv 2505.22312). There the bonus is also
  off wherever the entropy is above the target; a step that sees its batch in parts does not know
  that in time, so here the coefficient only falls. The bounds are ours: without an upper one the
  coefficient grows for as long as the entropy stays low.

  Args:
    coefficient: this step's.
    entropy: this step's, in nats, mean over tokens.
    target: nats.
    rate: how far the coefficient moves in a step.
    maximum: the largest coefficient.
  """
  return jnp.clip(coefficient + rate * jnp.sign(target - entropy), 0, maximum)
