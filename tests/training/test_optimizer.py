"""AdamW against optax's, and its schedule."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from conductor_jax.training.optimizer import adamw, clip_scale, make_schedule

OPTIONS = {"b1": 0.9, "b2": 0.99, "weight_decay": 0.1}
PARAMS = {"a": jnp.array([1.0, -2.0, 0.5]), "b": jnp.ones((2, 2))}
SCHEDULE = optax.linear_schedule(1e-2, 0.0, 10)


def gradients(count):
  generator = np.random.default_rng(0)
  return [jax.tree.map(
      lambda p: jnp.asarray(generator.normal(size=p.shape), jnp.float32), PARAMS)
      for _ in range(count)]


@pytest.mark.parametrize("mu_dtype", ["float32", "bfloat16"])
def test_updates_and_moments_are_those_of_optax(mu_dtype):
  ours = adamw(SCHEDULE, mu_dtype=mu_dtype, **OPTIONS)
  theirs = optax.adamw(SCHEDULE, mu_dtype=mu_dtype, **OPTIONS)
  state, expected_state = ours.init(PARAMS), theirs.init(PARAMS)
  params = expected = PARAMS
  for gradient in gradients(4):
    updates, state = ours.update(gradient, state, params, usable=jnp.bool_(True))
    wanted, expected_state = theirs.update(gradient, expected_state, expected)
    params, expected = optax.apply_updates(params, updates), optax.apply_updates(expected, wanted)
  # A rounded first moment is read as rounded, and decays in float32, which optax's does not.
  tolerance = 1e-6 if mu_dtype == "float32" else 1e-2
  for actual, wanted in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(actual, wanted, rtol=tolerance)
  for actual, wanted in zip(
      jax.tree.leaves(state), jax.tree.leaves(expected_state[0]), strict=True):
    assert actual.dtype == wanted.dtype
    np.testing.assert_allclose(
        np.asarray(actual, np.float32), np.asarray(wanted, np.float32), rtol=tolerance)


def test_a_gradient_that_is_not_finite_leaves_the_state_as_it_is():
  optimizer = adamw(SCHEDULE, mu_dtype="float32", **OPTIONS)
  first, second = gradients(2)
  _, state = optimizer.update(first, optimizer.init(PARAMS), PARAMS, usable=jnp.bool_(True))
  broken = jax.tree.map(lambda g: g.at[0].set(jnp.nan), second)
  _, after = optimizer.update(broken, state, PARAMS, usable=jnp.bool_(False))
  jax.tree.map(np.testing.assert_array_equal, after, state)


@pytest.mark.parametrize("norm, scale", [(0.5, 1.0), (1.0, 1.0), (4.0, 0.25)])
def test_a_gradient_is_scaled_down_to_the_limit_and_never_up(norm, scale):
  assert clip_scale(jnp.float32(norm), 1.0) == scale


@pytest.mark.parametrize("decay, warmup, expected", [
    ("cosine", 0.1, {0: 0, 5: 0.5, 10: 1, 55: 0.5, 100: 0}),
    ("cosine", 0, {0: 1, 50: 0.5, 100: 0}),
    ("none", 0.1, {0: 0, 5: 0.5, 10: 1, 55: 1, 100: 1}),
    ("none", 0, {0: 1, 100: 1}),
])
def test_the_schedule_warms_up_linearly_then_decays_or_stays(decay, warmup, expected):
  schedule = make_schedule(
      learning_rate=2e-3, steps=100, warmup_fraction=warmup, decay=decay)
  for step, share in expected.items():
    np.testing.assert_allclose(schedule(step), 2e-3 * share, rtol=1e-5, atol=1e-9)
