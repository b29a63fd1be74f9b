"""Hand-computed advantages, losses and gradients."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conductor_jax.training.grpo import group_advantages, kl_k3, policy_loss

ALL = np.ones(4, bool)
LN2 = math.log(2)


def plainly(function):
  return function


jitted_or_not = pytest.mark.parametrize("transform", [plainly, jax.jit])


def test_std_advantages_divide_by_the_population_standard_deviation():
  advantages = group_advantages(np.array([1.0, 0.0, 0.5, 0.5]), ALL, "std")
  # mean 1/2, variance (1/4 + 1/4) / 4 = 1/8
  np.testing.assert_allclose(advantages, [math.sqrt(2), -math.sqrt(2), 0, 0], rtol=1e-6)
  assert advantages.dtype == np.float32


def test_mean_advantages_are_only_centred():
  advantages = group_advantages(np.array([1.0, 0.0, 0.5, 0.5]), ALL, "mean")
  np.testing.assert_allclose(advantages, [0.5, -0.5, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("normalise, expected", [
    ("std", [1, 0, -1, 0]), ("mean", [0.25, 0, -0.25, 0])])
def test_rejected_rollouts_count_for_nothing_and_get_advantage_zero(normalise, expected):
  advantages = group_advantages(
      np.array([1.0, math.nan, 0.5, 0.0]), np.array([True, False, True, False]), normalise)
  np.testing.assert_allclose(advantages, expected, rtol=1e-6)


@pytest.mark.parametrize("normalise", ["std", "mean"])
@pytest.mark.parametrize("rewards, accepted", [
    ([0.1] * 4, [True] * 4),
    ([0.1, 0.1, 0.1, 1.0], [True, True, True, False]),
    ([1.0, 0.0, 0.0, 0.0], [True, False, False, False]),
    ([1.0, 0.0, 0.0, 0.0], [False] * 4)])
def test_a_group_whose_accepted_rewards_are_equal_teaches_exactly_nothing(
    normalise, rewards, accepted):
  advantages = group_advantages(np.array(rewards), np.array(accepted), normalise)
  assert advantages.tolist() == [0, 0, 0, 0]


# Ratios 3/2 and 1/2 with both signs of advantage: the pessimistic side is clipped each time.
RATIOS = np.array([1.5, 1.5, 0.5, 0.5], np.float32)
ADVANTAGES = np.array([1, -1, 1, -1], np.float32)
BEHAVIOUR = np.array([-1, -2, -3, -4], np.float32)


def surrogate(logprobs, count):
  return policy_loss(logprobs, BEHAVIOUR, ADVANTAGES, jnp.asarray(ALL), clip=0.2, count=count)


@jitted_or_not
def test_the_clipped_surrogate_takes_the_smaller_term_on_both_sides_and_signs(transform):
  (loss, clipped), gradient = transform(jax.value_and_grad(surrogate, has_aux=True))(
      BEHAVIOUR + np.log(RATIOS), 4.0)
  # min(1.5, 1.2) + min(-1.5, -1.2) + min(0.5, 0.8) + min(-0.5, -0.8) = 1.2 - 1.5 + 0.5 - 0.8
  np.testing.assert_allclose(loss, 0.6 / 4, rtol=1e-6)
  np.testing.assert_allclose(clipped, 2 / 4)
  # -ratio · advantage / count where the free term is the smaller one, else 0
  np.testing.assert_allclose(gradient, [0, 1.5 / 4, -0.5 / 4, 0], rtol=1e-6)


def test_on_policy_the_loss_is_minus_the_mean_advantage_and_the_gradient_minus_each():
  (loss, clipped), gradient = jax.value_and_grad(
      lambda logprobs: policy_loss(
          logprobs, BEHAVIOUR, jnp.array([3.0, -1.0, 0.5, 0.0]), jnp.asarray(ALL), clip=0.2,
          count=4.0),
      has_aux=True)(jnp.asarray(BEHAVIOUR))
  np.testing.assert_allclose(loss, -2.5 / 4, rtol=1e-6)
  np.testing.assert_allclose(gradient, [-3 / 4, 1 / 4, -0.5 / 4, 0], rtol=1e-6)
  assert clipped == 0


def test_the_count_comes_from_outside_so_parts_of_a_batch_add_up_to_it():
  logprobs = jnp.asarray(BEHAVIOUR + np.log(RATIOS))

  def part(half):
    return policy_loss(
        logprobs[half], BEHAVIOUR[half], ADVANTAGES[half], jnp.asarray(ALL[half]), clip=0.2,
        count=4.0)[0]

  np.testing.assert_allclose(
      part(slice(0, 1)) + part(slice(1, 4)), surrogate(logprobs, 4.0)[0], rtol=1e-6)


@jitted_or_not
def test_k3_by_hand(transform):
  logprobs = jnp.array([-2.0, -1.0, -3.0])
  reference = logprobs + jnp.array([LN2, -LN2, 0])
  kl, gradient = transform(jax.value_and_grad(
      lambda logprobs: kl_k3(logprobs, reference, jnp.ones(3, bool), count=2.0)))(logprobs)
  # (2 - ln 2 - 1) + (1/2 + ln 2 - 1) = 1/2
  np.testing.assert_allclose(kl, 0.5 / 2, rtol=1e-5)
  # 1 - exp(δ) each
  np.testing.assert_allclose(gradient, [-1 / 2, 0.5 / 2, 0], rtol=1e-5, atol=1e-7)


@jitted_or_not
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
def test_masked_tokens_give_neither_value_nor_gradient_whatever_they_hold(transform, garbage):
  mask = jnp.array([True, False, True, False])

  def loss(logprobs, other, advantages):
    surrogate, clipped = policy_loss(logprobs, other, advantages, mask, clip=0.2, count=2.0)
    return surrogate + kl_k3(logprobs, other, mask, count=2.0), clipped

  def at_masked(values, filler):
    return jnp.where(mask, jnp.asarray(values), filler)

  run = transform(jax.value_and_grad(loss, has_aux=True))
  logprobs = np.array([-1.0, -2.0, -3.0, -4.0], np.float32)
  expected = run(at_masked(logprobs, -1), at_masked(logprobs - 0.1, -1), at_masked(ADVANTAGES, 0))
  for fillers in ((garbage, -1, 0), (-1, garbage, 0), (garbage, garbage, garbage)):
    actual = run(at_masked(logprobs, fillers[0]), at_masked(logprobs - 0.1, fillers[1]),
                 at_masked(ADVANTAGES, fillers[2]))
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
  assert expected[1][1] == expected[1][3] == 0
  assert np.isfinite(expected[0][0]) and expected[1][0] != 0
