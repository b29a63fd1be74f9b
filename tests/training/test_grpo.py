"""Hand-computed losses and gradients, and what they must not depend on."""

import math
from dataclasses import fields, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conductor_jax.training.batch import Counts, GroupedBatch, batch_counts
from conductor_jax.training.grpo import (
    clipped_surrogate,
    grpo_loss,
    importance_weights,
    policy_ratio,
    token_weights,
)
from conductor_jax.training.logprobs import TokenStatistics

LN2 = math.log(2)
PLAIN = {
    "aggregation": "token", "max_tokens": 5, "ratio": "token", "clip_low": 0.2, "clip_high": 0.2,
    "dual_clip": 0.0, "importance_cap": 0.0, "kl_estimator": "k3", "kl_coefficient": 0.0,
    "entropy_coefficient": None}


def plainly(function):
  return function


jitted_or_not = pytest.mark.parametrize("transform", [plainly, jax.jit])


@jitted_or_not
@pytest.mark.parametrize("aggregation, first, second", [
    ("token", 1 / 8, 1 / 8), ("sequence", 1 / 9, 1 / 3), ("constant", 1 / 15, 1 / 15)])
def test_token_weights_by_hand(transform, aggregation, first, second):
  # Lengths 3, 1 and none, in a batch of 8 tokens and 3 sequences.
  mask = jnp.arange(3) < jnp.array([[[3], [1], [0]]])
  weights = transform(partial(token_weights, aggregation=aggregation, max_tokens=5))(
      mask, Counts(tokens=jnp.float32(8), sequences=jnp.float32(3)))
  np.testing.assert_allclose(
      weights, [[[first] * 3, [second, 0, 0], [0, 0, 0]]], rtol=1e-6)


@jitted_or_not
def test_a_sequences_ratio_is_the_geometric_mean_of_its_tokens_and_so_is_its_gradient(transform):
  mask = jnp.array([[[True, True, True], [True, False, False]]])
  difference = jnp.log(jnp.array([[[1.331, 2.0, 0.5], [1.5, 9.0, 9.0]]]))

  def total(difference, level):
    ratio = policy_ratio(difference - 1, -jnp.ones_like(difference), mask, level)
    return ratio[0, 0, 0] + ratio[0, 1, 0], ratio

  (_, ratio), gradient = transform(jax.value_and_grad(
      partial(total, level="sequence"), has_aux=True))(difference)
  np.testing.assert_allclose(ratio, [[[1.1] * 3, [1.5] * 3]], rtol=1e-6)
  np.testing.assert_allclose(gradient, [[[1.1 / 3] * 3, [1.5, 0, 0]]], rtol=1e-6)
  (_, ratio), gradient = transform(jax.value_and_grad(
      partial(total, level="token"), has_aux=True))(difference)
  np.testing.assert_allclose(ratio, [[[1.331, 2, 0.5], [1.5, 1, 1]]], rtol=1e-6)
  np.testing.assert_allclose(gradient, [[[1.331, 0, 0], [1.5, 0, 0]]], rtol=1e-6)


RATIOS = jnp.array([1.5, 1.5, 0.5, 0.5, 5.0, 1.25])
ADVANTAGES = jnp.array([1.0, -1.0, 1.0, -1.0, -2.0, 1.0])


