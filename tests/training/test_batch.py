"""Packing ragged rollouts."""

import numpy as np

from conductor_jax.training.batch import Group, GroupedBatch, pack

EOS = 2

GROUPS = [
    Group(
        prompt_tokens=[5, 6, 7],
        completion_tokens=[np.array([8, EOS]), np.array([9, 10, 11, EOS, 12])],
        sampler_logprobs=[np.array([-0.5, -1.5]), np.array([-1.0, -2.0, -3.0, -4.0, -5.0])],
        rewards=np.array([1.0, 0.0]), accepted=np.array([True, True])),
    Group(
        prompt_tokens=[5],
        completion_tokens=[np.array([EOS]), np.array([13, 14, 15])],
        sampler_logprobs=[np.array([-0.25]), np.array([-6.0, -7.0, -8.0])],
        rewards=np.array([0.5, 0.0]), accepted=np.array([True, False])),
]
ADVANTAGES = [np.array([1.0, -1.0], np.float32), np.array([0.25, 0.0], np.float32)]


def packed(multiple=4) -> GroupedBatch:
  return pack(GROUPS, ADVANTAGES, pad=EOS, multiple=multiple)


def test_prompts_and_completions_are_padded_to_the_multiple():
  batch = packed()
  assert batch.prompt_tokens.tolist() == [[5, 6, 7, EOS], [5, EOS, EOS, EOS]]
  assert batch.prompt_mask.tolist() == [[True, True, True, False], [True, False, False, False]]
  assert batch.completion_tokens.shape == (2, 2, 8)
  assert batch.completion_tokens[0, 1].tolist() == [9, 10, 11, EOS, 12, EOS, EOS, EOS]
  assert packed(16).completion_tokens.shape == (2, 2, 16)
  assert packed(1).completion_tokens.shape == (2, 2, 5)


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
