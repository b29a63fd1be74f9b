"""Supervised warm start: the likelihood of example completions, over the same rows as GRPO."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from conductor_jax.training.batch import Group, GroupedBatch, pack
from conductor_jax.training.logprobs import Params, batch_statistics, masked_mean


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
          rewards=np.zeros(len(row.completion_tokens)),
          accepted=np.ones(len(row.completion_tokens), bool))
      for row in rows]
  return pack(groups, [group.rewards for group in groups], pad=pad)


def likelihood_loss(
    params: Params, batch: GroupedBatch, *, graph: nnx.GraphDef, chunk: int
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Mean negative log-likelihood of the completion tokens, in nats.

  Args:
    params: of the model.
    batch: rows of examples.
    graph: the model.
    chunk: tokens whose logits are held at once.
  """
  mask = batch.completion_mask
  count = jnp.maximum(mask.sum(), 1).astype(jnp.float32)
  policy = batch_statistics(graph, params, batch, temperature=1.0, chunk=chunk)
  return -masked_mean(policy.logprobs, mask, count), {
      "entropy": masked_mean(policy.entropy, mask, count)}
