"""Supervised warm start: the likelihood of example completions, over the same rows as GRPO."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float

from conductor_jax.training.batch import (
    Counts,
    Group,
    GroupedBatch,
    Measurements,
    mean_over_tokens,
    pack,
)
from conductor_jax.training.logprobs import TokenStatistics


@dataclass(frozen=True)
class Examples:
  """Example completions of one prompt.

  Attributes:
    prompt_tokens: the prompt.
    completion_tokens: int32[tokens] each, end-of-sequence token included.
  """

  prompt_tokens: Sequence[int]
  completion_tokens: Sequence[np.ndarray]


def pack_examples(rows: Sequence[Examples], *, pad: int) -> GroupedBatch:
  """Packs examples as a batch without advantages; every row holds equally many completions."""
  groups = [
      Group(
          prompt_tokens=row.prompt_tokens, completion_tokens=row.completion_tokens,
          sampler_logprobs=[np.zeros(len(tokens), np.float32) for tokens in row.completion_tokens],
          advantages=np.zeros(len(row.completion_tokens)),
          accepted=np.ones(len(row.completion_tokens), bool))
      for row in rows]
  return pack(groups, pad=pad)


def likelihood_loss(
    statistics: TokenStatistics, batch: GroupedBatch, counts: Counts
) -> tuple[Float[Array, ""], Measurements]:
  """Mean negative log-likelihood of the completion tokens, −Σ logprob / tokens, in nats.

  Args:
    statistics: of the model, at temperature 1.
    batch: the same rows.
    counts: of the whole batch that these rows are a part of.

  Returns:
    The loss, and the mean entropy of the tokens' distributions, in nats.
  """
  mask = batch.completion_mask
  sums = {"entropy": mean_over_tokens(statistics.entropy, mask, counts)}
  return -mean_over_tokens(statistics.logprobs, mask, counts), Measurements(sums, maxima={})
