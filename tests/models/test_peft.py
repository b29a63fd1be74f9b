"""Adapters merged, and exported for PEFT."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open

from conductor_jax.errors import UserError
from conductor_jax.models.hf import export_safetensors
from conductor_jax.models.peft import export_peft, merge_lora
from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.models.shapes import abstract_parameters

CONFIG = Qwen2Config(
    vocab_size=32, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4,
    num_kv_heads=2, head_dim=4, max_positions=64)
GENERATOR = np.random.default_rng(0)
PARAMS = jax.tree.map(
    lambda leaf: jnp.asarray(GENERATOR.normal(size=leaf.shape, scale=0.2), jnp.float32),
    abstract_parameters(CONFIG))
RANK, ALPHA = 3, 6.0


def adapters(*targets):
  layers = {}
  for name in targets:
    count, inputs, outputs = PARAMS["layers"][name].shape
    for part, shape in (("a", (count, inputs, RANK)), ("b", (count, RANK, outputs))):
      layers[f"{name}_lora_{part}"] = jnp.asarray(GENERATOR.normal(size=shape), jnp.float32)
  return {"layers": layers}


ADAPTERS = adapters("query", "key", "down")


def test_merging_adds_the_scaled_product_and_leaves_the_rest():
  merged = merge_lora(PARAMS, ADAPTERS, ALPHA)
  for name, kernel in PARAMS["layers"].items():
    if name in ("query", "key", "down"):
      a, b = (np.asarray(ADAPTERS["layers"][f"{name}_lora_{part}"], np.float64) for part in "ab")
      # alpha / rank is 2.
      expected = kernel + 2 * np.stack([a[layer] @ b[layer] for layer in range(2)])
      np.testing.assert_allclose(merged["layers"][name], expected, rtol=1e-5, atol=1e-5)
    else:
      assert merged["layers"][name] is kernel
  assert merged["embedding"] is PARAMS["embedding"]


def test_merging_into_bfloat16_rounds_once():
  half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), PARAMS)
  merged = merge_lora(half, ADAPTERS, ALPHA)["layers"]["query"]
  a, b = (np.asarray(ADAPTERS["layers"][f"query_lora_{part}"], np.float64) for part in "ab")
  exact = np.asarray(half["layers"]["query"], np.float64) + 2 * a @ b
  assert merged.dtype == jnp.bfloat16
  # Half a unit in the last of bfloat16's 8 digits.
  np.testing.assert_allclose(np.asarray(merged, np.float64), exact, rtol=2.0 ** -8, atol=1e-6)


def test_names_shapes_and_settings_are_those_of_peft(tmp_path):
  export_peft(tmp_path / "adapter", ADAPTERS, alpha=ALPHA, base_model="Qwen/Qwen2.5-7B-Instruct",
              dtype="float32")
  settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
  assert settings["r"] == 3
  assert settings["lora_alpha"] == 6.0
  assert settings["peft_type"] == "LORA"
  assert settings["target_modules"] == ["q_proj", "k_proj", "down_proj"]
  assert settings["base_model_name_or_path"] == "Qwen/Qwen2.5-7B-Instruct"
  with safe_open(tmp_path / "adapter" / "adapter_model.safetensors", "np") as file:
    shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}
    layer = "base_model.model.model.layers.1"
    np.testing.assert_array_equal(
        file.get_tensor(f"{layer}.self_attn.q_proj.lora_A.weight"),
        ADAPTERS["layers"]["query_lora_a"][1].T)
    np.testing.assert_array_equal(
        file.get_tensor(f"{layer}.mlp.down_proj.lora_B.weight"),
        ADAPTERS["layers"]["down_lora_b"][1].T)
  widths = {"self_attn.q_proj": (16, 16), "self_attn.k_proj": (16, 8), "mlp.down_proj": (24, 16)}
  assert shapes == {
      f"base_model.model.model.layers.{layer}.{module}.lora_{part}.weight": shape
      for layer in range(2) for module, (inputs, outputs) in widths.items()
      for part, shape in (("A", (3, inputs)), ("B", (outputs, 3)))}


def test_an_existing_folder_is_left_alone(tmp_path):
  (tmp_path / "mine").write_text("kept")
  with pytest.raises(UserError, match="exists: remove it"):
    export_peft(tmp_path, ADAPTERS, alpha=ALPHA, base_model="base", dtype="float32")
  assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_peft_on_the_base_gives_the_logits_of_the_merged_export(tmp_path):
  torch = pytest.importorskip("torch")
  peft = pytest.importorskip("peft")
  from transformers import AutoModelForCausalLM

  everything = adapters("query", "key", "value", "output", "gate", "up", "down")
  export_safetensors(tmp_path / "base", PARAMS, CONFIG, "float32")
  export_safetensors(tmp_path / "merged", merge_lora(PARAMS, everything, ALPHA), CONFIG, "float32")
  export_peft(tmp_path / "adapter", everything, alpha=ALPHA, base_model=str(tmp_path / "base"),
              dtype="float32")
  tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])

  def logits(model):
    with torch.no_grad():
      return model.eval()(tokens).logits.numpy()

  base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
  plain = logits(base)
  adapted = logits(peft.PeftModel.from_pretrained(base, tmp_path / "adapter"))
  merged = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "merged"))
  assert np.abs(adapted - plain).max() > 0.1
  np.testing.assert_allclose(adapted, merged, rtol=0, atol=1e-4)

  # What PEFT would write itself has the same names and shapes.
  own = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
  own.save_pretrained(tmp_path / "own")

  def shapes(folder: Path):
    with safe_open(folder / "adapter_model.safetensors", "np") as file:
      return {name: file.get_slice(name).get_shape() for name in file.keys()}

  assert shapes(tmp_path / "own") == shapes(tmp_path / "adapter")
