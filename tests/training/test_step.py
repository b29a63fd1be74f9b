"""Losses over a batch, and the optimizer step around them."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from conductor_jax.training.batch import Group, GroupedBatch, batch_counts, pack
from conductor_jax.training.grpo import grpo_loss
from conductor_jax.training.logprobs import batch_statistics
from conductor_jax.training.optimizer import adamw, make_schedule
from conductor_jax.training.sft import likelihood_loss
from conductor_jax.training.sharding import parameter_shardings
from conductor_jax.training.step import TrainStep, initial_state
from tests.training.gradient_steps import CASES, grid, groups, keep_gradient, make

TEMPERATURE, CHUNK = 0.8, 8
GRPO = {
    "aggregation": "token", "max_tokens": 8, "ratio": "token", "clip_low": 0.2, "clip_high": 0.2,
    "dual_clip": 0.0, "importance_cap": 0.0, "kl_estimator": "k3", "kl_coefficient": 0.5,
    "entropy_coefficient": None}
COMPLETION_LENGTHS = ((4, 2, 7), (3, 8, 1))


@partial(jax.jit, static_argnames="graph")
def statistics_of(graph, params, batch, reference=None):
  return batch_statistics(
      params, reference, batch, graph=graph, temperature=TEMPERATURE, chunk=CHUNK)


def grpo(graph, params, reference, batch, kl_estimator="k3"):
  """((loss, measurements), gradient)."""
  return counted_grpo(graph, params, reference, batch, batch_counts(batch), kl_estimator)


@partial(jax.jit, static_argnames=("graph", "kl_estimator"))
def counted_grpo(graph, params, reference, batch, counts, kl_estimator):
  def loss(params):
    loss, measurements = grpo_loss(
        statistics_of(graph, params, batch, reference=reference), batch, counts,
        **GRPO | {"kl_estimator": kl_estimator})
    return loss, measurements.sums | measurements.maxima

  return jax.value_and_grad(loss, has_aux=True)(params)


@pytest.fixture(scope="module")
def mesh():
  return grid(1, 1, 1)


@pytest.fixture(scope="module")
def batch(tiny_model) -> GroupedBatch:
  """Two ragged groups of three completions, on-policy, with advantages of both signs."""
  generator = np.random.default_rng(1)
  advantages = ((1.0, -1.5, 0.5), (-0.5, 2.0, -1.0))
  rolled_out = [
      Group(
          prompt_tokens=generator.integers(31, size=width),
          completion_tokens=[generator.integers(31, size=n) for n in lengths],
          sampler_logprobs=[np.zeros(n) for n in lengths],
          advantages=np.array(each), accepted=np.ones(3, bool))
      for width, lengths, each in zip((4, 6), COMPLETION_LENGTHS, advantages, strict=True)]
  batch = pack(rolled_out, pad=0, multiple=8)
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


def make_optimizer(steps, warmup_fraction, decay, weight_decay):
  schedule = make_schedule(
      learning_rate=1e-2, steps=steps, warmup_fraction=warmup_fraction, decay=decay)
  return adamw(
      schedule, b1=0.9, b2=0.99, weight_decay=weight_decay, mu_dtype="float32"), schedule


def test_one_likelihood_step_lowers_the_loss(tiny_model, batch, mesh):
  graph, params = tiny_model()
  optimizer, schedule = make_optimizer(10, 0, "none", 0)
  state = initial_state(mesh, placed(mesh, params), optimizer)

  def loss(statistics, batch, counts, state):
    del state
    return likelihood_loss(statistics, batch, counts)

  step = TrainStep(
      partial(batch_statistics, graph=graph, temperature=1.0, chunk=CHUNK), loss, optimizer,
      schedule, clip_norm=1.0, mesh=mesh, state=state)
  state, first = step(state, batch)
  state, second = step(state, batch)
  assert 3 < first["loss"] < 5  # about ln 31
  assert second["loss"] < first["loss"] - 0.05
  assert state.step == 2


@pytest.fixture(scope="module", params=[1, 2])
def stepping(tiny_model, mesh, request):
  """A GRPO step in so many micro-batches, and a way to a fresh state.

  It has a linear warm-up over two of its twenty steps, and moves the entropy coefficient to half of
  itself plus a tenth of the entropy.
  """
  graph, params = tiny_model()
  optimizer, schedule = make_optimizer(20, 0.1, "cosine", 0.1)

  def fresh():
    return initial_state(mesh, placed(mesh, params), optimizer, entropy_coefficient=0.2)

  def loss(statistics, batch, counts, state):
    loss, measurements = grpo_loss(
        statistics, batch, counts, **GRPO | {"entropy_coefficient": state.entropy_coefficient})
    return loss, measurements._replace(maxima=measurements.maxima | {"told": state.step})

  return TrainStep(
      partial(batch_statistics, graph=graph, temperature=TEMPERATURE, chunk=CHUNK), loss, optimizer,
      schedule, clip_norm=1.0, mesh=mesh, state=fresh(), micro_batches=request.param,
      steer_entropy=lambda coefficient, entropy: coefficient / 2 + entropy / 10), fresh


@pytest.mark.parametrize("broken, row", [(np.nan, 0), (np.nan, 1), (np.inf, 1)])
def test_a_step_that_is_not_finite_changes_only_its_counters_and_a_good_one_resets_them(
    batch, stepping, broken, row):
  step, fresh = stepping
  state, _ = step(fresh(), batch)
  state, _ = step(state, batch)
  before = copied(state)
  assert before.step == 2 and before.skipped == 0
  advantages = batch.advantages.copy()
  advantages[row, 0, 0] = broken
  for skipped in (1, 2):
    state, measurements = step(state, replace(batch, advantages=advantages))
    after = copied(state)
    assert_equal(after, replace(before, step=2 + skipped, skipped=skipped))
    assert measurements["skipped"] == 1
    assert not np.isfinite(measurements["loss"])
  state, measurements = step(state, batch)
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
    state, measurements = step(state, each)
    rates.append(float(measurements["learning_rate"]))
    moved.append(max(
        np.abs(a - b).max() for a, b in zip(
            jax.tree.leaves(copied(state.params)), jax.tree.leaves(before), strict=True)))
  np.testing.assert_allclose(rates, [0, 0, 0.005, 0.01], rtol=1e-6)
  assert moved[0] == moved[1] == 0
  # Adam's step is about the learning rate, and the weight decay adds to it.
  np.testing.assert_allclose(moved[2:], rates[2:], rtol=0.25)


def test_a_batch_in_which_nothing_counts_moves_nothing_but_the_counter(batch, stepping):
  step, fresh = stepping
  state = fresh()
  for _ in range(3):
    state, _ = step(state, batch)
  before = copied(state)
  nothing = replace(batch, completion_mask=np.zeros_like(batch.completion_mask))
  after, measurements = step(state, nothing)
  assert_equal(copied(after), replace(before, step=4))
  assert measurements["skipped"] == measurements["grad_norm"] == 0


def test_the_entropy_bonus_of_a_step_has_the_states_coefficient_and_steers_the_next_one(
    tiny_model, batch, stepping):
  graph, params = tiny_model()
  entropies = np.asarray(statistics_of(graph, params, batch).entropy)
  entropy = entropies[batch.completion_mask].mean()
  step, fresh = stepping
  # The first step's learning rate is 0, so that the second step's policy is the same.
  state, first = step(fresh(), batch)
  state, second = step(state, batch)
  np.testing.assert_allclose(first["entropy"], entropy, rtol=1e-5)
  coefficients = [first["entropy_coefficient"], second["entropy_coefficient"],
                  state.entropy_coefficient]
  expected = [0.2, 0.1 + entropy / 10, 0.05 + 0.15 * entropy]
  np.testing.assert_allclose(coefficients, expected, rtol=1e-5)
  np.testing.assert_allclose(
      first["loss"] - second["loss"], (expected[1] - expected[0]) * entropy, rtol=1e-4)


def test_a_gradient_above_the_largest_norm_is_scaled_down_to_it_and_its_own_norm_is_recorded():
  batch = pack(groups(), pad=0)
  norms = []
  for limit in (1e9, 0.25):
    step, state, _ = make(CASES["policy alone"], grid(1, 1, 1), keep_gradient(), clip_norm=limit)
    state, measurements = step(state, batch)
    norms += [float(measurements["grad_norm"]), float(optax.tree.norm(state.optimizer.gradient))]
  assert norms[0] > 0.5
  np.testing.assert_allclose(norms, [norms[0]] * 3 + [0.25], rtol=1e-5)
