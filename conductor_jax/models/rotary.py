"""Rotary positions (arXiv 2104.09864)."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


def rotary(positions: Int[Array, "..."], head_dim: int, theta: float) -> tuple[Array, Array]:
  """Cosine and sine of the rotary angles, float32[..., head_dim / 2] (arXiv 2104.09864)."""
  frequencies = theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
  angles = positions[..., None].astype(jnp.float32) * frequencies
  return jnp.cos(angles), jnp.sin(angles)


def rotate(x: Float[Array, "... heads head_dim"], angles: tuple[Array, Array]) -> Array:
  """Rotates the pair (x[i], x[i + head_dim / 2]) of every head by its position's angle."""
  cos, sin = (a[..., None, :] for a in angles)
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  return jnp.concatenate(
      [first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def recency_bias(
    heads: int, head_dim: int, rope_theta: float, *, every: int, strength: float = 1.0
) -> Float[Array, " heads*head_dim"]:
  """Initial biases of queries or keys: from the start, some heads look at what is near.

  Where both have it, the score of a token at distance d has the part strength · Σ cos(d·θᵢ), over
  the rotary frequencies θᵢ with wavelengths of 16 to 512 tokens; it is largest at d = 0. Without,
  attention starts uniform over the prompt, and the first signal from any one token is as weak as
  the prompt is long.

  Args:
    heads: how many.
    head_dim: width of a head.
    rope_theta: base of the rotary frequencies.
    every: which heads have it: 1 is all, 2 every other one.
    strength: of the part above.
  """
  half = head_dim // 2
  wavelengths = 2 * np.pi * rope_theta ** (np.arange(half) / half)
  chosen = (16 <= wavelengths) & (wavelengths <= 512)
  size = np.sqrt(strength * np.sqrt(head_dim) / 2)
  head = np.tile(np.where(chosen, size, 0.0), 2)
  biased = np.arange(heads) % every == 0
  return jnp.asarray(np.outer(biased, head).reshape(-1), jnp.float32)