@jitted_or_not
@pytest.mark.parametrize("low, high, dual, objective, gradient, clipped", [
    # The pessimistic side is clipped: a wanted token's rise and an unwanted one's fall.
    (0.2, 0.2, 0.0, [1.2, -1.5, 0.5, -0.8, -10, 1.2], [0, -1, 1, 0, -2, 0], "h..l.h"),
    (0.2, 0.3, 0.0, [1.3, -1.5, 0.5, -0.8, -10, 1.25], [0, -1, 1, 0, -2, 1], "h..l.."),
    (0.6, 0.2, 0.0, [1.2, -1.5, 0.5, -0.5, -10, 1.2], [0, -1, 1, -1, -2, 0], "h....h"),
    # An unwanted token costs at most 3 times its advantage.
    (0.2, 0.2, 3.0, [1.2, -1.5, 0.5, -0.8, -6, 1.2], [0, -1, 1, 0, 0, 0], "h..ldh"),
])
def test_the_clipped_surrogate_by_hand(transform, low, high, dual, objective, gradient, clipped):
  def total(ratio):
    surrogate = clipped_surrogate(
        ratio, ADVANTAGES, clip_low=low, clip_high=high, dual_clip=dual)
    return surrogate.objective.sum(), surrogate

  (_, surrogate), actual = transform(jax.value_and_grad(total, has_aux=True))(RATIOS)
  np.testing.assert_allclose(surrogate.objective, objective, rtol=1e-6)
  np.testing.assert_allclose(actual, gradient, rtol=1e-6)
  for letter, mask in zip("lhd", surrogate[1:], strict=True):
    assert [letter if hit else "." for hit in mask.tolist()] == [
        c if c == letter else "." for c in clipped]


@jitted_or_not
def test_importance_weights_are_truncated_and_give_no_gradient(transform):
  def total(logprobs):
    weights = importance_weights(logprobs, jnp.array([-1.0, -2.0, -3.0]), 2.0)
    return weights.sum(), weights

  (_, weights), gradient = transform(jax.value_and_grad(total, has_aux=True))(
      jnp.array([-1.0, -2.0, -3.0]) + jnp.log(jnp.array([0.5, 1.5, 8.0])))
  np.testing.assert_allclose(weights, [0.5, 1.5, 2], rtol=1e-6)
  assert gradient.tolist() == [0, 0, 0]


# One row of two completions, 3 tokens and 1; what is masked is garbage.
NAN = math.nan
MASK = np.array([[[True, True, True], [True, False, False]]])
SAMPLER = np.array([[[-1, -2, -3], [-4, NAN, NAN]]], np.float32)


def small_batch(advantages) -> GroupedBatch:
  return GroupedBatch(
      prompt_tokens=np.ones((1, 1), int), prompt_mask=np.ones((1, 1), bool),
      completion_tokens=np.ones(MASK.shape, int), completion_mask=MASK,
      advantages=np.array(advantages, np.float32), sampler_logprobs=SAMPLER)


def small_loss(transform, ratios, *, advantages=((1, 1, 1), (-1, NAN, NAN)), reference=None,
               entropy=2.0, **options):
  """((loss, measurements), gradient over the log-probabilities), of 4 tokens in 2 sequences.

  `ratios` are those of policy and sampler, `reference` those of reference and policy, in logs.
  """
  logprobs = SAMPLER + np.log(np.array(ratios, np.float32))
  statistics = TokenStatistics(
      logprobs=jnp.asarray(logprobs), entropy=np.where(MASK, entropy, NAN),
      reference_logprobs=None if reference is None else logprobs + np.array(reference, np.float32),
      kl=None if reference is None else np.where(MASK, 0.75, NAN))
  batch = small_batch([advantages])

  def loss(logprobs):
    return grpo_loss(
        statistics._replace(logprobs=logprobs), batch, batch_counts(batch), **PLAIN | options)

  return transform(jax.value_and_grad(loss, has_aux=True))(statistics.logprobs)


THREE_AND_ONE = [[[1.5, 1, 0.5], [1.5, NAN, NAN]]]


@jitted_or_not
@pytest.mark.parametrize("aggregation, loss, gradient", [
    # Surrogates 1.2, 1, 0.5 and −1.5.
    ("token", 0.3, [0, -1 / 4, -0.5 / 4, 1.5 / 4]),
    ("sequence", -0.3, [0, -1 / 6, -0.5 / 6, 1.5 / 2]),
    ("constant", 0.12, [0, -1 / 10, -0.5 / 10, 1.5 / 10])])
