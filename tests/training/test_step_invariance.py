"""Loss and gradient are those of the batch, however it is split and padded."""

from functools import cache

import numpy as np
import pytest

from conductor_jax.training.batch import GroupedBatch, pack
from tests.training.gradient_steps import (
    CASES,
    grid,
    groups,
    largest_difference,
    loss_and_gradient,
)


def widened(batch: GroupedBatch) -> GroupedBatch:
  """With more padding in prompts and completions, and no zeros in it."""
  def pad(values, extra, fill):
    return np.pad(values, [*[(0, 0)] * (values.ndim - 1), (0, extra)], constant_values=fill)

  return GroupedBatch(
      prompt_tokens=pad(batch.prompt_tokens, 3, 5),
      prompt_mask=pad(batch.prompt_mask, 3, False),
      completion_tokens=pad(batch.completion_tokens, 5, 7),
      completion_mask=pad(batch.completion_mask, 5, False),
      advantages=pad(batch.advantages, 5, np.nan),
      sampler_logprobs=pad(batch.sampler_logprobs, 5, np.nan))


def with_a_masked_row(batch: GroupedBatch) -> GroupedBatch:
  """With one more row, of which nothing counts."""
  def add(values, fill):
    return np.concatenate([values, np.full_like(values[:1], fill)])

  longer = GroupedBatch(
      prompt_tokens=add(batch.prompt_tokens, 5), prompt_mask=add(batch.prompt_mask, False),
      completion_tokens=add(batch.completion_tokens, 7),
      completion_mask=add(batch.completion_mask, False),
      advantages=add(batch.advantages, 3.0),
      sampler_logprobs=add(batch.sampler_logprobs, np.nan))
  longer.prompt_mask[-1, 0] = True
  return longer


WHOLE = pack(groups(), pad=0)
SPLIT = pack(groups(), pad=0, samples_per_row=2)
# Batches of the same rollouts, and the micro-batches they are worked off in.
VARIANTS = {
    "two micro-batches": (WHOLE, 2),
    "four micro-batches": (WHOLE, 4),
    "more padding": (widened(WHOLE), 1),
    "a masked row": (with_a_masked_row(WHOLE), 1),
    "two rows a group": (SPLIT, 1),
    "all at once": (widened(SPLIT), 4),
}


@cache
def expected(case):
  return loss_and_gradient(CASES[case], grid(1, 1, 1), WHOLE)


@pytest.mark.parametrize("case, variant", [
    *[("KL and entropy", variant) for variant in VARIANTS],
    ("policy alone", "four micro-batches"), ("policy alone", "all at once"),
    ("adapters", "two micro-batches"), ("adapters", "all at once")])
def test_loss_and_gradient_do_not_depend_on_how_a_batch_is_split_and_padded(case, variant):
  loss, gradient = loss_and_gradient(CASES[case], grid(1, 1, 1), *VARIANTS[variant])
  expected_loss, expected_gradient = expected(case)
  assert abs(loss - expected_loss) < 1e-5
  assert largest_difference(gradient, expected_gradient) < 1e-5


def test_the_parts_of_the_batch_count_for_different_amounts():
  # Otherwise means of means would pass for the mean.
  assert WHOLE.completion_mask.sum(axis=(1, 2)).tolist() == [16, 20, 11, 15]
  assert not WHOLE.completion_mask.any(axis=-1).all()
