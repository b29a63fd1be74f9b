"""Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300) as pure functions.

Sums are divided by counts handed in from outside, so a loss and its gradient do not depend on how a
batch is split, padded or spread over devices.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float

from conductor_jax.training.batch import GroupedBatch
from conductor_jax.training.logprobs import Params, batch_statistics, masked_mean


def group_advantages(
    rewards: np.ndarray, accepted: np.ndarray, normalise: Literal["std", "mean"]
) -> np.ndarray:
  """Advantage of each rollout over its group.

      "std"   (r − mean) / std      DeepSeekMath, section 4.1.2; the std is the population's
      "mean"  r − mean              Dr. GRPO, arXiv 2503.20783

  Args:
    rewards: float[samples].
    accepted: bool[samples]; the others count for nothing and get advantage 0.
    normalise: which of the two.

  Returns:
    float32[samples]; all 0 where the accepted rewards are equal.
  """
  advantages = np.zeros(len(rewards), np.float32)
  values = np.asarray(rewards, np.float64)[accepted]
  if len(values) == 0 or np.ptp(values) == 0:
    return advantages
  centred = values - values.mean()
  advantages[accepted] = centred / values.std() if normalise == "std" else centred
  return advantages


def policy_loss(
    logprobs: Float[Array, "*tokens"],
    behaviour_logprobs: Float[Array, "*tokens"],
    advantages: Float[Array, "*tokens"],
    mask: Bool[Array, "*tokens"],
    *,
    clip: float,
    count: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
  """Clipped surrogate, summed over tokens and divided by `count`.

      ρ = exp(logprob − behaviour_logprob)
      loss = −Σ min(ρ A, clip(ρ, 1−ε, 1+ε) A) / count        arXiv 1707.06347, equation 7

  Args:
    logprobs: of the policy in training.
    behaviour_logprobs: of the policy that sampled.
    advantages: per token.
    mask: which tokens count.
    clip: ε.
    count: tokens of the whole batch that count.

  Returns:
    The loss, and the share of tokens where the clipped term is the smaller one.
  """
  ratio = jnp.exp(jnp.where(mask, logprobs - behaviour_logprobs, 0))
  free = ratio * advantages
  clipped = jnp.clip(ratio, 1 - clip, 1 + clip) * advantages
  loss = -jnp.sum(jnp.where(mask, jnp.minimum(free, clipped), 0)) / count
  return loss, jnp.sum(mask & (clipped < free)) / count


def kl_k3(
    logprobs: Float[Array, "*tokens"],
    reference_logprobs: Float[Array, "*tokens"],
    mask: Bool[Array, "*tokens"],
    *,
    count: Float[Array, ""],
) -> Float[Array, ""]:
  """The k3 estimate of KL(policy ‖ reference), summed over tokens and divided by `count`.

      k3 = exp(δ) − δ − 1, δ = reference_logprob − logprob      DeepSeekMath, equation 4
  """
  delta = jnp.where(mask, reference_logprobs - logprobs, 0)
  return jnp.sum(jnp.expm1(delta) - delta) / count


def grpo_loss(
    params: Params, reference: Params | None, batch: GroupedBatch, *, graph: nnx.GraphDef,
    clip: float, kl_coefficient: float | jax.Array, kl_estimator: Literal["k3", "exact"],
    temperature: float, chunk: int
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """GRPO with an optional KL term to a reference policy; normalised over all tokens of the batch.

      "k3"     exp(δ) − δ − 1, δ = reference_logprob − logprob of the sampled token
               (DeepSeekMath, equation 4)
      "exact"  Σ p (log p − log reference) over the vocabulary

  k3 sees a token only when it is sampled: what the reference would write and the policy has
  forgotten pulls no more. The exact sum always pulls back.

  Args:
    params: of the policy.
    reference: parameters of the reference policy, None for no KL term.
    batch: rows of rollouts.
    graph: the model.
    clip: ε of the surrogate.
    kl_coefficient: weight of the KL term.
    kl_estimator: of the KL term.
    temperature: that of sampling.
    chunk: tokens whose logits are held at once.
  """
  mask = batch.completion_mask
  count = jnp.maximum(mask.sum(), 1).astype(jnp.float32)
  reference_logprobs = None
  if reference is not None and kl_estimator == "k3":
    reference_logprobs = batch_statistics(
        graph, jax.lax.stop_gradient(reference), batch, temperature=temperature,
        chunk=chunk).logprobs
  policy = batch_statistics(
      graph, params, batch, temperature=temperature, chunk=chunk,
      reference=reference if kl_estimator == "exact" else None)
  loss, clip_fraction = policy_loss(
      policy.logprobs, batch.sampler_logprobs, batch.advantages, mask, clip=clip, count=count)
  gap = jnp.where(mask, jnp.abs(policy.logprobs - batch.sampler_logprobs), 0)
  measurements = {
      "entropy": masked_mean(policy.entropy, mask, count),
      "clip_fraction": clip_fraction,
      "logprob_gap_mean": gap.sum() / count,
      "logprob_gap_max": gap.max(),
  }
  if reference is not None:
    kl = (kl_k3(policy.logprobs, reference_logprobs, mask, count=count)
          if kl_estimator == "k3" else masked_mean(policy.kl, mask, count))
    measurements["kl"] = kl
    loss += kl_coefficient * kl
  return loss, measurements
