"""Ragged lists as arrays."""

import numpy as np
import pytest

from conductor_jax.models.padding import pad_right, round_up


@pytest.mark.parametrize("value, multiple, expected", [
    (0, 16, 0), (1, 16, 16), (16, 16, 16), (17, 16, 32), (5, 1, 5)])
def test_round_up_gives_the_next_multiple(value, multiple, expected):
  assert round_up(value, multiple) == expected


def test_pad_right_fills_behind_each_sequence():
  values, mask = pad_right([[1], [2, 3]], 3, 9)
  assert values.tolist() == [[1, 9, 9], [2, 3, 9]]
  assert mask.tolist() == [[True, False, False], [True, True, False]]
  assert values.dtype == np.int32
