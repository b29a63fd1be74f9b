"""Hugging Face checkpoints of Qwen2: safetensors in and out.

Names are those of transformers' `Qwen2ForCausalLM`, which vLLM's loader expects too.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import jax
from jax.experimental import multihost_utils
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedTokenizerBase

from conductor_jax.errors import UserError
from conductor_jax.models.hf_config import write_config
from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.models.safetensors_writer import DTYPES, write_safetensors
from conductor_jax.models.shapes import abstract_parameters
from conductor_jax.models.streaming import TRANSPOSED, place, take
from conductor_jax.models.whole_folder import written_whole

# Of the `Linear` of each layer's kernel.
LINEARS = {
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_LAYER = {
    "attention_norm": "input_layernorm.weight",
    **{name: f"{linear}.weight" for name, linear in LINEARS.items()},
    "query_bias": "self_attn.q_proj.bias",
    "key_bias": "self_attn.k_proj.bias",
    "value_bias": "self_attn.v_proj.bias",
    "mlp_norm": "post_attention_layernorm.weight",
}
_OUTER = {
    "embedding": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "head": "lm_head.weight",
}
_READABLE = tuple(code for code, _ in DTYPES.values())

# transformers' own limit of a file, 5 GB, as it was up to version 4.
SHARD_BYTES = 5_000_000_000


def tensor_name(name: str, layer: int | None) -> str:
  """What the checkpoint calls a parameter."""
  return _OUTER[name] if layer is None else f"model.layers.{layer}.{_LAYER[name]}"


@cache
def tensors(config: Qwen2Config) -> tuple[tuple[str, int | None, tuple[int, ...]], ...]:
  """Every tensor of a checkpoint: parameter, layer or None, and its shape in the file.

  In the file's order: embedding, layers, norm, head.
  """
  params = abstract_parameters(config)

  def oriented(name, shape):
    return shape[::-1] if name in TRANSPOSED else shape

  layer_shapes = {name: oriented(name, params["layers"][name].shape[1:]) for name in _LAYER}
  return (
      ("embedding", None, params["embedding"].shape),
      *((name, layer, shape) for layer in range(config.num_layers)
        for name, shape in layer_shapes.items()),
      *((name, None, oriented(name, params[name].shape)) for name in ("final_norm", "head")
        if name in params))


def load_safetensors(folder: Path, config: Qwen2Config, shardings: dict, dtype: str) -> dict:
  """Reads a checkpoint straight onto the mesh.

  Every process calls it, and reads only what its own devices hold.

  Args:
    folder: with model.safetensors, or with model.safetensors.index.json and its shards.
    config: the shape that the checkpoint must have.
    shardings: a `NamedSharding` for each parameter, a tree like the parameters.
    dtype: of the parameters, whatever the file's.

  Returns:
    The parameters, a nested dict.

  Raises:
    UserError: a file is missing or damaged, or tensors are missing, unknown, or of another shape or
      dtype. All of them are named, before anything is allocated.
  """
  where, found = {}, {}
  for path in _files(folder):
    with _opened(path) as file:
      for name in file.keys():
        if not _ignored(name, config):
          entry = file.get_slice(name)
          where[name], found[name] = path, (tuple(entry.get_shape()), entry.get_dtype())
  _check(folder, config, found)

  def read(name, layer, index):
    # The pages of a file that stays open would add up to all of it.
    with _opened(where[tensor_name(name, layer)]) as file:
      return file.get_slice(tensor_name(name, layer))[index]

  return place(config, shardings, dtype, read)


@contextmanager
def _opened(path: Path) -> Iterator[safe_open]:
  try:
    with safe_open(path, "np") as file:
      yield file
  except FileNotFoundError as fault:
    raise UserError(f"there is no {path}, which the index names: fetch it again") from fault
  except (OSError, SafetensorError) as fault:
    raise UserError(f"{path} is damaged ({fault}): fetch it again") from fault


def _files(folder: Path) -> list[Path]:
  single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
  if single.exists():
    return [single]
  if not index.exists():
    raise UserError(f"{folder} has neither {single.name} nor {index.name}: name a folder with a "
                    "checkpoint in safetensors")
  try:
    names = set(json.loads(index.read_text())["weight_map"].values())
  except (OSError, ValueError, KeyError, AttributeError) as fault:
    raise UserError(f"{index} is damaged ({fault!r}): fetch it again") from fault
  return [folder / name for name in sorted(names)]


def _ignored(name: str, config: Qwen2Config) -> bool:
  # Old checkpoints carry a buffer of frequencies, and tied ones may carry the embedding twice.
  return name.endswith("rotary_emb.inv_freq") or (config.tied and name == _OUTER["head"])


def _check(
    folder: Path, config: Qwen2Config, found: Mapping[str, tuple[tuple[int, ...], str]]) -> None:
  expected = {tensor_name(name, layer): shape for name, layer, shape in tensors(config)}
  faults: dict[str, list[str]] = {}
  for name in expected | found:
    if name not in found:
      fault = "is missing"
    elif name not in expected:
      fault = "is unknown"
    elif found[name][0] != expected[name]:
      fault = f"is {list(found[name][0])}, not {list(expected[name])}"
    elif found[name][1] not in _READABLE:
      fault = f"is of dtype {found[name][1]}, not one of {', '.join(_READABLE)}"
    else:
      continue
    faults.setdefault(f"{_any_layer(name)} {fault}", []).append(name)
  if faults:
    lines = []
    for summary, names in faults.items():
      # The same fault in every layer is said once.
      fault = summary.partition(" ")[2]
      lines += ([f"{summary} in every layer"] if len(names) == config.num_layers > 1
                else [f"{name} {fault}" for name in names])
    raise UserError(f"the checkpoint in {folder} is not of the model's shape; correct the one that "
                    f"is not meant: {'; '.join(lines)}")


def _any_layer(name: str) -> str:
  return ".".join("*" if part.isdigit() else part for part in name.split("."))


def export_safetensors(
    folder: Path, params: dict, config: Qwen2Config, dtype: str, *,
    tokenizer: PreTrainedTokenizerBase | None = None, shard_bytes: int = SHARD_BYTES
) -> None:
  """Writes a checkpoint that transformers and vLLM load, one tensor at a time.

  Every process calls it; the first one writes. The folder appears under its name only when it is
  complete.

  Args:
    folder: to write; it does not exist, or is empty.
    params: the parameters, a nested dict, on any mesh.
    config: their shape.
    dtype: of the file: "bfloat16", "float32" or "float16".
    tokenizer: written beside the weights, and its end-of-sequence token to config.json.
    shard_bytes: a file holds no more, unless a single tensor does.

  Raises:
    UserError: the folder exists and is not empty.
  """
  if jax.process_index():
    write_weights(None, params, config, dtype, shard_bytes)
  else:
    with written_whole(folder) as partial:
      eos = None
      if tokenizer is not None:
        tokenizer.save_pretrained(partial)
        eos = tokenizer.eos_token_id
      write_config(partial / "config.json", config, dtype, eos)
      write_weights(partial, params, config, dtype, shard_bytes)
  multihost_utils.sync_global_devices(f"export to {folder.name}")


def write_weights(
    folder: Path | None, params: dict, config: Qwen2Config, dtype: str, shard_bytes: int) -> None:
  """Writes the files of weights, and their index where there are several; see `export_safetensors`.

  Args:
    folder: that is there; None takes part in the gathering only.
    params: the parameters, a nested dict, on any mesh.
    config: the shape of the files. An untied one has a copy of the embedding for the head that tied
      parameters lack.
    dtype: of the files.
    shard_bytes: a file holds no more, unless a single tensor does.
  """
  entries = {tensor_name(*entry[:2]): entry for entry in tensors(config)}
  shapes = {full_name: shape for full_name, (_, _, shape) in entries.items()}

  def tensor(full_name):
    name, layer, _ = entries[full_name]
    if name == "head" and name not in params:
      name = "embedding"
    array = params[name] if layer is None else params["layers"][name]
    return take(array, layer, dtype, transpose=name in TRANSPOSED)

  itemsize = DTYPES[dtype][1].itemsize
  sizes = {name: math.prod(shape) * itemsize for name, shape in shapes.items()}
  shards: list[list[str]] = [[]]
  filled = 0
  for name, size in sizes.items():
    if shards[-1] and filled + size > shard_bytes:
      shards.append([])
      filled = 0
    shards[-1].append(name)
    filled += size

  weight_map = {}
  for number, names in enumerate(shards, 1):
    file = ("model.safetensors" if len(shards) == 1
            else f"model-{number:05}-of-{len(shards):05}.safetensors")
    write_safetensors(
        folder and folder / file, {name: shapes[name] for name in names}, dtype,
        tensor)
    weight_map.update(dict.fromkeys(names, file))
  if folder and len(shards) > 1:
    index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
