"""The biases with which some heads look at what is near from the start."""

import jax.numpy as jnp
import numpy as np

from conductor_jax.models.qwen2 import Qwen2Config, recency_bias, rotary, rotate

CONFIG = Qwen2Config(
    vocab_size=8, hidden_size=8, intermediate_size=8, num_layers=1, num_heads=4, num_kv_heads=2,
    head_dim=64, max_positions=512)
DISTANCES = np.arange(200)


def scores(query, key):
  """Attention score of a query at position 200 for keys at each distance, of two head biases."""
  def turned(bias, positions):
    heads = jnp.broadcast_to(bias, (len(positions), 1, 64))
    return rotate(heads, rotary(positions, 64, CONFIG.rope_theta))[:, 0]

  return turned(key, 200 - DISTANCES) @ turned(query, np.array([200]))[0] / 8


def test_the_score_of_a_distance_is_the_sum_of_cosines_of_middling_wavelengths():
  query = recency_bias(CONFIG, 4, every=2, strength=3.0).reshape(4, 64)
  key = recency_bias(CONFIG, 2, every=1, strength=3.0).reshape(2, 64)
  # Wavelengths 2π · 10⁶^(i / 32), which are 14.9 at i = 2, 22.9 at 3, 471 at 10 and 726 at 11.
  frequencies = 1e6 ** (-np.arange(3, 11) / 32)
  expected = 3.0 * np.cos(DISTANCES[:, None] * frequencies).sum(axis=-1)
  np.testing.assert_allclose(scores(query[0], key[0]), expected, rtol=0, atol=1e-3)
  assert expected[0] == 24 and expected[1:].max() < 24


def test_only_every_second_head_has_the_bias_where_so_asked():
  sizes = np.abs(recency_bias(CONFIG, 4, every=2).reshape(4, 64)).sum(axis=-1)
  assert (sizes > 0).tolist() == [True, False, True, False]
  assert (np.abs(recency_bias(CONFIG, 2, every=1).reshape(2, 64)).sum(axis=-1) > 0).all()
