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
  with path.open("wb") as file, ThreadPoolExecutor(1) as thread:
    written = thread.submit(file.write, struct.pack("<Q", len(text)) + text)
    for name, shape in shapes.items():
      values = tensor(name)
      if values.shape != shape or values.dtype != numpy_dtype:
        raise ValueError(f"{name} is {values.dtype}{values.shape}, not {numpy_dtype}{shape}")
      # The view spares a copy of the bytes; numpy cannot hand out bfloat16 as a buffer itself.
      content = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
      written.result()
      written = thread.submit(file.write, content)
      del values, content  # or three would be held when the next is there
    written.result()