def test_the_loss_and_its_gradient_by_hand(transform, aggregation, loss, gradient):
  (value, measurements), actual = small_loss(transform, THREE_AND_ONE, aggregation=aggregation)
  np.testing.assert_allclose(value, -loss, rtol=1e-5)
  np.testing.assert_allclose(actual[MASK], gradient, rtol=1e-5, atol=1e-7)
  assert (actual[~MASK] == 0).all()
  # Measurements are means over tokens, whatever the loss is.
  sums = measurements.sums
  assert set(sums) == {"entropy", "clip_fraction", "clip_fraction_low", "clip_fraction_high",
                       "kl_to_sampler", "logprob_gap_mean"}
  np.testing.assert_allclose(sums["entropy"], 2, rtol=1e-6)
  np.testing.assert_allclose(
      [sums["clip_fraction"], sums["clip_fraction_high"], sums["clip_fraction_low"]],
      [1 / 4, 1 / 4, 0])
  gaps = [math.log(1.5), 0, LN2, math.log(1.5)]
  np.testing.assert_allclose(sums["logprob_gap_mean"], sum(gaps) / 4, rtol=1e-5)
  np.testing.assert_allclose(measurements.maxima["logprob_gap_max"], LN2, rtol=1e-5)
  # ρ − ln ρ − 1 each
  np.testing.assert_allclose(
      sums["kl_to_sampler"], (0.5 + 0 - 0.5 + 0.5 - 2 * math.log(1.5) + LN2) / 4, rtol=1e-4)


def test_on_policy_the_loss_is_minus_the_mean_advantage_and_the_gradient_minus_each():
  (loss, measurements), gradient = small_loss(
      plainly, np.ones((1, 2, 3)), advantages=((3, -1, 0.5), (0, NAN, NAN)))
  np.testing.assert_allclose(loss, -2.5 / 4, rtol=1e-6)
  np.testing.assert_allclose(gradient[MASK], [-3 / 4, 1 / 4, -0.5 / 4, 0], rtol=1e-6)
  for name in ("clip_fraction", "logprob_gap_mean", "kl_to_sampler"):
    assert measurements.sums[name] == 0


@jitted_or_not
def test_the_loss_over_sequence_ratios_by_hand(transform):
  # Ratios 1.1 and 1.5; the first completion's advantages are shared out evenly.
  (loss, _), gradient = small_loss(
      transform, [[[1.331, 1, 1], [1.5, NAN, NAN]]], ratio="sequence", aggregation="sequence",
      advantages=((3, 0, 0), (-1, NAN, NAN)))
  np.testing.assert_allclose(loss, -(1.1 - 1.5) / 2, rtol=1e-5)
  np.testing.assert_allclose(gradient[MASK], [-1.1 / 6] * 3 + [1.5 / 2], rtol=1e-5)


@jitted_or_not
def test_with_importance_weights_the_trainers_own_policy_is_the_old_one(transform):
  (loss, measurements), gradient = small_loss(transform, THREE_AND_ONE, importance_cap=1.25)
  # Ratios 1; weights min(ρ, 1.25): 1.25, 1, 0.5 and 1.25.
  np.testing.assert_allclose(loss, -(1.25 + 1 + 0.5 - 1.25) / 4, rtol=1e-5)
  np.testing.assert_allclose(
      gradient[MASK], [-1.25 / 4, -1 / 4, -0.5 / 4, 1.25 / 4], rtol=1e-5)
  sums = measurements.sums
  np.testing.assert_allclose(sums["importance_weight"], 1, rtol=1e-6)
  assert sums["importance_truncated"] == 2 / 4 and sums["clip_fraction"] == 0
  np.testing.assert_allclose(measurements.maxima["logprob_gap_max"], LN2, rtol=1e-5)


def test_the_dual_clip_is_measured_and_counts_among_the_clipped():
  (loss, measurements), gradient = small_loss(
      plainly, [[[1, 1, 1.5], [5, NAN, NAN]]], dual_clip=3.0)
  np.testing.assert_allclose(loss, -(1 + 1 + 1.2 - 3) / 4, rtol=1e-5)
  np.testing.assert_allclose(gradient[MASK], [-1 / 4, -1 / 4, 0, 0], rtol=1e-5)
  assert measurements.sums["clip_fraction_dual"] == 1 / 4
  assert measurements.sums["clip_fraction"] == 2 / 4


