"""Lays ragged token lists into arrays."""

from collections.abc import Sequence

import numpy as np


def round_up(value: int, multiple: int) -> int:
  """The smallest multiple that is not below the value."""
  return -(-value // multiple) * multiple


def padded_width(length: int, multiple: int) -> int:
  """The width that a length is padded to, out of few, since every width is compiled for.

  Widths are `multiple` apart at first, later an eighth of the power of two below them: a long
  sequence is padded by less than an eighth of itself, and from each power of two to the next there
  are eight widths. With `multiple` 8: 8, 16, …, 128, 144, …, 256, 288, …; 64 widths up to 8192.
  """
  below = 1 << max(length, 1).bit_length() - 1
  return round_up(length, max(multiple, below // 8))


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
