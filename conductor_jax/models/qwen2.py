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
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from conductor_jax.models.attention import (
    ATTENDED,
    KeyValues,
    attend_cache,
    attend_prompt,
)
from conductor_jax.models.kernels import ATTENTION
from conductor_jax.models.lora import (
    TARGETS,
    LoraConfig,
    adapter_axes,
    initial_adapters,
    low_rank,
)
from conductor_jax.models.placement import ONE_DEVICE, Placement
from conductor_jax.models.rotary import recency_bias, rotary, rotate

# Logical axes of every parameter as it is stored; layer parameters have a leading "layers" axis.
PARAMETER_AXES = {
    "embedding": ("vocab", "embed"),
    "head": (None, "head_vocab"),
    "final_norm": ("embed",),
    "attention_norm": ("layers", "embed"),
    "query": ("layers", "embed", "heads"),
    "query_bias": ("layers", "heads"),
    "key": ("layers", "embed", "kv_heads"),
    "key_bias": ("layers", "kv_heads"),
    "value": ("layers", "embed", "kv_heads"),
    "value_bias": ("layers", "kv_heads"),
    "output": ("layers", "head_inputs", None),
    "mlp_norm": ("layers", "embed"),
    "gate": ("layers", "embed", "mlp"),
    "up": ("layers", "embed", "mlp"),
    "down": ("layers", "mlp_inputs", None),
}
# What the axes that spread weights over "fsdp", always those of a kernel's inputs, become when it
# is gathered to be multiplied with.
_COMPUTED = {"embed": None, "head_inputs": "heads", "mlp_inputs": "mlp"}
for _target in TARGETS:
  PARAMETER_AXES |= adapter_axes(_target, PARAMETER_AXES[_target])

