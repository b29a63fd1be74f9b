"""Ragged lists as arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_jax.models.padding import pad_right, padded_width, round_up


@pytest.mark.parametrize("value, multiple, expected", [
    (0, 16, 0), (1, 16, 16), (16, 16, 16), (17, 16, 32), (5, 1, 5)])
def test_round_up_gives_the_next_multiple(value, multiple, expected):
  assert round_up(value, multiple) == expected


@pytest.mark.parametrize("length, multiple, expected", [
    (0, 8, 0), (1, 8, 8), (8, 8, 8), (121, 8, 128), (129, 8, 144), (255, 8, 256), (257, 8, 288),
    (7000, 8, 7168), (5, 1, 5), (17, 1, 18), (130, 64, 192)])
def test_padded_widths_by_hand(length, multiple, expected):
  assert padded_width(length, multiple) == expected


def test_there_are_few_widths():
  assert len({padded_width(length, 8) for length in range(1, 8193)}) == 64


@given(st.integers(1, 100_000), st.sampled_from([1, 8, 64]))
def test_a_width_holds_its_length_is_one_of_its_own_and_wastes_less_than_an_eighth_or_a_multiple(
    length, multiple):
  width = padded_width(length, multiple)
  assert length <= width < max(length + multiple, 9 / 8 * length)
  assert width % multiple == 0 and padded_width(width, multiple) == width


def test_pad_right_fills_behind_each_sequence():
  values, mask = pad_right([[1], [2, 3]], 3, 9)
  assert values.tolist() == [[1, 9, 9], [2, 3, 9]]
  assert mask.tolist() == [[True, False, False], [True, True, False]]
  assert values.dtype == np.int32
