"""Estimates of a divergence by hand, and what their gradients are worth."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conductor_jax.training.kl import kl_estimate

LN2 = math.log(2)
LOGITS, REFERENCE = jnp.array([0.5, -1.0, 0.25]), jax.nn.log_softmax(jnp.array([-0.5, 0.0, 1.0]))


def plainly(function, **_):
  return function


@pytest.mark.parametrize("transform", [plainly, jax.jit])
@pytest.mark.parametrize("estimator, values, gradients", [
    ("k1", [-LN2, LN2, 0], [1, 1, 1]),
    ("k2", [LN2 ** 2 / 2, LN2 ** 2 / 2, 0], [-LN2, LN2, 0]),
    # exp(δ) − δ − 1 and 1 − exp(δ)
    ("k3", [1 - LN2, LN2 - 0.5, 0], [-1, 0.5, 0])])
def test_estimates_by_hand(transform, estimator, values, gradients):
  logprobs = jnp.array([-2.0, -1.0, -3.0])
  reference = logprobs + jnp.array([LN2, -LN2, 0])

  def estimate(logprobs):
    estimates = kl_estimate(logprobs, reference, estimator)
    return estimates.sum(), estimates

  (_, estimates), gradient = transform(jax.value_and_grad(estimate, has_aux=True))(logprobs)
  np.testing.assert_allclose(estimates, values, rtol=1e-5, atol=1e-7)
  np.testing.assert_allclose(gradient, gradients, rtol=1e-5, atol=1e-7)


def expected_over_tokens(estimator):
  """Mean over the policy's own tokens, the sampling held fixed: what a large batch comes to."""
  def expectation(logits):
    logprobs = jax.nn.log_softmax(logits)
    probabilities = jax.lax.stop_gradient(jnp.exp(logprobs))
    return jnp.sum(probabilities * kl_estimate(logprobs, REFERENCE, estimator))

  return jax.value_and_grad(expectation)(LOGITS)


def forward(logits):
  logprobs = jax.nn.log_softmax(logits)
  return jnp.sum(jnp.exp(logprobs) * (logprobs - REFERENCE))


def backward(logits):
  return jnp.sum(jnp.exp(REFERENCE) * (REFERENCE - jax.nn.log_softmax(logits)))


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_k1_and_k3_are_unbiased(estimator):
  np.testing.assert_allclose(expected_over_tokens(estimator)[0], forward(LOGITS), rtol=1e-5)


def test_the_expected_gradient_of_k1_is_zero_that_of_k2_the_divergences_that_of_k3_the_reverses():
  zero, gradient, reverse = (expected_over_tokens(name)[1] for name in ("k1", "k2", "k3"))
  np.testing.assert_allclose(zero, [0, 0, 0], atol=1e-6)
  np.testing.assert_allclose(gradient, jax.grad(forward)(LOGITS), rtol=1e-5)
  np.testing.assert_allclose(reverse, jax.grad(backward)(LOGITS), rtol=1e-5)
  assert np.abs(gradient - reverse).max() > 0.05
