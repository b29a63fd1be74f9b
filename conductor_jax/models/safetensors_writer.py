"""Writes safetensors files tensor by tensor, which the library's own writer cannot.

Format: https://huggingface.co/docs/safetensors, little-endian throughout.
"""

import json
import math
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
from jaxtyping import Array

DTYPES = {
    "float32": ("F32", np.dtype(np.float32)),
    "bfloat16": ("BF16", np.dtype(ml_dtypes.bfloat16)),
    "float16": ("F16", np.dtype(np.float16)),
}

# That are put in order and converted at a time: of a tensor in bytes, and of that in columns.
_CHUNK_BYTES = 8_000_000
_COLUMNS = 64


def write_safetensors(
    path: Path | None, shapes: Mapping[str, tuple[int, ...]], dtype: str,
    tensor: Callable[[str], np.ndarray | Array]
) -> None:
  """Writes one file.

  Args:
    path: of the file; None asks for every tensor and writes none, which is how a process that only
      takes part in the gathering goes along.
    shapes: of every tensor, by name.
    dtype: of all of them.
    tensor: asked for one after the other, in the order of `shapes`, and for the next before one is
      written: what is on its way from a device arrives meanwhile. Of any dtype and memory order.
  """
  tensors = _one_ahead(shapes, tensor)
  if path is None:
    deque(tensors, maxlen=0)
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
  with path.open("wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for name, values in tensors:
      if values.shape != shapes[name]:
        raise ValueError(f"{name} is {values.shape}, not {shapes[name]}")
      file.writelines(_in_order(values, numpy_dtype))
      del values  # or three would be held when the next is asked for


def _one_ahead(
    names: Iterable[str], tensor: Callable[[str], np.ndarray | Array]
) -> Iterator[tuple[str, np.ndarray]]:
  begun: list[tuple[str, np.ndarray | Array]] = []
  for name in names:
    begun.append((name, tensor(name)))
    if len(begun) > 1:
      yield begun[0][0], np.asarray(begun.pop(0)[1])
  for name, values in begun:
    yield name, np.asarray(values)


def _in_order(values: np.ndarray, dtype: np.dtype) -> Iterator[memoryview]:
  """The bytes of an array in C order and a dtype, in pieces; each is good until the next."""
  if values.flags.c_contiguous and values.dtype == dtype:
    yield _bytes_of(values)
    return
  rows = max(1, _CHUNK_BYTES // (math.prod(values.shape[1:]) * dtype.itemsize))
  scratch = np.empty((min(rows, len(values)), *values.shape[1:]), dtype)
  for start in range(0, len(values), rows):
    piece = values[start:start + rows]
    target = scratch[:len(piece)]
    if values.flags.c_contiguous:
      target[...] = piece
    else:
      _transpose(piece.T, target)
    yield _bytes_of(target)


def _bytes_of(values: np.ndarray) -> memoryview:
  # numpy cannot hand out bfloat16 as a buffer.
  return values.reshape(-1).view(np.uint8).data


def _transpose(source: np.ndarray, target: np.ndarray) -> None:
  """Fills [n, m] with the transpose of [m, n], whose rows are in C order."""
  # Of all columns at once, every number that is read would be out of the cache. The padding keeps
  # numbers of a column from falling on the same few places of it.
  padding = 64 // target.itemsize
  block = np.empty((_COLUMNS, len(target) + padding), target.dtype)[:, :len(target)]
  # As integers, for numpy copies types that it does not know one by one.
  integer = f"u{target.itemsize}"
  for start in range(0, len(source), _COLUMNS):
    rows = source[start:start + _COLUMNS]
    block[:len(rows)] = rows
    target[:, start:start + len(rows)].view(integer)[...] = block[:len(rows)].view(integer).T
