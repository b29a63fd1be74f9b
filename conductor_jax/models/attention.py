"""Attention of rows: one prompt, and completions that see it and themselves.

Grouped queries (arXiv 2305.13245) with rotary positions (arXiv 2104.09864).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class KeyValues(NamedTuple):
  """Keys and values of one segment, [layers, …, positions, kv_heads, head_dim] when stacked."""

  keys: Array
  values: Array


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


def attend_prompt(
    query: Float[Array, "rows prompt heads head_dim"], own: KeyValues
) -> Float[Array, "rows prompt heads head_dim"]:
  """Causal attention of a prompt to itself. Prompts are padded on the right, so no mask is due."""
  return jax.nn.dot_product_attention(query, own.keys, own.values, is_causal=True)


def attend_completions(
    query: Float[Array, "rows samples queries heads head_dim"],
    prompt: KeyValues,
    prompt_mask: Bool[Array, "rows prompt"],
    own: KeyValues,
    own_mask: Bool[Array, "queries tokens"],
) -> Float[Array, "rows samples queries heads head_dim"]:
  """Attention of completions to their row's prompt and to themselves, one softmax over both.

  Args:
    query: queries of every completion.
    prompt: keys and values [rows, prompt, kv_heads, head_dim].
    prompt_mask: which prompt tokens are real.
    own: keys and values [rows, samples, tokens, kv_heads, head_dim].
    own_mask: which of its own tokens a query may see.
  """
  rows, samples, queries, heads, head_dim = query.shape
  kv_heads = prompt.keys.shape[-2]
  groups = heads // kv_heads
  # Matrices [row, kv head, everything that asks, head_dim]: one large product with the prompt.
  asking = query.reshape(rows, samples, queries, kv_heads, groups, head_dim) * head_dim ** -0.5
  asking = asking.transpose(0, 3, 1, 2, 4, 5).reshape(rows, kv_heads, -1, head_dim)
  prompt_keys, prompt_values = (x.transpose(0, 2, 1, 3) for x in prompt)
  own_keys, own_values = (x.transpose(0, 3, 1, 2, 4) for x in own)
  own_shape = (rows, kv_heads, samples, queries * groups)
  lowest = jnp.finfo(jnp.float32).min

  to_prompt = jnp.einsum(
      "rkad,rkpd->rkap", asking, prompt_keys, preferred_element_type=jnp.float32)
  to_prompt = jnp.where(prompt_mask[:, None, None], to_prompt, lowest)
  to_own = jnp.einsum(
      "rksad,rkstd->rksat", asking.reshape(*own_shape, head_dim), own_keys,
      preferred_element_type=jnp.float32)
  to_own = jnp.where(jnp.repeat(own_mask, groups, axis=0), to_own, lowest)

  highest = jnp.maximum(to_prompt.max(-1), to_own.max(-1).reshape(to_prompt.shape[:-1]))
  highest = jax.lax.stop_gradient(highest)
  to_prompt = jnp.exp(to_prompt - highest[..., None])
  to_own = jnp.exp(to_own - highest.reshape(*own_shape, 1))
  total = to_prompt.sum(-1) + to_own.sum(-1).reshape(highest.shape)
  mixed = jnp.einsum("rkap,rkpd->rkad", to_prompt.astype(query.dtype), prompt_values)
  mixed += jnp.einsum(
      "rksat,rkstd->rksad", to_own.astype(query.dtype), own_values).reshape(mixed.shape)
  mixed = (mixed / total[..., None]).astype(query.dtype)
  mixed = mixed.reshape(rows, kv_heads, samples, queries, groups, head_dim)
  return mixed.transpose(0, 2, 3, 1, 4, 5).reshape(query.shape)


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
