"""Writes safetensors files tensor by tensor, which the library's own writer cannot.

Format: https://huggingface.co/docs/safetensors, little-endian throughout.
"""

import json
import math
import struct
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np

DTYPES = {
    "float32": ("F32", np.dtype(np.float32)),
    "bfloat16": ("BF16", np.dtype(ml_dtypes.bfloat16)),
    "float16": ("F16", np.dtype(np.float16)),
}

# Of a matrix that are put in order at a time.
_COLUMNS = 16


def write_safetensors(
    path: Path | None, shapes: Mapping[str, tuple[int, ...]], dtype: str,
    tensor: Callable[[str], np.ndarray]
) -> None:
  """Writes one file.

  Args:
    path: of the file; None asks for every tensor and writes none, which is how a process that only
      takes part in the gathering goes along.
    shapes: of every tensor, by name.
    dtype: of all of them.
    tensor: asked for one after the other, in the order of `shapes`, and for the next while one is
      being written.
  """
  if path is None:
    for name in shapes:
      tensor(name)
    return
  code, numpy_dtype = DTYPES[dtype]
  header: dict = {"__metadata__": {"format": "pt"}}
  offset = 0
  for name, shape in shapes.items():
    end = offset + math.prod(shape) * numpy_dtype.itemsize
    header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [offset, end]}
    offset = end
  text = json.dumps(header).encode()
  text += b" " * (-len(text) % 8)
  in_order = _InOrder()
  with path.open("wb") as file, ThreadPoolExecutor(1) as thread:
    written = thread.submit(file.write, struct.pack("<Q", len(text)) + text)
    for name, shape in shapes.items():
      values = tensor(name)
      if values.shape != shape or values.dtype != numpy_dtype:
        raise ValueError(f"{name} is {values.dtype}{values.shape}, not {numpy_dtype}{shape}")
      content = in_order(values)
      written.result()
      written = thread.submit(file.write, content)
      del values, content  # or three would be held when the next is there
    written.result()


class _InOrder:
  """Gives the bytes of arrays in C order; they are good until it is asked for the next but one."""

  def __init__(self):
    # Used in turns, again and again: memory that the system must clear first is slow.
    self._scratch, self._other = np.empty(0, np.uint8), np.empty(0, np.uint8)

  def __call__(self, values: np.ndarray) -> memoryview:
    # As integers: numpy copies types that it does not know one by one, and cannot hand them out as
    # a buffer.
    values = values.view(f"u{values.itemsize}")
    if not values.flags.c_contiguous:
      values = self._copied(values)
    return values.reshape(-1).view(np.uint8).data

  def _copied(self, values: np.ndarray) -> np.ndarray:
    """A copy in C order, of a matrix in Fortran's."""
    self._scratch, self._other = self._other, self._scratch
    if self._scratch.nbytes < values.nbytes:
      self._scratch = np.empty(values.nbytes, np.uint8)
    copy = self._scratch[:values.nbytes].view(values.dtype).reshape(values.shape)
    # Along a whole row, every number of the source would be out of the cache.
    for start in range(0, values.shape[1], _COLUMNS):
      columns = slice(start, start + _COLUMNS)
      copy[:, columns] = values[:, columns]
    return copy
