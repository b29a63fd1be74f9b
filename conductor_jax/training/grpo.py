"""Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300) as pure functions of arrays.

A loss is a weighted sum over tokens, and the weights come from counts of the whole batch. So it
does not depend on how a batch is split, padded or spread over devices: the parts add up to it.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from conductor_jax.training.batch import Counts, GroupedBatch, Measurements, mean_over_tokens
from conductor_jax.training.kl import KLEstimator, kl_estimate
from conductor_jax.training.logprobs import TokenStatistics

Aggregation = Literal["token", "sequence", "constant"]
Level = Literal["token", "sequence"]


def token_weights(
    mask: Bool[Array, "rows samples tokens"], counts: Counts, aggregation: Aggregation, *,
    max_tokens: int
) -> Float[Array, "rows samples tokens"]:
  """What each token counts for; a loss is the sum of weight × value. 0 where the mask is False.

      "token"      1 / tokens                         DAPO, arXiv 2503.14476, equation 8: long
                                                      completions count for more
      "sequence"   1 / (sequences · length of its     DeepSeekMath, equation 3: every completion
                   completion)                        counts for the same
      "constant"   1 / (sequences · max_tokens)       Dr. GRPO, arXiv 2503.20783: as "token", but
                                                      the scale does not follow the lengths

  Args:
    mask: which completion tokens count.
    counts: of the whole batch.
    aggregation: which of the three.
    max_tokens: the most tokens a completion may have.
  """
  mask = mask.astype(jnp.float32)
  if aggregation == "token":
    return mask / counts.tokens
  if aggregation == "sequence":
    lengths = jnp.maximum(mask.sum(axis=-1, keepdims=True), 1)
    return mask / (lengths * counts.sequences)
  return mask / (counts.sequences * max_tokens)


def policy_ratio(
    logprobs: Float[Array, "rows samples tokens"],
    old_logprobs: Float[Array, "rows samples tokens"],
    mask: Bool[Array, "rows samples tokens"], level: Level
) -> Float[Array, "rows samples tokens"]:
  """How much likelier the policy makes what was sampled.

      "token"      exp(logprob − old_logprob)
      "sequence"   exp(mean of logprob − old_logprob over the completion's tokens), the same for all
                   of them: GSPO, arXiv 2507.18071, equation 7

  The gradient goes through the ratio. A sequence's is shared by all its tokens, so advantages that
  differ within a completion act as their mean.

  Args:
    logprobs: of the policy in training.
    old_logprobs: of the policy it is compared with.
    mask: which tokens count; the ratio of the others means nothing.
    level: which of the two.
  """
  difference = jnp.where(mask, logprobs - old_logprobs, 0)
  if level == "sequence":
    lengths = jnp.maximum(mask.sum(axis=-1, keepdims=True), 1)
    difference = jnp.broadcast_to(
        difference.sum(axis=-1, keepdims=True) / lengths, difference.shape)
  return jnp.exp(difference)


class Surrogate(NamedTuple):
  """A clipped objective, and the tokens from which a bound takes the gradient.

  Attributes:
    objective: per token, to be raised.
    low: an unwanted token's ratio is below its bound.
    high: a wanted token's ratio is above its bound.
    dual: an unwanted token's ratio is so high that the dual clip bounds what it costs.
  """

  objective: Float[Array, "*tokens"]
  low: Bool[Array, "*tokens"]
  high: Bool[Array, "*tokens"]
  dual: Bool[Array, "*tokens"]


def clipped_surrogate(
    ratio: Float[Array, "*tokens"], advantages: Float[Array, "*tokens"], *, clip_low: float,
    clip_high: float, dual_clip: float
) -> Surrogate:
  """The objective of PPO with bounds of their own below and above, and optionally a dual clip.

      objective = min(ρ A, clip(ρ, 1 − low, 1 + high) A)     arXiv 1707.06347, equation 7; two
                                                             bounds: DAPO, arXiv 2503.14476,
                                                             equation 8
      where A < 0: max(objective, c A)                       dual clip, arXiv 1912.09729

  Args:
    ratio: ρ, per token.
    advantages: A, per token.
    clip_low: how far below 1 the ratio of an unwanted token may still fall.
    clip_high: how far above 1 the ratio of a wanted token may still rise.
    dual_clip: c, above 1; 0 for none.
  """
  clipped = jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * advantages
  objective = jnp.minimum(ratio * advantages, clipped)
  unwanted = advantages < 0
  low = unwanted & (ratio < 1 - clip_low)
  high = (advantages > 0) & (ratio > 1 + clip_high)
  if not dual_clip:
    return Surrogate(objective, low, high, jnp.zeros_like(low))
  bounded = jnp.maximum(objective, dual_clip * advantages)
  return Surrogate(
      jnp.where(unwanted, bounded, objective), low, high, unwanted & (ratio > dual_clip))


def importance_weights(
    logprobs: Float[Array, "*tokens"], sampler_logprobs: Float[Array, "*tokens"], cap: float
) -> Float[Array, "*tokens"]:
  """Truncated importance weights of the trainer's policy against the sampler's; no gradient.

      min(exp(logprob − sampler_logprob), cap)

  They correct for a sampler whose arithmetic or weights are not the trainer's. Source: F. Yao et
  al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training", 2025.
  """
  return jnp.minimum(jnp.exp(jax.lax.stop_gradient(logprobs) - sampler_logprobs), cap)


def grpo_loss(
    statistics: TokenStatistics, batch: GroupedBatch, counts: Counts, *, aggregation: Aggregation,
    max_tokens: int, ratio: Level, clip_low: float, clip_high: float, dual_clip: float,
    importance_cap: float, kl_estimator: KLEstimator | Literal["exact"],
    kl_coefficient: float | Array, entropy_coefficient: float | Array | None
) -> tuple[Float[Array, ""], Measurements]:
  """−Σ weight · (importance · surrogate − kl_coefficient · KL + entropy_coefficient · entropy).

  Without importance weights the ratio is taken against the sampler: importance is 1. With them
  (`importance_cap` above 0) it is taken against the trainer's own policy before the step, and the
  importance weight leads from there to the sampler. A batch serves one step, so that ratio is 1
  where the loss is evaluated and its bounds do not act: the weight's cap takes their place.

  The KL term exists where `statistics` come with a reference. Its "exact" form sums over the
  vocabulary; the estimators (`kl_estimate`) see a token only when it is sampled: what the reference
  would write and the policy has forgotten pulls no more.

  Measurements, means over the tokens that count:

      entropy                 of the policy, in nats
      clip_fraction           tokens whose gradient a bound takes; _low, _high and _dual apart
      kl                      the KL term before its coefficient, where there is a reference
      kl_to_sampler           the k3 estimate of KL(sampler ‖ policy), in nats
      logprob_gap_mean, _max  |logprob − sampler_logprob|, in nats; the maximum is a maximum
      importance_weight       and the share of weights at the cap, importance_truncated

  Args:
    statistics: of the policy in training.
    batch: the same rows; masked tokens may hold anything, NaN included.
    counts: of the whole batch that these rows are a part of.
    aggregation: see `token_weights`.
    max_tokens: see `token_weights`.
    ratio: see `policy_ratio`.
    clip_low: see `clipped_surrogate`.
    clip_high: see `clipped_surrogate`.
    dual_clip: see `clipped_surrogate`; 0 for none.
    importance_cap: of the importance weights; 0 for none.
    kl_estimator: of the KL term.
    kl_coefficient: weight of the KL term.
    entropy_coefficient: weight of the entropy bonus; None for none, which saves its gradient.
  """
  mask = batch.completion_mask

  def real(values):
    return jnp.where(mask, values, 0)

  logprobs, entropy = real(statistics.logprobs), real(statistics.entropy)
  sampler_logprobs, advantages = real(batch.sampler_logprobs), real(batch.advantages)
  old_logprobs = jax.lax.stop_gradient(logprobs) if importance_cap else sampler_logprobs
  surrogate = clipped_surrogate(
      policy_ratio(logprobs, old_logprobs, mask, ratio), advantages,
      clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)
  value = surrogate.objective
  gap = jnp.abs(logprobs - sampler_logprobs)
  means = {
      "entropy": entropy,
      "clip_fraction": surrogate.low | surrogate.high | surrogate.dual,
      "clip_fraction_low": surrogate.low,
      "clip_fraction_high": surrogate.high,
      "kl_to_sampler": kl_estimate(sampler_logprobs, logprobs, "k3"),
      "logprob_gap_mean": gap,
  }
  if dual_clip:
    means["clip_fraction_dual"] = surrogate.dual
  if importance_cap:
    weights = importance_weights(logprobs, sampler_logprobs, importance_cap)
    value = weights * value
    means |= {"importance_weight": weights, "importance_truncated": weights >= importance_cap}
  if statistics.reference_logprobs is not None:
    means["kl"] = (
        real(statistics.kl) if kl_estimator == "exact"
        else kl_estimate(logprobs, real(statistics.reference_logprobs), kl_estimator))
    value -= kl_coefficient * means["kl"]
  if entropy_coefficient is not None:
    value += entropy_coefficient * entropy
  loss = -jnp.sum(value * token_weights(mask, counts, aggregation, max_tokens=max_tokens))
  return loss, Measurements(
      sums={name: mean_over_tokens(values, mask, counts) for name, values in means.items()},
      maxima={"logprob_gap_max": gap.max()})
