"""Losses over a batch, and the optimizer step around them."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from conductor_jax.training.batch import Group, GroupedBatch, batch_counts, pack
from conductor_jax.training.grpo import grpo_loss
from conductor_jax.training.logprobs import batch_statistics
from conductor_jax.training.sft import likelihood_loss
from conductor_jax.training.sharding import MESH_AXES, parameter_shardings
from conductor_jax.training.step import initial_state, make_optimizer, make_step

TEMPERATURE, CHUNK = 0.8, 8
GRPO = {
    "aggregation": "token", "max_tokens": 8, "ratio": "token", "clip_low": 0.2, "clip_high": 0.2,
    "dual_clip": 0.0, "importance_cap": 0.0, "kl_estimator": "k3", "kl_coefficient": 0.5,
    "entropy_coefficient": None}
COMPLETION_LENGTHS = ((4, 2, 7), (3, 8, 1))

statistics_of = jax.jit(
    partial(batch_statistics, temperature=TEMPERATURE, chunk=CHUNK), static_argnames="graph")


@partial(jax.jit, static_argnames=("graph", "kl_estimator"))
def grpo(graph, params, reference, batch, kl_estimator="k3"):
  """((loss, measurements), gradient)."""
  def loss(params):
    loss, measurements = grpo_loss(
        statistics_of(graph, params, batch, reference=reference), batch, batch_counts(batch),
        **GRPO | {"kl_estimator": kl_estimator})
    return loss, measurements.sums | measurements.maxima

  return jax.value_and_grad(loss, has_aux=True)(params)


@pytest.fixture(scope="module")
def mesh():
  return Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), MESH_AXES)


@pytest.fixture(scope="module")
def batch(tiny_model) -> GroupedBatch:
  """Two ragged groups of three completions, on-policy, with advantages of both signs."""
  generator = np.random.default_rng(1)
  groups = [
      Group(
          prompt_tokens=generator.integers(31, size=width),
          completion_tokens=[generator.integers(31, size=n) for n in lengths],
          sampler_logprobs=[np.zeros(n) for n in lengths],
          rewards=np.zeros(3), accepted=np.ones(3, bool))
      for width, lengths in zip((4, 6), COMPLETION_LENGTHS, strict=True)]
  advantages = [np.array([1.0, -1.5, 0.5]), np.array([-0.5, 2.0, -1.0])]
  batch = pack(groups, advantages, pad=0, multiple=8)
  graph, params = tiny_model()
  return replace(batch, sampler_logprobs=np.array(statistics_of(graph, params, batch).logprobs))


@pytest.fixture(scope="module")
def elsewhere(tiny_model):
  """Parameters a little off those that sampled."""
  generator = np.random.default_rng(2)
  return jax.tree.map(
      lambda leaf: leaf + 0.02 * generator.normal(size=leaf.shape).astype(np.float32),
      tiny_model()[1])


def placed(mesh, params):
  """A copy on the mesh, for a step to consume."""
  return jax.device_put(
      jax.tree.map(np.array, params), parameter_shardings(mesh, params), may_alias=False)


def copied(tree):
  """A copy on the host that outlives the donation of the original."""
  return jax.tree.map(np.array, tree)


def assert_equal(actual, expected):
  jax.tree.map(np.testing.assert_array_equal, actual, expected)


def assert_close(actual, expected, tolerance):
  jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance),
      actual, expected)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_the_gradient_moves_a_completions_probability_the_way_of_its_advantage(
    tiny_model, batch, advantage):
  graph, params = tiny_model()
  advantages = np.zeros_like(batch.advantages)
  advantages[0, 2] = advantage * batch.completion_mask[0, 2]
  _, gradient = grpo(graph, params, params, replace(batch, advantages=advantages))
  moved = jax.tree.map(lambda p, g: p - 0.01 * g, params, gradient)
  after = statistics_of(graph, moved, batch).logprobs
  change = np.sum(np.where(batch.completion_mask, after - batch.sampler_logprobs, 0), axis=-1)
  # To first order the seven tokens, a share of 1 / 25 each, gain 25 · 0.01 · |gradient|².
  norm = sum(float(jnp.sum(leaf ** 2)) for leaf in jax.tree.leaves(gradient))
  np.testing.assert_allclose(change[0, 2], advantage * 25 * 0.01 * norm, rtol=0.1)
  assert abs(change[0, 2]) > 1e-3


def test_on_policy_no_token_is_clipped_and_the_log_probability_gap_is_zero(tiny_model, batch):
  graph, params = tiny_model()
  (_, measurements), _ = grpo(graph, params, params, batch)
  assert measurements["clip_fraction"] == 0
  assert measurements["logprob_gap_max"] < 1e-6


def test_the_log_probability_gap_and_entropy_are_those_of_the_real_tokens(
    tiny_model, batch, elsewhere):
  graph, params = tiny_model()
  (_, measurements), _ = grpo(graph, elsewhere, params, batch)
  logprobs, entropies, *_ = statistics_of(graph, elsewhere, batch)
  mask = batch.completion_mask
  gap = np.abs(logprobs - batch.sampler_logprobs)[mask]
  np.testing.assert_allclose(measurements["logprob_gap_mean"], gap.mean(), rtol=1e-5)
  np.testing.assert_allclose(measurements["logprob_gap_max"], gap.max(), rtol=1e-5)
  np.testing.assert_allclose(
      measurements["entropy"], np.asarray(entropies)[mask].mean(), rtol=1e-5)
  assert gap.max() > 1e-2


def test_a_policy_that_is_its_own_reference_has_no_divergence_and_no_gradient_from_it(
    tiny_model, batch, elsewhere):
  graph, params = tiny_model()
  still = replace(batch, advantages=np.zeros_like(batch.advantages))
  (loss, measurements), gradient = grpo(graph, params, params, still)
  assert loss == measurements["kl"] == 0
  assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(gradient)) == 0
  (loss, measurements), gradient = grpo(graph, elsewhere, params, still)
  assert measurements["kl"] > 1e-3
  np.testing.assert_allclose(loss, 0.5 * measurements["kl"], rtol=1e-6)
  assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(gradient)) > 1e-3


def test_the_exact_kl_is_the_mean_over_real_tokens_of_the_whole_distributions(
    tiny_model, batch, elsewhere):
  graph, params = tiny_model()
  (_, measurements), _ = grpo(graph, elsewhere, params, batch, kl_estimator="exact")
  statistics = statistics_of(graph, elsewhere, batch, reference=params)
  expected = np.asarray(statistics.kl)[batch.completion_mask].mean()
  np.testing.assert_allclose(measurements["kl"], expected, rtol=1e-5)
  assert expected > 1e-3


def test_padding_and_masked_rows_change_neither_loss_nor_gradient(tiny_model, batch, elsewhere):
  graph, params = tiny_model()
  expected = grpo(graph, elsewhere, params, batch)

  def widened(values, extra, fill):
    # One more row, and `extra` more tokens at the end of every other.
    return np.pad(values, [(0, 1), *[(0, 0)] * (values.ndim - 2), (0, extra)],
                  constant_values=fill)

  wide = GroupedBatch(
      prompt_tokens=widened(batch.prompt_tokens, 3, 5),
      prompt_mask=widened(batch.prompt_mask, 3, False),
      completion_tokens=widened(batch.completion_tokens, 5, 7),
      completion_mask=widened(batch.completion_mask, 5, False),
      advantages=widened(batch.advantages, 5, 3.0),
      sampler_logprobs=widened(batch.sampler_logprobs, 5, np.nan))
  wide.prompt_mask[-1, 0] = True
  assert wide.completion_tokens.shape == (3, 3, 13)
  assert_close(grpo(graph, elsewhere, params, wide), expected, 1e-6)


def test_one_likelihood_step_lowers_the_loss(tiny_model, batch, mesh):
  graph, params = tiny_model()
  optimizer, schedule = make_optimizer(
      learning_rate=1e-2, steps=10, warmup_fraction=0, decay="constant", b1=0.9, b2=0.99,
      weight_decay=0, clip_norm=1.0)
  state = initial_state(mesh, placed(mesh, params), optimizer)

  def statistics(params, reference, batch):
    return batch_statistics(graph, params, batch, temperature=1.0, chunk=CHUNK)

  def loss(statistics, batch, counts, state):
    return likelihood_loss(statistics, batch, counts)

  step = make_step(loss, statistics, optimizer, schedule, mesh, state)
  state, first = step(state, None, batch)
  state, second = step(state, None, batch)
  assert 3 < first["loss"] < 5  # about ln 31
  assert second["loss"] < first["loss"] - 0.05
  assert state.step == 2


@pytest.fixture(scope="module")
def stepping(tiny_model, mesh):
  """A GRPO step with a linear warm-up over two of its twenty steps, and a way to a fresh state."""
  graph, params = tiny_model()
  optimizer, schedule = make_optimizer(
      learning_rate=1e-2, steps=20, warmup_fraction=0.1, decay="cosine", b1=0.9, b2=0.99,
      weight_decay=0.1, clip_norm=1.0)

  def fresh():
    return initial_state(mesh, placed(mesh, params), optimizer)

  def loss(statistics, batch, counts, state):
    loss, measurements = grpo_loss(statistics, batch, counts, **GRPO)
    return loss, measurements._replace(sums=measurements.sums | {"told": state.step})

  def statistics(params, reference, batch):
    return statistics_of(graph, params, batch)

  return make_step(loss, statistics, optimizer, schedule, mesh, fresh()), fresh


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_step_that_is_not_finite_changes_only_its_counters_and_a_good_one_resets_them(
    batch, stepping, broken):
  step, fresh = stepping
  state, _ = step(fresh(), None, batch)
  state, _ = step(state, None, batch)
  before = copied(state)
  assert before.step == 2 and before.skipped == 0
  advantages = batch.advantages.copy()
  advantages[1, 0, 0] = broken
  for skipped in (1, 2):
    state, measurements = step(state, None, replace(batch, advantages=advantages))
    after = copied(state)
    assert_equal((after.params, after.optimizer), (before.params, before.optimizer))
    assert after.skipped == skipped and after.step == 2 + skipped
    assert measurements["skipped"] == 1
    assert not np.isfinite(measurements["loss"])
  state, measurements = step(state, None, batch)
  assert state.skipped == 0 and state.step == 5 and measurements["skipped"] == 0
  assert measurements["told"] == 4
  assert np.abs(np.asarray(state.params["final_norm"]) - before.params["final_norm"]).max() > 1e-3


def test_the_recorded_learning_rate_is_the_one_that_was_applied_also_after_a_skipped_step(
    batch, stepping):
  step, fresh = stepping
  broken = replace(batch, advantages=np.full_like(batch.advantages, np.nan))
  rates, moved = [], []
  state = fresh()
  for each in (broken, batch, batch, batch):
    before = copied(state.params)
    state, measurements = step(state, None, each)
    rates.append(float(measurements["learning_rate"]))
    moved.append(max(
        np.abs(a - b).max() for a, b in zip(
            jax.tree.leaves(copied(state.params)), jax.tree.leaves(before), strict=True)))
  np.testing.assert_allclose(rates, [0, 0, 0.005, 0.01], rtol=1e-6)
  assert moved[0] == moved[1] == 0
  # Adam's step is about the learning rate, and the weight decay adds to it.
  np.testing.assert_allclose(moved[2:], rates[2:], rtol=0.25)


@pytest.mark.parametrize("decay, warmup, expected", [
    ("cosine", 0.1, {0: 0, 5: 0.5, 10: 1, 55: 0.5, 100: 0}),
    ("cosine", 0, {0: 1, 50: 0.5, 100: 0}),
    ("constant", 0.1, {0: 0, 5: 0.5, 10: 1, 55: 1, 100: 1}),
    ("constant", 0, {0: 1, 100: 1}),
])
def test_the_schedule_warms_up_linearly_then_decays_or_stays(decay, warmup, expected):
  _, schedule = make_optimizer(
      learning_rate=2e-3, steps=100, warmup_fraction=warmup, decay=decay, b1=0.9, b2=0.99,
      weight_decay=0, clip_norm=1.0)
  for step, share in expected.items():
    np.testing.assert_allclose(schedule(step), 2e-3 * share, rtol=1e-5, atol=1e-9)
