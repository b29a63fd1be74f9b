"""Lays ragged token lists into arrays."""

from collections.abc import Sequence

import numpy as np


def round_up(value: int, multiple: int) -> int:
  """The smallest multiple that is not below the value."""
  return -(-value // multiple) * multiple


def pad_right(
    sequences: Sequence[Sequence], width: int, fill, dtype=np.int32
) -> tuple[np.ndarray, np.ndarray]:
  """Lays ragged sequences into an array [len(sequences), width] and a mask of what is real."""
  values = np.full((len(sequences), width), fill, dtype)
  mask = np.zeros((len(sequences), width), bool)
  for row, sequence in enumerate(sequences):
    values[row, :len(sequence)] = sequence
    mask[row, :len(sequence)] = True
  return values, mask
