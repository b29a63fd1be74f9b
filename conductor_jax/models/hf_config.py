"""A model's shape as Hugging Face's config.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conductor_jax.errors import UserError
from conductor_jax.models.qwen2 import Qwen2Config

_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "max_positions": "max_position_embeddings",
}


def read_config(source: Path | Mapping[str, Any]) -> Qwen2Config:
  """The shape that a config.json describes.

  Args:
    source: the file, or what it holds. What transformers 5 writes (`rope_parameters`,
      `layer_types`) is read, and what older versions wrote.

  Raises:
    UserError: it cannot be read, or asks for what the model here does not have; every such entry is
      named.
  """
  if isinstance(source, Path):
    name, values = str(source), _parse(source)
  else:
    name, values = "config.json", source
  faults = _unsupported(values)
  faults += [f"{key} is missing or no positive integer" for key in _SIZES.values()
             if not _positive(values.get(key))]
  rope = values.get("rope_parameters") or values
  theta, eps = rope.get("rope_theta"), values.get("rms_norm_eps")
  if theta is None:
    faults.append("rope_theta is missing")
  if eps is None:
    faults.append("rms_norm_eps is missing")
  if faults:
    raise UserError(f"{name} is no Qwen2 that is supported here: {'; '.join(faults)}")

  sizes = {field: values[key] for field, key in _SIZES.items()}
  heads = sizes["num_heads"]
  kv_heads = values.get("num_key_value_heads") or heads
  head_dim = values.get("head_dim") or sizes["hidden_size"] // heads
  if heads % kv_heads or head_dim % 2:
    raise UserError(
        f"{name}: num_attention_heads={heads} must be a multiple of "
        f"num_key_value_heads={kv_heads}, and the width of a head, {head_dim}, even")
  return Qwen2Config(
      **sizes, num_kv_heads=kv_heads, head_dim=head_dim, rope_theta=float(theta),
      norm_eps=float(eps), tied=values.get("tie_word_embeddings", False))


def _positive(value: Any) -> bool:
  return isinstance(value, int) and value > 0


def _parse(path: Path) -> dict[str, Any]:
  try:
    values = json.loads(path.read_text())
  except FileNotFoundError as fault:
    raise UserError(f"there is no {path}: name a folder with a Hugging Face checkpoint") from fault
  except (OSError, ValueError) as fault:
    raise UserError(f"{path} cannot be read ({fault}): fetch it again") from fault
  if not isinstance(values, dict):
    raise UserError(f"{path} holds no JSON object: fetch it again")
  return values


def _unsupported(values: Mapping[str, Any]) -> list[str]:
  faults = []
  if values.get("model_type") != "qwen2":
    faults.append(f"model_type is {values.get('model_type')!r}, not 'qwen2'")
  architectures = values.get("architectures")
  if architectures and "Qwen2ForCausalLM" not in architectures:
    faults.append(f"architectures is {architectures}, without 'Qwen2ForCausalLM'")
  if values.get("hidden_act", "silu") != "silu":
    faults.append(f"hidden_act is {values['hidden_act']!r}, not 'silu'")
  faults += [f"{key} is {values[key]!r}" for key in ("use_sliding_window", "use_mrope")
             if values.get(key)]
  layer_types = set(values.get("layer_types") or ()) - {"full_attention"}
  if layer_types:
    faults.append(f"layer_types has {sorted(layer_types)}")
  for key in ("rope_scaling", "rope_parameters"):
    scaling = values.get(key) or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
      faults.append(f"{key} is of type {kind!r}, not 'default'")
  if values.get("quantization_config"):
    faults.append("quantization_config is set: take the checkpoint that is not quantised")
  return faults


def config_values(config: Qwen2Config, dtype: str, eos: int | None = None) -> dict[str, Any]:
  """What config.json holds, in the hub's form, which old and new readers know.

  Args:
    config: the shape.
    dtype: of the weights beside it, such as "bfloat16".
    eos: the end-of-sequence token, where one is known.
  """
  values = {
      "architectures": ["Qwen2ForCausalLM"],
      "attention_dropout": 0.0,
      "head_dim": config.head_dim,
      "hidden_act": "silu",
      "initializer_range": 0.02,
      "max_window_layers": config.num_layers,
      "model_type": "qwen2",
      "num_key_value_heads": config.num_kv_heads,
      "rms_norm_eps": config.norm_eps,
      "rope_theta": config.rope_theta,
      "sliding_window": None,
      "tie_word_embeddings": config.tied,
      "torch_dtype": dtype,
      "use_cache": True,
      "use_sliding_window": False,
      **{key: getattr(config, field) for field, key in _SIZES.items()},
  }
  return values if eos is None else {**values, "eos_token_id": eos}


def write_config(path: Path, config: Qwen2Config, dtype: str, eos: int | None = None) -> None:
  """Writes config.json; see `config_values`."""
  path.write_text(json.dumps(config_values(config, dtype, eos), indent=2, sort_keys=True) + "\n")