REMAT_POLICIES: dict[str, Callable | None] = {
    "none": None,
    # What comes before and after attention is narrower, and cheaper to have again.
    "dots": jax.checkpoint_policies.save_only_these_names(ATTENDED, "gate", "up"),
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


def multiply(
    x: Float[Array, "... inputs"], kernel: Float[Array, "inputs outputs"]
) -> Float[Array, "... outputs"]:
  """x @ kernel over flattened tokens.

  With several batch axes XLA's CPU backend computes the kernel's gradient off its fast path, three
  times slower.
  """
  return (x.reshape(-1, x.shape[-1]) @ kernel).reshape(*x.shape[:-1], -1)


class DecoderLayer(nnx.Module):
  """One decoder layer: pre-norm attention and pre-norm SwiGLU, each on the residual stream."""

  def __init__(
      self, config: Qwen2Config, *, param_dtype: str, lora: LoraConfig | None,
      placement: Placement, rngs: nnx.Rngs):
    self.config, self.lora, self.placement = config, lora, placement
    width, mlp = config.hidden_size, config.intermediate_size
    heads = config.num_heads * config.head_dim
    kv_heads = config.num_kv_heads * config.head_dim
    shapes = {
        "query": (width, heads), "key": (width, kv_heads), "value": (width, kv_heads),
        "output": (heads, width), "gate": (width, mlp), "up": (width, mlp), "down": (mlp, width)}

    def parameter(value):
      return nnx.Param(value.astype(param_dtype))

    for name, shape in shapes.items():
      kernel = nnx.initializers.lecun_normal()(rngs.params(), shape, jnp.float32)
      setattr(self, name, parameter(kernel))
    self.query_bias = parameter(recency_bias(
        config.num_heads, config.head_dim, config.rope_theta, every=2))
    self.key_bias = parameter(recency_bias(
        config.num_kv_heads, config.head_dim, config.rope_theta, every=1))
    self.value_bias = parameter(jnp.zeros(kv_heads))
    self.attention_norm, self.mlp_norm = (parameter(jnp.ones(width)) for _ in range(2))
    if lora:
      for name, value in initial_adapters(lora, shapes, rngs.params).items():
        setattr(self, name, nnx.Param(value))

  def _multiply(self, x: Float[Array, "... inputs"], name: str) -> Float[Array, "... outputs"]:
    """The product with a kernel, its adapter's included where it has one."""
    def whole(name, axes):
      return self.placement.gather(
          getattr(self, name)[...].astype(x.dtype), axes,
          tuple(_COMPUTED.get(axis, axis) for axis in axes))

    axes = PARAMETER_AXES[name][1:]
    product = multiply(x, whole(name, axes))
    if self.lora and name in self.lora.targets:
      (a, a_axes), (b, b_axes) = adapter_axes(name, axes).items()
      product += low_rank(self.lora, multiply, x, whole(a, a_axes), whole(b, b_axes))
    return checkpoint_name(product, name)

  def project(self, x: Float[Array, "... embed"], angles: tuple[Array, Array]):
    """Rotated queries, and keys and values, of normed inputs."""
    config = self.config
    x = rms_norm(x, self.attention_norm[...], config.norm_eps)

    def heads(name, bias, count):
      y = self._multiply(x, name) + bias[...].astype(x.dtype)
      return y.reshape(*x.shape[:-1], count, config.head_dim)

    query = rotate(heads("query", self.query_bias, config.num_heads), angles)
    key = rotate(heads("key", self.key_bias, config.num_kv_heads), angles)
    return query, KeyValues(key, heads("value", self.value_bias, config.num_kv_heads))

  def finish(self, x: Float[Array, "... embed"], attended: Float[Array, "... heads head_dim"]):
    """Adds the attention's output and the SwiGLU's to the residual stream."""
    x = x + self._multiply(attended.reshape(*x.shape[:-1], -1), "output")
    y = rms_norm(x, self.mlp_norm[...], self.config.norm_eps)
    gated = jax.nn.silu(self._multiply(y, "gate")) * self._multiply(y, "up")
    return x + self._multiply(gated, "down")


class Qwen2(nnx.Module):
  """A Qwen2 language model.

  Args:
    config: the shape.
    compute_dtype: dtype of activations and of the weights as they enter a product.
    param_dtype: dtype of the parameters; adapters are float32 whatever it is.
    remat: what the backward pass keeps: "none" recomputes nothing, "dots" keeps the results
      of attention and of the products with the gate and up kernels, "full" keeps only the residual
      stream between layers.
    attention: of training, one of `kernels.ATTENTION`.
    lora: low-rank adapters beside the kernels; None for none.
    placement: where activations live.
    rngs: draws the parameters.
  """

  def __init__(
      self, config: Qwen2Config, *, compute_dtype: str, param_dtype: str = "float32", remat: str,
      attention: str = "blockwise", lora: LoraConfig | None = None,
      placement: Placement = ONE_DEVICE, rngs: nnx.Rngs):
    self.config, self.compute_dtype, self.remat = config, compute_dtype, remat
    self.attention, self.placement = attention, placement

    def weight(std, *shape):
      value = nnx.initializers.normal(std)(rngs.params(), shape, jnp.float32)
      return nnx.Param(value.astype(param_dtype))

    # Large enough that tokens stay apart in the residual stream while a small model is taught to
    # treat them alike; a tied head allows no more than keeps the first logits small.
    self.embedding = weight(0.02 if config.tied else 0.5, config.vocab_size, config.hidden_size)
    self.final_norm = nnx.Param(jnp.ones(config.hidden_size, param_dtype))
    if not config.tied:
      self.head = weight(0.02, config.hidden_size, config.vocab_size)

    @nnx.split_rngs(splits=config.num_layers)
    @nnx.vmap
    def stack(rngs):
      return DecoderLayer(
          config, param_dtype=param_dtype, lora=lora, placement=placement, rngs=rngs)

    self.layers = stack(rngs)

  def embed(self, tokens: Int[Array, "rows ..."]) -> Float[Array, "rows ... embed"]:
    """Looks tokens up. Every device does so in its own columns, and rows are put together then."""
    inner = (None,) * (tokens.ndim - 1)
    table, tokens = self.embedding[...], self.placement.constrain(tokens, None, *inner)
    x = self.placement.constrain(table[tokens].astype(self.compute_dtype), None, *inner, "embed")
    return self.placement.constrain(x, "rows", *inner, None)

  def output_head(self) -> Float[Array, "embed vocab"]:
    """The matrix that turns hidden states into logits; every device has its part of the logits."""
    if self.config.tied:
      return self.placement.gather(
          self.embedding[...], PARAMETER_AXES["embedding"], ("logits", None)).T
    return self.placement.gather(self.head[...], PARAMETER_AXES["head"], (None, "logits"))

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
    of_heads = self.placement.spec("rows", None, "heads", None)
    of_kv_heads = self.placement.spec("rows", None, "kv_heads", None)
    attend = self.placement.local(
        partial(ATTENTION[self.attention], samples=samples), of_heads,
        KeyValues(of_kv_heads, of_kv_heads), self.placement.spec("rows", None), result=of_heads)

    def flat(prompt, completions):
      tail = prompt.shape[2:]
      return jnp.concatenate([prompt, completions.reshape(rows, -1, *tail)], axis=1)

    positions = flat(
        jnp.broadcast_to(jnp.arange(width), (rows, width)),
        jnp.broadcast_to((lengths[:, None] + jnp.arange(length))[:, None], (rows, samples, length)))
    angles = self._angles(positions)

    def body(layer, x):
      query, kv = layer.project(x, angles)
      x = layer.finish(x, attend(query, kv, prompt_mask))
      return self.placement.constrain(x, "rows", None, None), None

    x, _ = self._scan(body, self.embed(flat(prompt_tokens, completion_tokens)))
    # The state after a token predicts the next one; the last token's predicts nothing asked for.
    last = x[jnp.arange(rows), lengths - 1]
    last = jnp.broadcast_to(last[:, None, None], (rows, samples, 1, x.shape[-1]))
    completions = x[:, width:].reshape(rows, samples, length, -1)[:, :, :-1]
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
    seen = jnp.arange(capacity) <= index

    def body(layer, x, prompt, cache):
      query, kv = layer.project(x, angles)
      cache = jax.tree.map(
          lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, index, 2), cache, kv)
      attended = attend_cache(query[:, :, 0], prompt, prompt_mask, cache, seen)
      return layer.finish(x, attended[:, :, None]), cache

    x, cache = self._scan(body, self.embed(tokens)[:, :, None], prompt, cache)
    return rms_norm(x[:, :, 0], self.final_norm[...], self.config.norm_eps), cache
