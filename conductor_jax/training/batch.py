"""From rollouts, which are ragged, to the trainer's only input, which is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from conductor_jax.models.padding import pad_right, round_up


@dataclass(frozen=True)
class Group:
  """All rollouts of one prompt, as the trainer sees them.

  Attributes:
    prompt_tokens: the prompt they share.
    completion_tokens: what was sampled, never re-tokenised.
    sampler_logprobs: log-probability of every completion token at sampling time.
    rewards: float[samples].
    accepted: bool[samples], False where infrastructure failed and the reward means nothing.
  """

  prompt_tokens: Sequence[int]
  completion_tokens: Sequence[np.ndarray]
  sampler_logprobs: Sequence[np.ndarray]
  rewards: np.ndarray
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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Counts:
  """What losses divide by: counts of a whole batch, before it is split in micro-batches.

  Attributes:
    tokens: completion tokens that count, at least 1.
    sequences: completions with at least one such token, at least 1.
  """

  tokens: Float[Array, ""]
  sequences: Float[Array, ""]


class Measurements(NamedTuple):
  """What a loss reports of one micro-batch.

  Attributes:
    sums: divided by a global count already, so that the micro-batches' values add up.
    maxima: the largest of the micro-batches' values is the batch's.
  """

  sums: dict[str, Array]
  maxima: dict[str, Array]


def batch_counts(batch: GroupedBatch) -> Counts:
  """The counts of a batch."""
  mask = batch.completion_mask
  return Counts(
      tokens=jnp.maximum(mask.sum(), 1).astype(jnp.float32),
      sequences=jnp.maximum(mask.any(axis=-1).sum(), 1).astype(jnp.float32))


def pack(
    groups: Sequence[Group], advantages: Sequence[np.ndarray], *, pad: int, multiple: int = 8
) -> GroupedBatch:
  """Packs groups of equal size, one a row.

  Args:
    groups: what was rolled out. Rejected rollouts keep their place and are masked out.
    advantages: float[samples] for every group.
    pad: token id that fills the gaps.
    multiple: lengths are rounded up to it, so that few shapes are ever compiled.
  """
  rows, samples = len(groups), len(groups[0].completion_tokens)
  prompts = [group.prompt_tokens for group in groups]
  tokens = [t for group in groups for t in group.completion_tokens]
  width = round_up(max(map(len, prompts)), multiple)
  length = round_up(max(map(len, tokens)), multiple)
  prompt_tokens, prompt_mask = pad_right(prompts, width, pad)
  completion_tokens, completion_mask = pad_right(tokens, length, pad)
  logprobs, _ = pad_right(
      [p for group in groups for p in group.sampler_logprobs], length, 0, np.float32)
  accepted = np.concatenate([group.accepted for group in groups])
  completion_mask &= accepted[:, None]
  per_token = np.concatenate(advantages).astype(np.float32)[:, None] * completion_mask

  def shaped(x):
    return x.reshape(rows, samples, length)

  return GroupedBatch(
      prompt_tokens=prompt_tokens, prompt_mask=prompt_mask,
      completion_tokens=shaped(completion_tokens), completion_mask=shaped(completion_mask),
      advantages=shaped(per_token), sampler_logprobs=shaped(logprobs))