@jitted_or_not
@pytest.mark.parametrize("estimator, kl, gradient", [
    ("k1", (-LN2 + LN2 - LN2) / 4, [1 / 4] * 4),
    ("k2", 3 * LN2 ** 2 / 2 / 4, [-LN2 / 4, LN2 / 4, 0, -LN2 / 4]),
    ("k3", (1 - LN2 + LN2 - 0.5 + 1 - LN2) / 4, [-1 / 4, 0.5 / 4, 0, -1 / 4]),
    # That of the statistics.
    ("exact", 0.75, [0] * 4)])
def test_the_kl_term_by_hand(transform, estimator, kl, gradient):
  (loss, measurements), actual = small_loss(
      transform, np.ones((1, 2, 3)), advantages=((0, 0, 0), (0, NAN, NAN)),
      reference=[[[LN2, -LN2, 0], [LN2, NAN, NAN]]], kl_estimator=estimator, kl_coefficient=0.5)
  np.testing.assert_allclose(measurements.sums["kl"], kl, rtol=1e-5)
  np.testing.assert_allclose(loss, 0.5 * kl, rtol=1e-5)
  np.testing.assert_allclose(actual[MASK], 0.5 * np.array(gradient), rtol=1e-5, atol=1e-7)


def test_kl_and_entropy_are_weighted_like_the_surrogate():
  # 0.75 · 0.5 less 2 · 0.1 a token, four tokens of two sequences of at most five.
  (loss, _), _ = small_loss(
      plainly, np.ones((1, 2, 3)), advantages=((0, 0, 0), (0, NAN, NAN)),
      reference=np.zeros((1, 2, 3)), kl_estimator="exact", kl_coefficient=0.5,
      entropy_coefficient=0.1, aggregation="constant")
  np.testing.assert_allclose(loss, 4 * (0.375 - 0.2) / 10, rtol=1e-5)


# Every option at least once.
VARIANTS = [
    {},
    {"aggregation": "sequence", "ratio": "sequence", "clip_low": 0.02, "clip_high": 0.05},
    {"aggregation": "constant", "dual_clip": 1.1, "kl_estimator": "k2"},
    {"aggregation": "sequence", "importance_cap": 1.1, "kl_estimator": "exact"},
]


@pytest.fixture(scope="module")
def drawn():
  """Four ragged rows, one completion of them rejected, and statistics; NaN where masked."""
  generator = np.random.default_rng(0)
  shape = (4, 2, 6)
  mask = np.arange(6) < generator.integers(1, 7, size=(4, 2, 1))
  mask[2, 1] = False

  def values(scale=0.4):
    return np.where(mask, scale * generator.normal(size=shape), NAN).astype(np.float32)

  sampler = values()
  batch = GroupedBatch(
      prompt_tokens=np.ones((4, 3), int), prompt_mask=np.ones((4, 3), bool),
      completion_tokens=np.ones(shape, int), completion_mask=mask, advantages=values(1.0),
      sampler_logprobs=sampler)
  statistics = TokenStatistics(
      sampler + values(0.2), np.abs(values()), sampler + values(), np.abs(values()))
  return batch, statistics


def evaluated(batch, statistics, counts, options):
  """Loss, gradient over all statistics, and measurements."""
  (loss, measurements), gradient = jax.value_and_grad(
      lambda statistics: grpo_loss(
          statistics, batch, counts,
          **PLAIN | {"kl_coefficient": 0.3, "entropy_coefficient": 0.1} | options),
      has_aux=True)(jax.tree.map(jnp.asarray, statistics))
  return loss, gradient, measurements


def reshaped(tree, change):
  """A batch or statistics with `change` made to everything of the completions' shape."""
  if isinstance(tree, TokenStatistics):
    return TokenStatistics(*map(change, tree))
  return replace(tree, **{
      field.name: change(getattr(tree, field.name)) for field in fields(tree)
      if not field.name.startswith("prompt")})


