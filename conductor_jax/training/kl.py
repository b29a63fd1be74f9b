"""Estimates of a Kullback–Leibler divergence from sampled tokens (J. Schulman, "Approximating KL
Divergence", 2020)."""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

KLEstimator = Literal["k1", "k2", "k3"]


def kl_estimate(
    logprobs: Float[Array, "*tokens"], reference_logprobs: Float[Array, "*tokens"],
    estimator: KLEstimator
) -> Float[Array, "*tokens"]:
  """One token's estimate of KL(policy ‖ reference), in nats; the token was sampled by the policy.

      δ = reference_logprob − logprob
      "k1"   −δ                   unbiased, of high variance
      "k2"   δ² / 2               biased, of low variance
      "k3"   exp(δ) − δ − 1       unbiased, of low variance, never negative (DeepSeekMath, arXiv
                                  2402.03300, equation 4)

  A good estimate need not have a good gradient. Over tokens of the policy itself, the expected
  gradient is

      k1   zero: as a term of a loss it pulls nowhere and only adds noise
      k2   that of KL(policy ‖ reference)
      k3   that of KL(reference ‖ policy)

  Args:
    logprobs: of the tokens under the policy that sampled them.
    reference_logprobs: of the same tokens under the other policy.
    estimator: which of the three.
  """
  delta = reference_logprobs - logprobs
  if estimator == "k1":
    return -delta
  if estimator == "k2":
    return jnp.square(delta) / 2
  return jnp.expm1(delta) - delta
