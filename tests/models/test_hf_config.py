"""config.json: what is read, what is refused, and what is written."""

import dataclasses
import json

import pytest

from conductor_jax.errors import UserError
from conductor_jax.models.hf_config import config_values, read_config, write_config
from conductor_jax.models.shapes import SHAPES

# As the hub has it for Qwen/Qwen2.5-7B-Instruct.
HUB_7B = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
    "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28,
    "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28,
    "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1", "use_cache": True, "use_sliding_window": False,
    "vocab_size": 152064,
}


def changed(**values):
  return {key: value for key, value in {**HUB_7B, **values}.items() if value is not ...}


def test_the_hubs_config_of_7b_is_the_named_shape():
  assert read_config(HUB_7B) == SHAPES["qwen2.5-7b"]


def test_what_transformers_5_writes_is_read():
  values = changed(
      rope_theta=..., rope_parameters={"rope_theta": 1e6, "rope_type": "default"},
      layer_types=["full_attention"] * 28, dtype="bfloat16", torch_dtype=...)
  assert read_config(values) == SHAPES["qwen2.5-7b"]


def test_a_head_dim_of_its_own_and_defaults_are_read():
  config = read_config(changed(
      head_dim=64, num_key_value_heads=None, tie_word_embeddings=..., hidden_act=...))
  assert config == dataclasses.replace(SHAPES["qwen2.5-7b"], head_dim=64, num_kv_heads=28)


@pytest.mark.parametrize("values, named", [
    ({"use_sliding_window": True}, "use_sliding_window is True"),
    ({"use_mrope": True}, "use_mrope is True"),
    ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling is of type 'yarn'"),
    ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e6}},
     "rope_parameters is of type 'linear'"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ({"model_type": "qwen3"}, "model_type is 'qwen3'"),
    ({"architectures": ["Qwen2ForRewardModel"]}, "architectures is"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"vocab_size": ...}, "vocab_size is missing"),
    ({"hidden_size": "3584"}, "hidden_size is missing or no positive integer"),
    ({"rope_theta": ...}, "rope_theta is missing"),
    ({"rms_norm_eps": ...}, "rms_norm_eps is missing"),
    ({"num_key_value_heads": 5}, "num_key_value_heads=5"),
])
def test_what_is_not_implemented_is_refused_by_name(values, named):
  with pytest.raises(UserError, match=named):
    read_config(changed(**values))


def test_all_faults_are_named_at_once():
  with pytest.raises(UserError) as caught:
    read_config({"model_type": "llama", "hidden_act": "gelu", "use_sliding_window": True})
  for name in ("llama", "gelu", "use_sliding_window", "vocab_size", "hidden_size",
               "intermediate_size", "num_hidden_layers", "num_attention_heads",
               "max_position_embeddings", "rope_theta", "rms_norm_eps"):
    assert name in str(caught.value)
  assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content, message", [
    (None, "there is no .*config.json"),
    ("{", "config.json cannot be read"),
    ("[]", "config.json holds no JSON object"),
])
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, message):
  path = tmp_path / "config.json"
  if content is not None:
    path.write_text(content)
  with pytest.raises(UserError, match=message):
    read_config(path)


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_written_reads_back(tmp_path, name):
  write_config(tmp_path / "config.json", SHAPES[name], "bfloat16", eos=2)
  assert read_config(tmp_path / "config.json") == SHAPES[name]
  assert json.loads((tmp_path / "config.json").read_text())["eos_token_id"] == 2


def test_what_is_written_of_7b_is_the_hubs():
  written = config_values(SHAPES["qwen2.5-7b"], "bfloat16", eos=151645)
  assert written.pop("head_dim") == 128
  assert written.pop("sliding_window") is None
  assert written == {key: HUB_7B[key] for key in written}
  assert set(HUB_7B) - set(written) == {"bos_token_id", "transformers_version", "sliding_window"}
