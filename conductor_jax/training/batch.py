"""From rollouts, which are ragged, to the trainer's only input, which is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from conductor_jax.models.padding import pad_right, padded_width


@dataclass(frozen=True)
class Group:
  """All rollouts of one prompt, as the trainer sees them.

  Attributes:
    prompt_tokens: the prompt they share.
    completion_tokens: what was sampled, never re-tokenised.
    sampler_logprobs: log-probability of every completion token at sampling time.
    advantages: float[samples].
    accepted: bool[samples]; the others count for nothing: infrastructure failed, or the group was
      dropped.
  """

  prompt_tokens: Sequence[int]
  completion_tokens: Sequence[np.ndarray]
  sampler_logprobs: Sequence[np.ndarray]
  advantages: np.ndarray
  accepted: np.ndarray


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GroupedBatch:
  """R rows of one prompt and S of its completions. The masks keep the end-of-sequence token."""

  prompt_tokens: Int[Array, "rows prompt"]
  prompt_mask: Bool[Array, "rows prompt"]
  completion_tokens: Int[Array, "rows samples tokens"]
  completion_mask: Bool[Array, "rows samples tokens"]
  advantages: Float[Array, "rows samples tokens"]
  sampler_logprobs: Float[Array, "rows samples tokens"]


# What one step trains on: a batch, and maybe a later one whose rows have another shape.
Batches = tuple[GroupedBatch] | tuple[GroupedBatch, GroupedBatch]


# Of the width of a later batch's prompts: answers make them of many lengths, and every width is
# compiled for.
LATER_PROMPT_MULTIPLE = 64


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Counts:
  """What a loss divides by: counts of all that a step trains on, before it is split up.

  Attributes:
    tokens: completion tokens that count, at least 1.
    sequences: completions with at least one such token, at least 1.
  """

  tokens: Float[Array, ""]
  sequences: Float[Array, ""]


class Measurements(NamedTuple):
  """What a loss reports of one micro-batch.

  Attributes:
    sums: divided by a count of the whole batch already; those of micro-batches add up.
    maxima: the largest of the micro-batches' is the batch's.
  """

  sums: dict[str, Array]
  maxima: dict[str, Array]


def batch_counts(*batches: GroupedBatch) -> Counts:
  """Counts whole batches that lie on the host."""
  masks = [np.asarray(batch.completion_mask) for batch in batches]

  def count(values):
    return np.float32(max(sum(int(value.sum()) for value in values), 1))

  return Counts(tokens=count(masks), sequences=count([mask.any(axis=-1) for mask in masks]))


def mean_over_tokens(
    values: Array, mask: Bool[Array, "rows samples tokens"], counts: Counts) -> Float[Array, ""]:
  """These rows' part of a mean over the tokens of the whole batch that count."""
  return jnp.sum(jnp.where(mask, values, 0)) / counts.tokens


def pack(
    groups: Sequence[Group], *, pad: int, multiple: int = 8, prompt_multiple: int = 8,
    samples_per_row: int = 0
) -> GroupedBatch:
  """Packs groups of equal size; a row holds a group, or an equal part of one.

  The rows of a group follow each other, each with the whole prompt.

  Args:
    groups: what was rolled out. Rejected rollouts keep their place and are masked out.
    pad: token id that fills the gaps.
    multiple: of the width of completions, see `padded_width`.
    prompt_multiple: of the width of prompts.
    samples_per_row: completions in a row; 0 for the whole group.

  Raises:
    ValueError: groups of different sizes, or a size that `samples_per_row` does not divide.
  """
  sizes = {len(group.completion_tokens) for group in groups}
  if len(sizes) > 1:
    raise ValueError(f"groups of different sizes cannot share a batch: {sorted(sizes)}")
  size, = sizes
  samples = samples_per_row or size
  if size % samples:
    raise ValueError(f"a group of {size} cannot be split into rows of {samples}")
  prompts = [group.prompt_tokens for group in groups for _ in range(size // samples)]
  tokens = [t for group in groups for t in group.completion_tokens]
  width = padded_width(max(map(len, prompts)), prompt_multiple)
  length = padded_width(max(1, *map(len, tokens)), multiple)
  prompt_tokens, prompt_mask = pad_right(prompts, width, pad)
  completion_tokens, completion_mask = pad_right(tokens, length, pad)
  logprobs, _ = pad_right(
      [p for group in groups for p in group.sampler_logprobs], length, 0, np.float32)
  accepted = np.concatenate([group.accepted for group in groups])
  completion_mask &= accepted[:, None]
  advantages = np.concatenate([group.advantages for group in groups])
  per_token = advantages.astype(np.float32)[:, None] * completion_mask

  def shaped(x):
    return x.reshape(-1, samples, length)

  return GroupedBatch(
      prompt_tokens=prompt_tokens, prompt_mask=prompt_mask,
      completion_tokens=shaped(completion_tokens), completion_mask=shaped(completion_mask),
      advantages=shaped(per_token), sampler_logprobs=shaped(logprobs))


def padding_share(batches: Batches) -> float:
  """Share of the token slots of prompts and completions that are computed for nothing.

  That is padding, and completions that are masked out as a whole.
  """
  masks = [mask for batch in batches for mask in (batch.prompt_mask, batch.completion_mask)]
  return 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.size for mask in masks)
