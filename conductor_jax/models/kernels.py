"""Attention of rows by the kernels that platforms have, to the results of `attention`.

Each takes a row as it lies in the residual stream, [prompt, completion, completion, …].
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jaxtyping import Array, Bool, Float

from conductor_jax.models.attention import (
    ATTENDED,
    KeyValues,
    attend_completions,
    attend_prompt,
)

# Side of the blocks that the TPU's kernel works on.
_SPLASH_BLOCK = 512

Attention = Callable[[Array, KeyValues, Array, int], Array]


def blockwise(
    query: Float[Array, "rows tokens heads head_dim"], own: KeyValues,
    prompt_mask: Bool[Array, "rows prompt"], samples: int
) -> Float[Array, "rows tokens heads head_dim"]:
  """On any platform, in plain XLA.

  Args:
    query: rotated, of a row's prompt and then of its completions.
    own: keys and values [rows, tokens, kv_heads, head_dim].
    prompt_mask: which prompt tokens are real; they come first.
    samples: completions a row.
  """
  rows, width = prompt_mask.shape

  def parts(x):
    return x[:, :width], x[:, width:].reshape(rows, samples, -1, *x.shape[2:])

  prompt_query, completion_query = parts(query)
  prompt, completions = (KeyValues(*pair) for pair in zip(*map(parts, own), strict=True))
  attended = attend_completions(completion_query, prompt, prompt_mask, completions)
  return jnp.concatenate(
      [attend_prompt(prompt_query, prompt), attended.reshape(rows, -1, *query.shape[2:])], axis=1)


def cudnn(
    query: Array, own: KeyValues, prompt_mask: Bool[Array, "rows prompt"], samples: int, *,
    implementation: str = "cudnn"
) -> Array:
  """On NVIDIA GPUs, in bfloat16: cuDNN's causal kernel over the expanded sequences.

  Keys and queries of a prompt are laid before each of its completions, without the padding between.
  That costs less than what XLA's own attention writes to memory for its scores. Arguments and
  result are those of `blockwise`.
  """
  rows, width = prompt_mask.shape
  length = (query.shape[1] - width) // samples
  lengths = prompt_mask.sum(axis=1)[:, None, None]
  place = jnp.arange(width + length)
  first = width + length * jnp.arange(samples)[None, :, None]
  # Where the token at each place of an expanded sequence lies in its row. What comes after the last
  # is seen by none.
  source = jnp.where(
      place < lengths, place, jnp.minimum(first + place - lengths, first + length - 1))
  attend = partial(
      jax.nn.dot_product_attention, is_causal=True, implementation=implementation)

  def expand(x):
    x = jax.vmap(lambda x, source: x[source])(x, source)
    return x.reshape(rows * samples, width + length, *x.shape[3:])

  attended = attend(*map(expand, (query, *own)))
  attended = attended.reshape(rows, samples, width + length, *query.shape[2:])
  # Back from the expanded sequences: the prompt's tokens from the first of them.
  offsets = lengths[:, :, 0] + jnp.arange(length)
  completions = jax.vmap(lambda x, offsets: x[:, offsets])(attended, offsets)
  result = jnp.concatenate(
      [attended[:, 0, :width], completions.reshape(rows, -1, *query.shape[2:])], axis=1)
  return checkpoint_name(result, ATTENDED)


class _RowMask(masks.Mask):
  """Which token of a row sees which, padding of prompts aside: the kernel skips empty blocks."""

  def __init__(self, size: int, width: int, length: int):
    """
    Args:
      size: tokens of a row, with what pads it to whole blocks.
      width: tokens of the prompt.
      length: tokens of a completion.
    """
    self._size, self._width, self._length = size, width, length

  @property
  def shape(self) -> tuple[int, int]:
    return self._size, self._size

  def __getitem__(self, index) -> np.ndarray:
    asking, seen = (np.arange(self._size)[part] for part in index)
    asking, seen = asking[:, None], seen[None]
    part = [np.where(x < self._width, -1, (x - self._width) // self._length)
            for x in (asking, seen)]
    return (seen <= asking) & ((part[1] == -1) | (part[0] == part[1]))

  def __eq__(self, other: object) -> bool:
    return isinstance(other, _RowMask) and vars(self) == vars(other)

  def __hash__(self) -> int:
    return hash((self._size, self._width, self._length))


def splash_attention(
    query: Array, own: KeyValues, prompt_mask: Bool[Array, "rows prompt"], samples: int, *,
    interpret: bool = False
) -> Array:
  """On TPUs: Pallas' splash attention under the mask of a whole row, in one call.

  Arguments and result are those of `blockwise`.
  """
  rows, tokens, heads, head_dim = query.shape
  width, kv_heads = prompt_mask.shape[1], own.keys.shape[2]
  length = (tokens - width) // samples
  block = min(_SPLASH_BLOCK, -(-tokens // 128) * 128)
  padding = -tokens % block
  mask = _RowMask(tokens + padding, width, length)
  sizes = splash.BlockSizes(
      block_q=block, block_kv=block, block_kv_compute=block, block_q_dkv=block, block_kv_dkv=block,
      block_kv_dkv_compute=block, use_fused_bwd_kernel=True)
  kernel = splash.make_splash_mqa_single_device(
      masks.MultiHeadMask([mask] * (heads // kv_heads)), block_sizes=sizes, interpret=interpret,
      residual_checkpoint_name=ATTENDED)
  # Padding sees only itself: real tokens are segment 0.
  segments = jnp.concatenate([
      jnp.where(prompt_mask, 0, 1), jnp.zeros((rows, tokens - width), jnp.int32),
      jnp.full((rows, padding), 2, jnp.int32)], axis=1)

  def heads_first(x):
    x = jnp.pad(x, ((0, 0), (0, padding), (0, 0), (0, 0)))
    return x.transpose(0, 2, 1, 3)

  asking = heads_first(query * head_dim ** -0.5)
  asking = asking.reshape(rows, kv_heads, heads // kv_heads, -1, head_dim)
  over_heads = jax.vmap(kernel, in_axes=(0, 0, 0, None))
  attended = jax.vmap(over_heads)(
      asking, *map(heads_first, own), splash.SegmentIds(segments, segments))
  attended = attended.reshape(rows, heads, -1, head_dim).transpose(0, 2, 1, 3)
  return attended[:, :tokens]


ATTENTION: dict[str, Attention] = {
    "blockwise": blockwise, "cudnn": cudnn, "splash": splash_attention}
