"""Attention of rows: one prompt, and completions that see it and themselves.

Grouped queries (arXiv 2305.13245) in blocks: scores exist for one block of queries at a time, and
the backward pass computes them again from the saved log of the softmax's denominator
(FlashAttention, arXiv 2205.14135).
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float

# Queries whose scores exist at once, for every row and head.
BLOCK = 512

# What a rematerialisation policy calls the result of attention and its log-denominators.
ATTENDED = "attended"

_LOWEST = float(np.finfo(np.float32).min)


class KeyValues(NamedTuple):
  """Keys and values of one segment, [layers, …, positions, kv_heads, head_dim] when stacked."""

  keys: Array
  values: Array


class _Seen(NamedTuple):
  """What a block of queries sees, heads first.

  Attributes:
    prompt: keys and values [rows, kv_heads, prompt, head_dim]; None where there is no prompt.
    prompt_mask: bool[rows, prompt].
    own: keys and values [rows, kv_heads, samples, tokens, head_dim].
    own_mask: bool[queries, tokens].
  """

  prompt: KeyValues | None
  prompt_mask: Array | None
  own: KeyValues
  own_mask: Array


def _fold(x: Float[Array, "rows kv samples asking width"]) -> Float[Array, "rows kv all width"]:
  return x.reshape(*x.shape[:2], -1, x.shape[-1])


def _grouped(x: Array, kv_heads: int) -> Array:
  """[rows, samples, queries, heads, d] → [rows, kv_heads, samples, queries · groups, d]."""
  rows, samples, queries, heads, width = x.shape
  x = x.reshape(rows, samples, queries, kv_heads, heads // kv_heads, width)
  return x.transpose(0, 3, 1, 2, 4, 5).reshape(rows, kv_heads, samples, -1, width)


def _ungrouped(x: Array, queries: int) -> Array:
  """The inverse of `_grouped`."""
  rows, kv_heads, samples, asking, width = x.shape
  x = x.reshape(rows, kv_heads, samples, queries, asking // queries, width)
  return x.transpose(0, 2, 3, 1, 4, 5).reshape(rows, samples, queries, -1, width)


def _heads_first(kv: KeyValues) -> KeyValues:
  """[…, tokens, kv_heads, d] → [rows, kv_heads, …, tokens, d]."""
  return KeyValues(*(jnp.moveaxis(x, -2, 1) for x in kv))


def _scores(query: Array, seen: _Seen) -> tuple[Array | None, Array]:
  """Masked scores of scaled queries [rows, kv_heads, samples, asking, d], in float32."""
  groups = query.shape[3] // seen.own_mask.shape[0]
  own = jnp.einsum("rksad,rkstd->rksat", query, seen.own.keys, preferred_element_type=jnp.float32)
  own = jnp.where(jnp.repeat(seen.own_mask, groups, axis=0), own, _LOWEST)
  if seen.prompt is None:
    return None, own
  prompt = jnp.einsum(
      "rkad,rkpd->rkap", _fold(query), seen.prompt.keys, preferred_element_type=jnp.float32)
  prompt = jnp.where(seen.prompt_mask[:, None, None], prompt, _LOWEST)
  return prompt.reshape(*own.shape[:-1], -1), own


def _attend(query: Array, seen: _Seen) -> tuple[Array, Array]:
  """One softmax over all that is seen.

  Args:
    query: scaled, [rows, kv_heads, samples, asking, d].
    seen: keys and values.

  Returns:
    The mixed values, and the float32 logs of the denominators without their last axis.
  """
  to_prompt, to_own = _scores(query, seen)
  highest = to_own.max(-1)
  if to_prompt is not None:
    highest = jnp.maximum(highest, to_prompt.max(-1))
  own = jnp.exp(to_own - highest[..., None])
  total = own.sum(-1)
  mixed = jnp.einsum(
      "rksat,rkstd->rksad", own.astype(query.dtype), seen.own.values,
      preferred_element_type=jnp.float32)
  if to_prompt is not None:
    prompt = jnp.exp(to_prompt - highest[..., None])
    total += prompt.sum(-1)
    mixed += jnp.einsum(
        "rkap,rkpd->rkad", _fold(prompt.astype(query.dtype)), seen.prompt.values,
        preferred_element_type=jnp.float32).reshape(mixed.shape)
  return (mixed / total[..., None]).astype(query.dtype), highest + jnp.log(total)


def _attend_backward(
    query: Array, seen: _Seen, mixed: Array, log_total: Array, gradient: Array
) -> tuple[Array, KeyValues | None, KeyValues]:
  """Gradients of `_attend` to the scaled query, the prompt and the own segment, in float32."""
  wide = dict(preferred_element_type=jnp.float32)
  overlap = jnp.sum(gradient.astype(jnp.float32) * mixed.astype(jnp.float32), -1, keepdims=True)

  def of_scores(scores, of_probabilities):
    probabilities = jnp.exp(scores - log_total[..., None])
    return (probabilities.astype(query.dtype),
            (probabilities * (of_probabilities - overlap)).astype(query.dtype))

  to_prompt, to_own = _scores(query, seen)
  weights, of_own = of_scores(
      to_own, jnp.einsum("rksad,rkstd->rksat", gradient, seen.own.values, **wide))
  of_query = jnp.einsum("rksat,rkstd->rksad", of_own, seen.own.keys, **wide)
  own = KeyValues(
      jnp.einsum("rksat,rksad->rkstd", of_own, query, **wide),
      jnp.einsum("rksat,rksad->rkstd", weights, gradient, **wide))
  if to_prompt is None:
    return of_query, None, own
  weights, of_prompt = of_scores(
      to_prompt, jnp.einsum(
          "rkad,rkpd->rkap", _fold(gradient), seen.prompt.values, **wide).reshape(to_prompt.shape))
  weights, of_prompt = _fold(weights), _fold(of_prompt)
  of_query += jnp.einsum(
      "rkap,rkpd->rkad", of_prompt, seen.prompt.keys, **wide).reshape(of_query.shape)
  prompt = KeyValues(
      jnp.einsum("rkap,rkad->rkpd", of_prompt, _fold(query), **wide),
      jnp.einsum("rkap,rkad->rkpd", weights, _fold(gradient), **wide))
  return of_query, prompt, own


def _blocks(tokens: int) -> list[tuple[int, int]]:
  """Near-equal ranges of at most `BLOCK` queries."""
  count = -(-tokens // BLOCK)
  edges = [tokens * i // count for i in range(count + 1)]
  return list(zip(edges[:-1], edges[1:], strict=True))


def _seen_by(
    begin: int, end: int, prompt: KeyValues | None, prompt_mask: Array | None, own: KeyValues
) -> _Seen:
  """What the queries at [begin, end) see: what comes before, and themselves causally."""
  mask = jnp.arange(begin, end)[:, None] >= jnp.arange(end)
  return _Seen(prompt, prompt_mask, KeyValues(*(x[..., :end, :] for x in own)), mask)


def _turns(x: Array, count: int) -> Array:
  """[rows, kv_heads, samples, …] → [count, rows, kv_heads, samples / count, …]."""
  return jnp.moveaxis(x.reshape(*x.shape[:2], count, -1, *x.shape[3:]), 2, 0)


def _joined(x: Array) -> Array:
  """The inverse of `_turns`."""
  x = jnp.moveaxis(x, 0, 2)
  return x.reshape(*x.shape[:2], -1, *x.shape[4:])


def _turn_count(samples: int, tokens: int) -> int:
  """In how many turns samples are worked off so that a turn has at most `BLOCK` queries."""
  return next(n for n in range(1, samples + 1)
              if samples % n == 0 and (samples // n * tokens <= BLOCK or n == samples))


@jax.custom_vjp
def _causal(query: Array, prompt: KeyValues | None, prompt_mask: Array | None, own: KeyValues):
  """Completions, or prompts as rows of one sample, to what comes before and to themselves.

  Args:
    query: scaled and grouped.
    prompt: heads first, None where there is nothing before.
    prompt_mask: bool[rows, prompt].
    own: heads first, as many tokens as the query has.
  """
  return _causal_forward(query, prompt, prompt_mask, own)[0]


def _causal_forward(query, prompt, prompt_mask, own):
  samples, tokens = own.keys.shape[2:4]
  groups = query.shape[3] // tokens

  def turn(_, part):
    query, own = part
    blocks = [
        _attend(query[:, :, :, begin * groups:end * groups],
                _seen_by(begin, end, prompt, prompt_mask, own))
        for begin, end in _blocks(tokens)]
    return None, tuple(jnp.concatenate(x, axis=3) for x in zip(*blocks, strict=True))

  count = _turn_count(samples, tokens)
  _, (mixed, log_total) = jax.lax.scan(
      turn, None, jax.tree.map(partial(_turns, count=count), (query, own)))
  mixed = checkpoint_name(_joined(mixed), ATTENDED)
  log_total = checkpoint_name(_joined(log_total), ATTENDED)
  return mixed, (query, prompt, prompt_mask, own, mixed, log_total)


def _causal_backward(saved, gradient):
  query, prompt, prompt_mask, own, mixed, log_total = saved
  samples, tokens = own.keys.shape[2:4]
  groups = query.shape[3] // tokens

  def turn(of_prompt, part):
    query, own, mixed, log_total, gradient = part
    of_query = []
    of_own = jax.tree.map(partial(jnp.zeros_like, dtype=jnp.float32), own)
    for begin, end in _blocks(tokens):
      asking, *rest = (x[:, :, :, begin * groups:end * groups]
                       for x in (query, mixed, log_total, gradient))
      block_query, block_prompt, block_own = _attend_backward(
          asking, _seen_by(begin, end, prompt, prompt_mask, own), *rest)
      of_query.append(block_query)
      of_own = jax.tree.map(lambda x, y, end=end: x.at[..., :end, :].add(y), of_own, block_own)
      of_prompt = jax.tree.map(jnp.add, of_prompt, block_prompt)
    return of_prompt, (jnp.concatenate(of_query, axis=3).astype(query.dtype),
                       jax.tree.map(lambda x, like: x.astype(like.dtype), of_own, own))

  count = _turn_count(samples, tokens)
  of_prompt, (of_query, of_own) = jax.lax.scan(
      turn, jax.tree.map(partial(jnp.zeros_like, dtype=jnp.float32), prompt),
      jax.tree.map(partial(_turns, count=count), (query, own, mixed, log_total, gradient)))
  of_prompt = jax.tree.map(lambda x, like: x.astype(like.dtype), of_prompt, prompt)
  return _joined(of_query), of_prompt, None, jax.tree.map(_joined, of_own)


_causal.defvjp(_causal_forward, _causal_backward)


def attend_prompt(
    query: Float[Array, "rows prompt heads head_dim"], own: KeyValues
) -> Float[Array, "rows prompt heads head_dim"]:
  """Causal attention of a prompt to itself. Prompts are padded on the right, so no mask is due."""
  one = KeyValues(*(x[:, None] for x in own))
  return _attend_causally(query[:, None], None, None, one)[:, 0]


def attend_completions(
    query: Float[Array, "rows samples tokens heads head_dim"],
    prompt: KeyValues,
    prompt_mask: Bool[Array, "rows prompt"],
    own: KeyValues,
) -> Float[Array, "rows samples tokens heads head_dim"]:
  """Attention of completions to their row's prompt and causally to themselves, in one softmax.

  Args:
    query: of every completion token.
    prompt: keys and values [rows, prompt, kv_heads, head_dim].
    prompt_mask: which prompt tokens are real.
    own: keys and values [rows, samples, tokens, kv_heads, head_dim].
  """
  return _attend_causally(query, _heads_first(prompt), prompt_mask, own)


def _attend_causally(query, prompt, prompt_mask, own):
  scaled = _grouped(query * query.shape[-1] ** -0.5, own.keys.shape[-2])
  return _ungrouped(_causal(scaled, prompt, prompt_mask, _heads_first(own)), query.shape[2])


def attend_cache(
    query: Float[Array, "rows samples heads head_dim"],
    prompt: KeyValues,
    prompt_mask: Bool[Array, "rows prompt"],
    own: KeyValues,
    own_mask: Bool[Array, " tokens"],
) -> Float[Array, "rows samples heads head_dim"]:
  """Attention of one token of each completion to the row's prompt and to a cache.

  Args:
    query: of the tokens.
    prompt: keys and values [rows, prompt, kv_heads, head_dim].
    prompt_mask: which prompt tokens are real.
    own: keys and values [rows, samples, tokens, kv_heads, head_dim].
    own_mask: which entries of the cache are seen.
  """
  scaled = _grouped(query[:, :, None] * query.shape[-1] ** -0.5, own.keys.shape[-2])
  seen = _Seen(_heads_first(prompt), prompt_mask, _heads_first(own), own_mask[None])
  return _ungrouped(_attend(scaled, seen)[0], 1)[:, :, 0]