def assert_close(actual, expected):
  jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), actual, expected)


each_variant = pytest.mark.parametrize("options", VARIANTS, ids=str)


@each_variant
def test_micro_batches_add_up_to_the_batch(drawn, options):
  batch, statistics = drawn
  counts = batch_counts(batch)
  loss, gradient, measurements = evaluated(batch, statistics, counts, options)
  parts = [
      evaluated(reshaped(batch, lambda x, p=part: x[p]),
                reshaped(statistics, lambda x, p=part: x[p]), counts, options)
      for part in (slice(0, 2), slice(2, 4))]
  assert_close(sum(part[0] for part in parts), loss)
  assert_close(jax.tree.map(lambda *x: np.concatenate(x), *(part[1] for part in parts)), gradient)
  assert_close(jax.tree.map(lambda *x: sum(x), *(part[2].sums for part in parts)),
               measurements.sums)
  assert_close(jax.tree.map(lambda *x: max(x), *(part[2].maxima for part in parts)),
               measurements.maxima)
  assert 0 < measurements.sums["clip_fraction"] < 1 or options.get("importance_cap")
  assert np.isfinite(loss) and abs(loss) > 1e-3


@each_variant
def test_padding_and_masked_completions_change_nothing(drawn, options):
  batch, statistics = drawn
  expected = evaluated(batch, statistics, batch_counts(batch), options)

  def widened(x):
    # One more row, and five more tokens at the end of every other.
    return np.pad(x, [(0, 1), (0, 0), (0, 5)],
                  constant_values=NAN if x.dtype == np.float32 else 0)

  wide = reshaped(batch, widened)
  assert wide.completion_mask.shape == (5, 2, 11)
  loss, gradient, measurements = evaluated(
      wide, reshaped(statistics, widened), batch_counts(wide), options)
  assert_close((loss, measurements), (expected[0], expected[2]))
  assert_close(reshaped(gradient, lambda x: x[:4, :, :6]), expected[1])
  assert all((x[~wide.completion_mask] == 0).all() for x in gradient)


@each_variant
def test_a_group_split_over_rows_is_the_same_group(drawn, options):
  batch, statistics = drawn
  expected = evaluated(batch, statistics, batch_counts(batch), options)

  def split(x):
    return x.reshape(8, 1, 6)

  rows = reshaped(batch, split)
  loss, gradient, measurements = evaluated(
      rows, reshaped(statistics, split), batch_counts(rows), options)
  assert_close((loss, measurements), (expected[0], expected[2]))
  assert_close(reshaped(gradient, lambda x: x.reshape(4, 2, 6)), expected[1])


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
def test_masked_tokens_give_neither_value_nor_gradient_whatever_they_hold(drawn, garbage):
  batch, statistics = drawn

  def filled(filler):
    def fill(x):
      return np.where(batch.completion_mask, x, np.asarray(filler, x.dtype)) \
          if x.dtype == np.float32 else x
    return evaluated(
        reshaped(batch, fill), reshaped(statistics, fill), batch_counts(batch),
        {"dual_clip": 1.1})

  jax.tree.map(np.testing.assert_array_equal, filled(garbage), filled(0.0))


def test_a_batch_without_a_token_that_counts_has_loss_zero_and_no_gradient(drawn):
  batch, statistics = drawn
  empty = replace(batch, completion_mask=np.zeros_like(batch.completion_mask))
  for options in VARIANTS:
    loss, gradient, measurements = evaluated(empty, statistics, batch_counts(empty), options)
    assert loss == 0 and not any(x.any() for x in gradient)
    assert not any(jax.tree.leaves(measurements))


def test_an_advantage_that_is_not_finite_shows_in_the_loss():
  (loss, _), _ = small_loss(
      plainly, np.ones((1, 2, 3)), advantages=((1, NAN, 1), (-1, 0, 0)), dual_clip=3.0)
  assert math.isnan(loss)
