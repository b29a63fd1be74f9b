"""Which model a config means, and what is said of one that cannot be had."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from conductor_jax.arena.tokenizer import train_tokenizer
from conductor_jax.config_checks import check_shape
from conductor_jax.errors import UserError
from conductor_jax.models.hf import export_safetensors
from conductor_jax.models.hf_config import write_config
from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.models.shapes import SHAPES
from configs import quickstart
from experiments.policy import (
    abstract_policy,
    attention_of,
    check_tokenizer,
    load_policy,
    model_shape,
    model_tokenizer,
    open_mesh,
)

SHAPE = Qwen2Config(
    vocab_size=32, hidden_size=8, intermediate_size=16, num_layers=2, num_heads=2, num_kv_heads=1,
    head_dim=4, max_positions=256, rope_theta=1e4, tied=False)


def config_with(**model):
  config = quickstart.get_config()
  config.model.update(model)
  return config


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
  """A Hugging Face folder with drawn weights, and these weights."""
  config = config_with(
      hidden_size=8, intermediate_size=16, num_heads=2, num_kv_heads=1, head_dim=4)
  config.tokenizer.vocab_size = 32
  policy = load_policy(config, open_mesh(config))
  folder = tmp_path_factory.mktemp("weights") / "checkpoint"
  export_safetensors(folder, policy.trained, policy.shape, "float32")
  return folder, policy.trained


def test_a_name_means_its_shape_and_the_other_options_nothing():
  assert model_shape(config_with(name="qwen2.5-0.5b", hidden_size=64)) == SHAPES["qwen2.5-0.5b"]


def test_a_folder_means_the_shape_in_it_whatever_the_name_says(tmp_path):
  write_config(tmp_path / "config.json", SHAPE, "float32")
  assert model_shape(config_with(weights=str(tmp_path), name="qwen2.5-7b")) == SHAPE


def test_a_gguf_file_means_the_shape_and_the_tokenizer_in_it(smollm2_file):
  config = config_with(weights=str(smollm2_file))
  assert model_shape(config) == SHAPES["smollm2-135m"]
  assert model_tokenizer(config).eos_token == "<|im_end|>"


def test_without_a_name_or_weights_the_options_are_the_shape():
  shape = model_shape(config_with(hidden_size=96, tied=True))
  assert shape == Qwen2Config(
      vocab_size=1024, hidden_size=96, intermediate_size=768, num_layers=2, num_heads=6,
      num_kv_heads=2, head_dim=32, max_positions=256, rope_theta=1e4, tied=True)
  assert model_tokenizer(config_with()) is None


def test_an_unknown_name_is_refused_with_the_known_ones():
  with pytest.raises(UserError, match=(
      "^--config.model.name=qwen3-8b: must be one of qwen2.5-0.5b, .*, smollm2-135m, or empty")):
    model_shape(config_with(name="qwen3-8b"))


@pytest.mark.parametrize(("weights", "message"), [
    ("nowhere", "^there is no nowhere/config.json: name a folder with a Hugging Face checkpoint$"),
    ("nowhere.gguf", "^there is no nowhere.gguf: name a GGUF file$")])
def test_weights_that_are_not_there_are_refused(weights, message):
  with pytest.raises(UserError, match=message):
    model_shape(config_with(weights=weights))


def test_weights_bring_the_limit_of_their_positions(tmp_path):
  write_config(tmp_path / "config.json", replace(SHAPE, max_positions=135), "float32")
  config = config_with(weights=str(tmp_path))  # which allows 136 tokens, and 256 positions
  with pytest.raises(UserError, match="may take 136 tokens, and the model is meant for 135"):
    check_shape(config, model_shape(config))


def test_loaded_weights_are_those_of_the_folder(checkpoint):
  folder, weights = checkpoint
  config = config_with(weights=str(folder))
  policy = load_policy(config, open_mesh(config))
  assert policy.frozen is None
  jax.tree.map(np.testing.assert_array_equal, policy.trained, weights)


def test_adapters_stand_beside_loaded_weights_and_change_nothing_yet(checkpoint):
  folder, weights = checkpoint
  config = config_with(weights=str(folder), lora_rank=2, param_dtype="bfloat16")
  policy = load_policy(config, open_mesh(config))
  # Of seven kernels in two layers, A and B.
  assert len(policy.trained["layers"]) == 14
  assert {leaf.dtype.name for leaf in jax.tree.leaves(policy.trained)} == {"float32"}
  assert all(not value.any() == name.endswith("_b") for name, value
             in policy.trained["layers"].items())
  jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y.astype("bfloat16")),
               policy.frozen, weights)
  assert jax.tree.structure(policy.whole(policy.trained)) == jax.tree.structure(
      abstract_policy(config, open_mesh(config)).whole(policy.trained))


def test_adapters_are_drawn_from_the_seed(checkpoint):
  def drawn(seed):
    config = config_with(weights=str(checkpoint[0]), lora_rank=2)
    config.seed = seed
    return np.asarray(load_policy(config, open_mesh(config)).trained["layers"]["gate_lora_a"])

  one = drawn(1)
  np.testing.assert_array_equal(one, drawn(1))
  assert np.abs(one - drawn(2)).max() > 0.1


def test_weights_of_another_shape_than_their_config_says_are_refused(checkpoint, tmp_path):
  (tmp_path / "model.safetensors").symlink_to(checkpoint[0] / "model.safetensors")
  values = json.loads((checkpoint[0] / "config.json").read_text())
  (tmp_path / "config.json").write_text(json.dumps(values | {"intermediate_size": 24}))
  config = config_with(weights=str(tmp_path))
  with pytest.raises(UserError, match=(
      r"model.layers.\*.mlp.gate_proj.weight is \[16, 8\], not \[24, 8\] in every layer")) as fault:
    load_policy(config, open_mesh(config))
  assert "\n" not in str(fault.value)


@pytest.mark.parametrize(("platform", "head_dim", "dtype", "kernel"), [
    ("tpu", 128, "bfloat16", "splash"),
    ("tpu", 128, "float32", "splash"),
    ("tpu", 64, "bfloat16", "blockwise"),
    ("cuda", 128, "bfloat16", "cudnn"),
    ("gpu", 64, "bfloat16", "cudnn"),
    ("gpu", 256, "bfloat16", "blockwise"),
    ("cuda", 128, "float32", "blockwise"),
    ("cpu", 128, "bfloat16", "blockwise"),
    ("cpu", 64, "float32", "blockwise"),
])
def test_attention_is_the_kernel_that_suits_the_platform(platform, head_dim, dtype, kernel):
  shape = replace(SHAPE, head_dim=head_dim)
  assert attention_of(config_with(compute_dtype=dtype), shape, platform) == kernel


@pytest.mark.parametrize("kernel, platform", [
    ("blockwise", "tpu"), ("blockwise", "gpu"), ("splash", "tpu"), ("cudnn", "gpu")])
def test_a_kernel_that_is_asked_for_is_taken_where_it_runs(kernel, platform):
  config = config_with(attention=kernel, compute_dtype="bfloat16")
  assert attention_of(config, replace(SHAPE, head_dim=128), platform) == kernel


@pytest.mark.parametrize("kernel, platform", [
    ("splash", "cpu"), ("splash", "gpu"), ("cudnn", "cpu"), ("cudnn", "tpu")])
def test_a_kernel_of_another_platform_is_refused(kernel, platform):
  with pytest.raises(UserError, match=f"attention={kernel}: is not for {platform}"):
    attention_of(config_with(attention=kernel), SHAPE, platform)


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused():
  tokenizer = train_tokenizer(["one text"], 300)
  check_tokenizer(tokenizer, replace(SHAPE, vocab_size=len(tokenizer)))
  with pytest.raises(UserError, match=rf"has {len(tokenizer)} tokens, and the model 64"):
    check_tokenizer(tokenizer, replace(SHAPE, vocab_size=64))


def test_a_mesh_of_more_devices_than_there_are_is_refused():
  config = config_with()
  config.mesh.data = jax.device_count() + 1
  with pytest.raises(UserError, match=r"^--config.mesh: mesh data=\d+ × fsdp=1 × tensor=1 needs"):
    open_mesh(config)
