"""Hand-computed advantages."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_jax.training.advantages import differs, drop_zero_variance, group_advantages
from conductor_jax.training.batch import Group, batch_counts, pack

ALL = np.ones(4, bool)
KINDS = ("std", "mean", "leave-one-out")


def test_std_advantages_divide_by_the_population_standard_deviation():
  advantages = group_advantages(np.array([1.0, 0.0, 0.5, 0.5]), ALL, "std")
  # mean 1/2, variance (1/4 + 1/4) / 4 = 1/8
  np.testing.assert_allclose(advantages, [math.sqrt(2), -math.sqrt(2), 0, 0], rtol=1e-6)
  assert advantages.dtype == np.float32


def test_mean_advantages_are_only_centred():
  advantages = group_advantages(np.array([1.0, 0.0, 0.5, 0.5]), ALL, "mean")
  np.testing.assert_allclose(advantages, [0.5, -0.5, 0, 0], rtol=1e-6)


def test_leave_one_out_advantages_compare_with_the_mean_of_the_others():
  advantages = group_advantages(np.array([1.0, 0.0, 0.5, 0.0]), ALL, "leave-one-out")
  # 1 − 1/6, 0 − 1/2, 1/2 − 1/3, 0 − 1/2
  np.testing.assert_allclose(advantages, [5 / 6, -1 / 2, 1 / 6, -1 / 2], rtol=1e-6)


@pytest.mark.parametrize("kind, expected", [
    ("std", [1, 0, -1, 0]), ("mean", [0.25, 0, -0.25, 0]), ("leave-one-out", [0.5, 0, -0.5, 0])])
def test_rejected_rollouts_count_for_nothing_and_get_advantage_zero(kind, expected):
  advantages = group_advantages(
      np.array([1.0, math.nan, 0.5, 0.0]), np.array([True, False, True, False]), kind)
  np.testing.assert_allclose(advantages, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rewards, accepted", [
    ([0.1] * 4, [True] * 4),
    ([0.1, 0.1, 0.1, 1.0], [True, True, True, False]),
    ([1.0, 0.0, 0.0, 0.0], [True, False, False, False]),
    ([1.0, 0.0, 0.0, 0.0], [False] * 4)])
def test_a_group_whose_accepted_rewards_are_equal_teaches_exactly_nothing(
    kind, rewards, accepted):
  rewards, accepted = np.array(rewards), np.array(accepted)
  assert not differs(rewards, accepted)
  assert group_advantages(rewards, accepted, kind).tolist() == [0, 0, 0, 0]


def test_a_group_differs_if_two_accepted_rewards_do():
  assert differs(np.array([0.5, 0.5, 0.0, 1.0]), np.array([True, False, True, False]))


def test_a_dropped_group_enters_no_count_and_one_that_teaches_is_left_alone():
  def group(*rewards, accepted=(True, True, True)):
    rewards, accepted = np.array(rewards), np.array(accepted)
    return Group(prompt_tokens=[1], completion_tokens=[np.ones(3, int)] * 3,
                 sampler_logprobs=[np.zeros(3)] * 3, advantages=rewards,
                 accepted=drop_zero_variance(rewards, accepted))

  teaches = group(1.0, 0.0, 1.0, accepted=(True, True, False))
  equal = group(1.0, 1.0, 0.0, accepted=(True, True, False))
  assert teaches.accepted.tolist() == [True, True, False]
  assert equal.accepted.tolist() == [False, False, False]
  counts = batch_counts(pack([teaches, equal], pad=0))
  assert counts.tokens == 6 and counts.sequences == 2


@settings(deadline=None, max_examples=50)
@given(
    kind=st.sampled_from(KINDS), shift=st.sampled_from([-1.0, 0.25, 2.0]),
    group=st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.booleans()), min_size=1,
                   max_size=12))
def test_advantages_sum_to_zero_keep_the_order_and_ignore_a_constant_added_to_all_rewards(
    kind, shift, group):
  rewards, accepted = (np.array(values) for values in zip(*group, strict=True))
  advantages = group_advantages(rewards, accepted, kind)
  assert abs(advantages.sum()) < 1e-5
  np.testing.assert_allclose(
      group_advantages(rewards + shift, accepted, kind), advantages, atol=1e-6)
  ordered = advantages[accepted][np.argsort(rewards[accepted], kind="stable")]
  assert (np.diff(ordered) >= -1e-6).all()
