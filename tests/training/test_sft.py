import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conductor_jax.training.batch import batch_counts
from conductor_jax.training.logprobs import TokenStatistics
from conductor_jax.training.sft import Examples, likelihood_loss, pack_examples

ROWS = [Examples([5, 6], [np.array([1, 2]), np.array([3])]),
        Examples([7], [np.array([4, 4, 2]), np.array([2])])]


@pytest.fixture(scope="module")
def batch():
  return pack_examples(ROWS, pad=0)


def plainly(function):
  return function


def test_examples_fill_rows_and_every_token_counts(batch):
  assert batch.completion_tokens.shape == (2, 2, 8)
  assert batch.completion_mask.sum(axis=-1).tolist() == [[2, 1], [3, 1]]
  assert not batch.advantages.any() and not batch.sampler_logprobs.any()


@pytest.mark.parametrize("transform", [plainly, jax.jit])
def test_the_likelihood_by_hand(batch, transform):
  logprobs = np.full((2, 2, 8), np.nan, np.float32)
  logprobs[batch.completion_mask] = [-1, -2, -3, -4, -5, -6, -7]
  entropy = np.where(batch.completion_mask, 0.5, np.nan).astype(np.float32)

  def loss(logprobs):
    return likelihood_loss(
        TokenStatistics(logprobs, entropy, None, None), batch, batch_counts(batch))

  (value, measurements), gradient = transform(jax.value_and_grad(loss, has_aux=True))(
      jnp.asarray(logprobs))
  # Seven tokens: (1 + … + 7) / 7
  np.testing.assert_allclose(value, 4, rtol=1e-6)
  np.testing.assert_allclose(measurements.sums["entropy"], 0.5, rtol=1e-6)
  assert measurements.maxima == {}
  np.testing.assert_allclose(gradient, np.where(batch.completion_mask, -1 / 7, 0), rtol=1e-6)
