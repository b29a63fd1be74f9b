"""Qwen2 in Flax NNX: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

The forward pass knows rows: one prompt and S completions that continue it. The prompt is computed
once; every completion attends to it and to itself, at positions that continue the prompt's. This
equals the ordinary forward pass over the S expanded sequences exactly, since a causal prompt never
depends on what follows it.

Layers are stacked on a leading axis and scanned, so compile time does not grow with depth.
Architecture: Qwen2 technical report, arXiv 2407.10671.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from conductor_jax.models.attention import (
    KeyValues,
    attend_completions,
    attend_prompt,
    recency_bias,
    rotary,
    rotate,
)

# Logical axes of every parameter; layer parameters have a leading "layers" axis.
PARAMETER_AXES = {
    "embedding": ("vocab", "embed"),
    "head": ("embed", "vocab"),
    "final_norm": ("embed",),
    "attention_norm": ("layers", "embed"),
    "query": ("layers", "embed", "heads"),
    "query_bias": ("layers", "heads"),
    "key": ("layers", "embed", "kv_heads"),
    "key_bias": ("layers", "kv_heads"),
    "value": ("layers", "embed", "kv_heads"),
    "value_bias": ("layers", "kv_heads"),
    "output": ("layers", "heads", "embed"),
    "mlp_norm": ("layers", "embed"),
    "gate": ("layers", "embed", "mlp"),
    "up": ("layers", "embed", "mlp"),
    "down": ("layers", "mlp", "embed"),
}

REMAT_POLICIES: dict[str, Callable | None] = {
    "none": None,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


@dataclass(frozen=True)
class Qwen2Config:
  """The shape of a model.

  Attributes:
    vocab_size: rows of the embedding.
    hidden_size: width of the residual stream.
    intermediate_size: width of the SwiGLU.
    num_layers: decoder layers.
    num_heads: query heads.
    num_kv_heads: key and value heads; divides `num_heads`.
    head_dim: width of a head.
    max_positions: longest sequence the model is meant for.
    rope_theta: base of the rotary frequencies.
    norm_eps: added to the mean square in RMSNorm.
    tied: whether the output head is the embedding.
  """

  vocab_size: int
  hidden_size: int
  intermediate_size: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  max_positions: int
  rope_theta: float = 1_000_000.0
  norm_eps: float = 1e-6
  tied: bool = True


def rms_norm(x: Float[Array, "... embed"], scale: Float[Array, " embed"], eps: float) -> Array:
  """x / sqrt(mean(x²) + eps) · scale, computed in float32."""
  wide = x.astype(jnp.float32)
  normed = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + eps)
  return (normed * scale).astype(x.dtype)


def multiply(x: Float[Array, "... inputs"], kernel: nnx.Param) -> Float[Array, "... outputs"]:
  """x @ kernel over flattened tokens.

  With several batch axes XLA's CPU backend computes the kernel's gradient off its fast path, three
  times slower.
  """
  flat = x.reshape(-1, x.shape[-1]) @ kernel[...].astype(x.dtype)
  return flat.reshape(*x.shape[:-1], -1)


class DecoderLayer(nnx.Module):
  """One decoder layer: pre-norm attention and pre-norm SwiGLU, each on the residual stream."""

  def __init__(self, config: Qwen2Config, rngs: nnx.Rngs):
    self.config = config
    width, mlp = config.hidden_size, config.intermediate_size
    heads = config.num_heads * config.head_dim
    kv_heads = config.num_kv_heads * config.head_dim

    def weight(*shape):
      return nnx.Param(nnx.initializers.lecun_normal()(rngs.params(), shape, jnp.float32))

    self.attention_norm = nnx.Param(jnp.ones(width))
    self.query = weight(width, heads)
    self.query_bias = nnx.Param(recency_bias(
        config.num_heads, config.head_dim, config.rope_theta, every=2))
    self.key = weight(width, kv_heads)
    self.key_bias = nnx.Param(recency_bias(
        config.num_kv_heads, config.head_dim, config.rope_theta, every=1))
    self.value, self.value_bias = weight(width, kv_heads), nnx.Param(jnp.zeros(kv_heads))
    self.output = weight(heads, width)
    self.mlp_norm = nnx.Param(jnp.ones(width))
    self.gate, self.up, self.down = weight(width, mlp), weight(width, mlp), weight(mlp, width)

  def project(self, x: Float[Array, "... embed"], angles: tuple[Array, Array]):
    """Rotated queries, and keys and values, of normed inputs."""
    config = self.config
    x = rms_norm(x, self.attention_norm[...], config.norm_eps)

    def heads(kernel, bias, count):
      y = multiply(x, kernel) + bias[...].astype(x.dtype)
      return y.reshape(*x.shape[:-1], count, config.head_dim)

    query = rotate(heads(self.query, self.query_bias, config.num_heads), angles)
    key = rotate(heads(self.key, self.key_bias, config.num_kv_heads), angles)
    return query, KeyValues(key, heads(self.value, self.value_bias, config.num_kv_heads))

  def finish(self, x: Float[Array, "... embed"], attended: Float[Array, "... heads head_dim"]):
    """Adds the attention's output and the SwiGLU's to the residual stream."""
    x = x + multiply(attended.reshape(*x.shape[:-1], -1), self.output)
    y = rms_norm(x, self.mlp_norm[...], self.config.norm_eps)
    gated = jax.nn.silu(multiply(y, self.gate)) * multiply(y, self.up)
    return x + multiply(gated, self.down)


class Qwen2(nnx.Module):
  """A Qwen2 language model with float32 parameters.

  Args:
    config: the shape.
    compute_dtype: dtype of activations and of the weights as they enter a product.
    remat: what the backward pass keeps: "none" recomputes nothing, "dots" keeps the outputs of
      weight products, "full" keeps only the residual stream between layers.
  """

  def __init__(self, config: Qwen2Config, *, compute_dtype: str, remat: str, rngs: nnx.Rngs):
    self.config, self.compute_dtype, self.remat = config, compute_dtype, remat

    def weight(std, *shape):
      return nnx.Param(nnx.initializers.normal(std)(rngs.params(), shape, jnp.float32))

    # Large enough that tokens stay apart in the residual stream while a small model is taught to
    # treat them alike; a tied head allows no more than keeps the first logits small.
    self.embedding = weight(0.02 if config.tied else 0.5, config.vocab_size, config.hidden_size)
    self.final_norm = nnx.Param(jnp.ones(config.hidden_size))
    if not config.tied:
      self.head = weight(0.02, config.hidden_size, config.vocab_size)

    @nnx.split_rngs(splits=config.num_layers)
    @nnx.vmap
    def stack(rngs):
      return DecoderLayer(config, rngs)

    self.layers = stack(rngs)

  def embed(self, tokens: Int[Array, "..."]) -> Float[Array, "... embed"]:
    return self.embedding[...].astype(self.compute_dtype)[tokens]

  def output_head(self) -> Float[Array, "embed vocab"]:
    """The matrix that turns hidden states into logits."""
    head = self.embedding[...].T if self.config.tied else self.head[...]
    return head.astype(self.compute_dtype)

  def _angles(self, positions):
    return rotary(positions, self.config.head_dim, self.config.rope_theta)

  def _scan(self, body, carry, *per_layer):
    """Runs `body(layer, carry, *per_layer_slice)` over the stacked layers."""
    graph, params = nnx.split(self.layers)

    def step(carry, slices):
      return body(nnx.merge(graph, slices[0]), carry, *slices[1:])

    if self.remat != "none":
      step = jax.checkpoint(step, policy=REMAT_POLICIES[self.remat], prevent_cse=False)
    return jax.lax.scan(step, carry, (params, *per_layer))

  def hidden_states(
      self,
      prompt_tokens: Int[Array, "rows prompt"],
      prompt_mask: Bool[Array, "rows prompt"],
      completion_tokens: Int[Array, "rows samples tokens"],
  ) -> Float[Array, "rows samples tokens embed"]:
    """The hidden state that predicts each completion token.

    Args:
      prompt_tokens: padded on the right.
      prompt_mask: which prompt tokens are real; every row has at least one.
      completion_tokens: padded on the right. What follows a token never changes its prediction.

    Returns:
      Normed hidden states: entry [r, s, t] predicts `completion_tokens[r, s, t]`, so entry 0 is
      that of the last prompt token.
    """
    rows, samples, length = completion_tokens.shape
    width = prompt_tokens.shape[1]
    lengths = prompt_mask.sum(axis=1)
    # The last token predicts nothing that is asked for.
    inputs = completion_tokens[:, :, :-1]
    queries = length - 1
    prompt_angles = self._angles(jnp.arange(width))
    positions = lengths[:, None] + jnp.arange(queries)
    angles = tuple(a[:, None] for a in self._angles(positions))
    causal = jnp.tril(jnp.ones((queries, queries), bool))
    row = jnp.arange(rows)

    def flat(prompt, completions):
      return jnp.concatenate([prompt, completions.reshape(rows, samples * queries, -1)], axis=1)

    def unflat(x):
      tail = x.shape[2:]
      return x[:, :width], x[:, width:].reshape(rows, samples, queries, *tail)

    flat_angles = tuple(
        jnp.concatenate([
            jnp.broadcast_to(p, (rows, *p.shape)),
            jnp.broadcast_to(c, (rows, samples, *c.shape[2:])).reshape(rows, samples * queries, -1),
        ], axis=1) for p, c in zip(prompt_angles, angles, strict=True))

    def body(layer, x):
      query, kv = layer.project(x, flat_angles)
      prompt_query, completion_query = unflat(query)
      prompt_keys, keys = unflat(kv.keys)
      prompt_values, values = unflat(kv.values)
      prompt = KeyValues(prompt_keys, prompt_values)
      attended_prompt = attend_prompt(prompt_query, prompt)
      attended = attend_completions(
          completion_query, prompt, prompt_mask, KeyValues(keys, values), causal)
      both = flat(
          attended_prompt.reshape(rows, width, -1),
          attended.reshape(rows, samples, queries, -1))
      return layer.finish(x, both), None

    x = flat(self.embed(prompt_tokens), self.embed(inputs))
    x, _ = self._scan(body, x)
    prompt, completions = unflat(x)
    last = jnp.broadcast_to(
        prompt[row, lengths - 1][:, None, None], (rows, samples, 1, prompt.shape[-1]))
    x = jnp.concatenate([last, completions], axis=2)
    return rms_norm(x, self.final_norm[...], self.config.norm_eps)

  def prefill(
      self, prompt_tokens: Int[Array, "rows prompt"], prompt_mask: Bool[Array, "rows prompt"]
  ) -> tuple[Float[Array, "rows embed"], KeyValues]:
    """Runs prompts once.

    Returns:
      The normed hidden state of each row's last token, and the prompt's keys and values
      [layers, rows, prompt, kv_heads, head_dim].
    """
    angles = self._angles(jnp.arange(prompt_tokens.shape[1])[None])

    def body(layer, x):
      query, kv = layer.project(x, angles)
      return layer.finish(x, attend_prompt(query, kv)), kv

    x, cache = self._scan(body, self.embed(prompt_tokens))
    last = x[jnp.arange(x.shape[0]), prompt_mask.sum(axis=1) - 1]
    return rms_norm(last, self.final_norm[...], self.config.norm_eps), cache

  def decode(
      self,
      tokens: Int[Array, "rows samples"],
      index: Int[Array, ""],
      prompt: KeyValues,
      prompt_mask: Bool[Array, "rows prompt"],
      cache: KeyValues,
  ) -> tuple[Float[Array, "rows samples embed"], KeyValues]:
    """Reads one more token of every completion.

    Args:
      tokens: the completions' tokens at `index`.
      index: position within the completions, the same for all.
      prompt: from `prefill`.
      prompt_mask: which prompt tokens are real.
      cache: the completions' keys and values
        [layers, rows, samples, tokens, kv_heads, head_dim], written at `index`.

    Returns:
      The normed hidden state that predicts the next token, and the cache.
    """
    positions = prompt_mask.sum(axis=1)[:, None, None] + index
    angles = self._angles(positions)
    capacity = cache.keys.shape[3]
    seen = (jnp.arange(capacity) <= index)[None]

    def body(layer, x, prompt, cache):
      query, kv = layer.project(x, angles)
      cache = jax.tree.map(
          lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, index, 2), cache, kv)
      attended = attend_completions(query, prompt, prompt_mask, cache, seen)
      return layer.finish(x, attended), cache

    x, cache = self._scan(body, self.embed(tokens)[:, :, None], prompt, cache)
    return rms_norm(x[:, :, 0], self.final_norm[...], self.config.norm_eps), cache
