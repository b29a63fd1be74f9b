"""The biases with which some heads look at what is near from the start."""

import jax.numpy as jnp
import numpy as np

from conductor_jax.models.rotary import recency_bias, rotary, rotate

HEAD_DIM, ROPE_THETA = 64, 1e6
DISTANCES = np.arange(200)


def scores(query, key):
  """Attention score of a query at position 200 for keys at each distance, of two head biases."""
  def turned(bias, positions):
    heads = jnp.broadcast_to(bias, (len(positions), 1, 64))
    return rotate(heads, rotary(positions, 64, ROPE_THETA))[:, 0]

  return turned(key, 200 - DISTANCES) @ turned(query, np.array([200]))[0] / 8


def test_the_score_of_a_distance_is_the_sum_of_cosines_of_middling_wavelengths():
  query = recency_bias(4, HEAD_DIM, ROPE_THETA, every=2, strength=3.0).reshape(4, 64)
  key = recency_bias(2, HEAD_DIM, ROPE_THETA, every=1, strength=3.0).reshape(2, 64)
  # Wavelengths 2π · 10⁶^(i / 32), which are 14.9 at i = 2, 22.9 at 3, 471 at 10 and 726 at 11.
  frequencies = 1e6 ** (-np.arange(3, 11) / 32)
  expected = 3.0 * np.cos(DISTANCES[:, None] * frequencies).sum(axis=-1)
  np.testing.assert_allclose(scores(query[0], key[0]), expected, rtol=0, atol=1e-3)
  assert expected[0] == 24 and expected[1:].max() < 24


def test_only_every_second_head_has_the_bias_where_so_asked():
  sizes = np.abs(recency_bias(4, HEAD_DIM, ROPE_THETA, every=2).reshape(4, 64)).sum(axis=-1)
  assert (sizes > 0).tolist() == [True, False, True, False]
  key = recency_bias(2, HEAD_DIM, ROPE_THETA, every=1).reshape(2, 64)
  assert (np.abs(key).sum(axis=-1) > 0).all()
