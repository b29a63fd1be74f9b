"""LoRA adapters (arXiv 2106.09685): merged into the model, and in the format of PEFT.

Adapters are a tree {"layers": {"query_lora_a": [layers, inputs, rank], "query_lora_b": [layers,
rank, outputs], …}}; the effective kernel is kernel + (alpha / rank) · a @ b.
"""

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jaxtyping import Array

from conductor_jax.models.hf import LINEARS
from conductor_jax.models.safetensors_writer import write_safetensors
from conductor_jax.models.streaming import take
from conductor_jax.models.whole_folder import written_whole


def merge_lora(params: dict, adapters: dict, alpha: float) -> dict:
  """The parameters with the adapters added to their kernels; others are shared, not copied.

  Args:
    params: the model's parameters, a nested dict.
    adapters: the adapters, on the same mesh.
    alpha: numerator of the scale, alpha / rank.
  """
  layers = dict(params["layers"])
  for name in _targets(adapters):
    layers[name] = _merger(layers[name].sharding)(layers[name], *_pair(adapters, name), alpha=alpha)
  return {**params, "layers": layers}


@cache
def _merger(sharding: NamedSharding) -> Callable[[Array, Array, Array, float], Array]:
  @partial(jax.jit, static_argnames="alpha", out_shardings=sharding)
  def merge(kernel, a, b, alpha):
    # Rounded once, at the end. An accelerator's default would multiply float32 as bfloat16.
    change = jnp.einsum(
        "lir,lro->lio", a.astype(jnp.float32), b.astype(jnp.float32), precision="highest")
    return (kernel + alpha / a.shape[-1] * change).astype(kernel.dtype)

  return merge


def export_peft(
    folder: Path, adapters: dict, *, alpha: float, base_model: str, dtype: str) -> None:
  """Writes adapter_config.json and adapter_model.safetensors, which PEFT and vLLM load.

  Every process calls it; the first one writes. The folder appears under its name only when it is
  complete.

  Args:
    folder: to write; it does not exist, or is empty.
    adapters: the adapters, on any mesh.
    alpha: numerator of the scale, alpha / rank.
    base_model: the name or folder of the model they belong to.
    dtype: of the file: "bfloat16", "float32" or "float16".

  Raises:
    UserError: the folder exists and is not empty.
  """
  if jax.process_index():
    _write_adapters(None, adapters, dtype)
  else:
    with written_whole(folder) as partial_folder:
      config = _adapter_config(adapters, alpha, base_model)
      (partial_folder / "adapter_config.json").write_text(
          json.dumps(config, indent=2, sort_keys=True) + "\n")
      _write_adapters(partial_folder / "adapter_model.safetensors", adapters, dtype)
  multihost_utils.sync_global_devices(f"adapters to {folder.name}")


def _targets(adapters: dict) -> list[str]:
  return [name for name in LINEARS if f"{name}_lora_a" in adapters["layers"]]


def _pair(adapters: dict, name: str):
  return tuple(adapters["layers"][f"{name}_lora_{part}"] for part in "ab")


def _adapter_config(adapters: dict, alpha: float, base_model: str) -> dict:
  targets = _targets(adapters)
  return {
      "base_model_name_or_path": base_model,
      "bias": "none",
      "fan_in_fan_out": False,
      "inference_mode": True,
      "init_lora_weights": True,
      "lora_alpha": alpha,
      "lora_dropout": 0.0,
      "modules_to_save": None,
      "peft_type": "LORA",
      "r": _pair(adapters, targets[0])[0].shape[-1],
      "target_modules": [LINEARS[name].rpartition(".")[2] for name in targets],
      "task_type": "CAUSAL_LM",
      "use_dora": False,
      "use_rslora": False,
  }


def _write_adapters(path: Path | None, adapters: dict, dtype: str) -> None:
  entries, shapes = {}, {}
  for name in _targets(adapters):
    for part, array in zip("AB", _pair(adapters, name), strict=True):
      for layer in range(array.shape[0]):
        full = f"base_model.model.model.layers.{layer}.{LINEARS[name]}.lora_{part}.weight"
        entries[full], shapes[full] = (array, layer), array.shape[:0:-1]
  write_safetensors(
      path, shapes, dtype, lambda full: take(*entries[full], dtype, transpose=True))
