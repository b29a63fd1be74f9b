import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conductor_jax.training.entropy import steer_entropy


@jax.jit
def steer(coefficient, entropy):
  return steer_entropy(coefficient, entropy, target=0.2, rate=0.01, maximum=0.05)


def steered(coefficient, entropy):
  return steer(jnp.float32(coefficient), jnp.float32(entropy))


@pytest.mark.parametrize("coefficient, entropy, expected", [
    (0.02, 0.1, 0.03), (0.02, 0.3, 0.01), (0.02, 0.2, 0.02),
    (0.045, 0.0, 0.05), (0.05, 0.0, 0.05), (0.005, 0.9, 0.0), (0.0, 0.9, 0.0)])
def test_the_coefficient_steps_up_below_the_target_and_down_above_it_within_its_bounds(
    coefficient, entropy, expected):
  np.testing.assert_allclose(steered(coefficient, entropy), expected, atol=1e-7)


def test_a_policy_whose_entropy_follows_the_bonus_is_held_at_the_target():
  # Without a bonus the entropy falls by 5% a step, and every 0.01 of the coefficient adds 0.004.
  coefficient, entropy, seen = 0.0, 1.0, []
  for _ in range(300):
    coefficient = float(steered(coefficient, entropy))
    entropy = 0.95 * entropy + 0.4 * coefficient
    seen.append(entropy)
  assert 0.17 < min(seen[100:]) and max(seen[100:]) < 0.23
