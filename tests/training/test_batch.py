"""Packing ragged rollouts."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_jax.training.batch import Group, GroupedBatch, batch_counts, pack, padding_share

EOS = 2

GROUPS = [
    Group(
        prompt_tokens=[5, 6, 7],
        completion_tokens=[np.array([8, EOS]), np.array([9, 10, 11, EOS, 12])],
        sampler_logprobs=[np.array([-0.5, -1.5]), np.array([-1.0, -2.0, -3.0, -4.0, -5.0])],
        advantages=np.array([1.0, -1.0]), accepted=np.array([True, True])),
    Group(
        prompt_tokens=[5],
        completion_tokens=[np.array([EOS]), np.array([13, 14, 15])],
        sampler_logprobs=[np.array([-0.25]), np.array([-6.0, -7.0, -8.0])],
        advantages=np.array([0.25, 0.0]), accepted=np.array([True, False])),
]
# As for a rollout that has none.
BLANK = Group([EOS], [np.zeros(1, np.int32)], [np.zeros(1, np.float32)], np.zeros(1),
              np.zeros(1, bool))


def packed(multiple=4, **options) -> GroupedBatch:
  return pack(GROUPS, pad=EOS, multiple=multiple, **{"prompt_multiple": 4, **options})


def test_prompts_and_completions_are_padded_each_to_its_own_multiple():
  batch = packed()
  assert batch.prompt_tokens.tolist() == [[5, 6, 7, EOS], [5, EOS, EOS, EOS]]
  assert batch.prompt_mask.tolist() == [[True, True, True, False], [True, False, False, False]]
  assert batch.completion_tokens.shape == (2, 2, 8)
  assert batch.completion_tokens[0, 1].tolist() == [9, 10, 11, EOS, 12, EOS, EOS, EOS]
  assert packed(16).completion_tokens.shape == (2, 2, 16)
  assert packed(1).completion_tokens.shape == (2, 2, 5)
  assert packed(16).prompt_tokens.shape == (2, 4)
  for multiple, width in ((1, 3), (2, 4), (64, 64)):
    batch = packed(prompt_multiple=multiple)
    assert batch.prompt_tokens.shape == batch.prompt_mask.shape == (2, width)
    assert batch.prompt_mask.sum(axis=-1).tolist() == [3, 1]
    assert batch.completion_tokens.shape == (2, 2, 8)


def test_the_mask_keeps_the_end_of_sequence_token_though_it_equals_the_padding():
  mask = packed().completion_mask
  assert mask[0].sum(axis=-1).tolist() == [2, 5]
  assert mask[0, 0].tolist() == [True, True, *[False] * 6]
  assert mask[1, 0].tolist() == [True, *[False] * 7]


def test_rejected_rollouts_keep_their_place_and_are_masked_out():
  batch = packed()
  assert batch.completion_tokens[1, 1, :3].tolist() == [13, 14, 15]
  assert not batch.completion_mask[1, 1].any()
  assert (batch.advantages[1, 1] == 0).all()


def test_every_token_carries_the_advantage_of_its_rollout():
  advantages = packed(1).advantages
  assert advantages.dtype == np.float32
  assert advantages.tolist() == [
      [[1, 1, 0, 0, 0], [-1, -1, -1, -1, -1]], [[0.25, 0, 0, 0, 0], [0, 0, 0, 0, 0]]]


def test_sampler_logprobs_stand_at_their_tokens():
  logprobs = packed(1).sampler_logprobs
  assert logprobs.dtype == np.float32
  assert logprobs[0].tolist() == [[-0.5, -1.5, 0, 0, 0], [-1, -2, -3, -4, -5]]
  assert logprobs[1, 0].tolist() == [-0.25, 0, 0, 0, 0]


def test_counts_are_those_of_the_tokens_and_sequences_that_are_not_masked_out():
  counts = batch_counts(packed())
  assert counts.tokens == 2 + 5 + 1 and counts.sequences == 3
  assert counts.tokens.dtype == counts.sequences.dtype == np.float32


def test_counts_of_two_batches_are_sums_and_nothing_beside_something_adds_nothing():
  later = pack([replace(GROUPS[0], completion_tokens=[each], sampler_logprobs=[np.zeros(len(each))],
                        advantages=np.ones(1), accepted=np.ones(1, bool))
                for each in (np.array([8, 9, EOS]), np.array([EOS]))], pad=EOS)
  counts = batch_counts(packed(), later)
  assert counts.tokens == 8 + 3 + 1 and counts.sequences == 3 + 2
  blank = pack([BLANK] * 3, pad=EOS)
  assert batch_counts(packed(), blank) == batch_counts(blank, packed()) == batch_counts(packed())
  assert batch_counts(blank, blank) == batch_counts(blank)
  assert batch_counts(blank).tokens == batch_counts(blank).sequences == 1


def test_counts_of_nothing_are_one_so_that_a_loss_can_divide_by_them():
  batch = packed()
  counts = batch_counts(replace(batch, completion_mask=np.zeros_like(batch.completion_mask)))
  assert counts.tokens == counts.sequences == 1


def test_the_padding_share_is_that_of_the_slots_computed_for_nothing():
  # Prompts fill 3 + 1 of 2 · 4 slots; completions 2 + 5 + 1 of 4 · 8, one of them is rejected.
  np.testing.assert_allclose(padding_share((packed(),)), 1 - (4 + 8) / (8 + 32))
  full = pack([Group([1, 2], [np.array([3, 4])], [np.zeros(2)], np.zeros(1), np.ones(1, bool))],
              pad=0, multiple=1, prompt_multiple=1)
  assert padding_share((full,)) == 0
  np.testing.assert_allclose(padding_share((packed(), full)), 1 - (4 + 8 + 4) / (8 + 32 + 4))


def test_a_blank_row_is_a_prompt_of_one_token_and_nothing_that_counts():
  group = replace(GROUPS[0], completion_tokens=[np.array([8, EOS])],
                  sampler_logprobs=[np.array([-0.5, -1.5])], advantages=np.array([2.0]),
                  accepted=np.ones(1, bool))
  batch = pack([group, BLANK, BLANK], pad=EOS)
  assert batch.prompt_tokens.shape == (3, 8) and batch.completion_tokens.shape == (3, 1, 8)
  # A row that sees nothing would divide by nothing in attention.
  assert batch.prompt_mask.sum(axis=-1).tolist() == [3, 1, 1]
  assert batch.completion_mask.sum(axis=(1, 2)).tolist() == [2, 0, 0]
  assert batch.advantages.sum(axis=(1, 2)).tolist() == [4, 0, 0]
  assert not batch.sampler_logprobs[1:].any()


@pytest.mark.parametrize("lengths, width", [((0, 0), 1), ((1, 0), 1), ((1, 1), 1), ((2, 1), 2)])
def test_completions_are_as_wide_as_the_longest_and_one_token_at_least(lengths, width):
  group = Group([1], [np.ones(n, int) for n in lengths], [np.zeros(n) for n in lengths],
                np.zeros(2), np.ones(2, bool))
  batch = pack([group], pad=0, multiple=1)
  assert batch.completion_tokens.shape == (1, 2, width)
  assert batch.completion_mask.sum(axis=-1).tolist() == [list(lengths)]


@st.composite
def packings(draw):
  """Groups of equal size, and a number of completions that divides the size."""
  samples = draw(st.integers(1, 4))
  size = samples * draw(st.integers(1, 3))
  generator = np.random.default_rng(draw(st.integers(0, 1000)))
  groups = []
  for _ in range(draw(st.integers(1, 3))):
    lengths = generator.integers(0, 20, size=size)
    groups.append(Group(
        prompt_tokens=generator.integers(1, 9, size=generator.integers(1, 12)),
        completion_tokens=[generator.integers(1, 9, size=n) for n in lengths],
        sampler_logprobs=[generator.normal(size=n) for n in lengths],
        advantages=generator.normal(size=size), accepted=generator.random(size) < 0.8))
  return groups, samples


@settings(deadline=None, max_examples=30)
@given(packings())
def test_a_group_split_over_rows_keeps_its_completions_in_order_and_each_row_has_its_prompt(
    packing):
  groups, samples = packing
  whole = pack(groups, pad=0)
  split = pack(groups, pad=0, samples_per_row=samples)
  size = len(groups[0].completion_tokens)
  for field in fields(GroupedBatch):
    one, other = getattr(whole, field.name), getattr(split, field.name)
    if field.name.startswith("prompt"):
      np.testing.assert_array_equal(other, np.repeat(one, size // samples, axis=0))
    else:
      assert other.shape[:2] == (len(groups) * size // samples, samples)
      np.testing.assert_array_equal(other.reshape(one.shape), one)


def test_a_group_that_cannot_be_split_evenly_is_refused():
  with pytest.raises(ValueError, match="a group of 2 cannot be split into rows of 3"):
    pack(GROUPS, pad=EOS, samples_per_row=3)


def test_groups_of_different_sizes_are_refused():
  smaller = Group([5], [np.array([EOS])], [np.zeros(1)], np.zeros(1), np.ones(1, bool))
  with pytest.raises(ValueError, match=r"different sizes cannot share a batch: \[1, 2\]"):
    pack([*GROUPS, smaller], pad=EOS)
