"""Checkpoints in and out, and the model against transformers' own."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh
from safetensors import safe_open

from conductor_jax.arena.tokenizer import train_tokenizer
from conductor_jax.errors import UserError
from conductor_jax.models.hf import export_safetensors, load_safetensors
from conductor_jax.models.hf_config import read_config
from conductor_jax.models.qwen2 import Qwen2, Qwen2Config
from conductor_jax.models.safetensors_writer import write_safetensors
from conductor_jax.models.shapes import abstract_parameters
from conductor_jax.models.tokenizer import load_tokenizer
from conductor_jax.training.sharding import MESH_AXES, parameter_shardings

GOLDENS = Path(__file__).parent / "goldens"
SMALL = Qwen2Config(
    vocab_size=32, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4,
    num_kv_heads=2, head_dim=4, max_positions=64, tied=False)


def shardings(config):
  mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), MESH_AXES)
  return parameter_shardings(mesh, abstract_parameters(config))


def load(folder, config=None, dtype="float32"):
  config = config or read_config(folder / "config.json")
  return load_safetensors(folder, config, shardings(config), dtype)


def random_parameters(config, dtype, seed=0):
  generator = np.random.default_rng(seed)
  return jax.tree.map(
      lambda leaf: jnp.asarray(generator.normal(size=leaf.shape), dtype),
      abstract_parameters(config))


def same(first, second):
  """Whether two trees hold the same bits."""
  return jax.tree.structure(first) == jax.tree.structure(second) and all(
      a.dtype == b.dtype and np.asarray(a).tobytes() == np.asarray(b).tobytes()
      for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


@partial(jax.jit, static_argnames="config")
def logits(config, params, prompt, prompt_mask, completions):
  graph = nnx.split(nnx.eval_shape(
      lambda: Qwen2(config, compute_dtype="float32", remat="none", rngs=nnx.Rngs(0))))[0]
  model = nnx.merge(graph, params)
  return model.hidden_states(prompt, prompt_mask, completions) @ model.output_head()


@pytest.fixture(scope="module")
def golden():
  with np.load(GOLDENS / "qwen2.npz") as values:
    return dict(values)


@pytest.mark.parametrize("name", ["tied", "untied"])
@pytest.mark.parametrize("extra_padding", [0, 4])
def test_a_shared_prompt_gives_the_logits_of_transformers_over_whole_sequences(
    golden, name, extra_padding):
  folder = GOLDENS / f"qwen2-{name}"
  padding = ((0, 0), (0, extra_padding))
  ours = logits(
      read_config(folder / "config.json"), load(folder),
      np.pad(golden["prompt_tokens"], padding, constant_values=9),
      np.pad(golden["prompt_mask"], padding), golden["completion_tokens"])
  mask = golden["completion_mask"]
  expected = golden[f"logits_{name}"]
  assert np.abs(expected[mask]).max() > 1
  np.testing.assert_allclose(np.asarray(ours)[mask], expected[mask], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["tied", "untied"])
def test_transformers_reads_an_export_and_gives_the_same_logits(tmp_path, golden, name):
  torch = pytest.importorskip("torch")
  from transformers import AutoModelForCausalLM

  folder = GOLDENS / f"qwen2-{name}"
  config, params = read_config(folder / "config.json"), load(folder)
  # Other weights than the golden ones, so that nothing but the export can give them.
  params = jax.tree.map(lambda x: x * 1.1, params)
  export_safetensors(tmp_path / "model", params, config, "float32", shard_bytes=40_000)
  model, report = AutoModelForCausalLM.from_pretrained(
      tmp_path / "model", output_loading_info=True)
  assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
  assert model.config.rope_parameters["rope_theta"] == 100.0
  assert model.dtype == torch.float32
  assert model.config.tie_word_embeddings == (name == "tied")

  ours = logits(config, params, golden["prompt_tokens"], golden["prompt_mask"],
                golden["completion_tokens"])
  for row, sample in np.ndindex(golden["completion_tokens"].shape[:2]):
    prompt = golden["prompt_tokens"][row][golden["prompt_mask"][row]]
    mask = golden["completion_mask"][row, sample]
    completion = golden["completion_tokens"][row, sample][mask]
    with torch.no_grad():
      theirs = model(torch.tensor(np.concatenate([prompt, completion]))[None].long()).logits[0]
    theirs = theirs.numpy()[len(prompt) - 1:-1]
    np.testing.assert_allclose(
        np.asarray(ours)[row, sample, :len(completion)], theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shard_bytes", [10 ** 9, 2_000])
def test_out_and_in_again_is_bitwise_the_same(tmp_path, dtype, shard_bytes):
  params = random_parameters(SMALL, dtype)
  export_safetensors(tmp_path / "model", params, SMALL, dtype, shard_bytes=shard_bytes)
  assert read_config(tmp_path / "model" / "config.json") == SMALL
  assert same(load(tmp_path / "model", dtype=dtype), params)
  files = sorted((tmp_path / "model").glob("*.safetensors"))
  if shard_bytes > 10 ** 6:
    assert [file.name for file in files] == ["model.safetensors"]
  else:
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_text())
    assert {file.name for file in files} == set(index["weight_map"].values())
    assert all(file.name.endswith(f"-of-{len(files):05}.safetensors") for file in files)
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert index["metadata"]["total_size"] == count * jnp.dtype(dtype).itemsize


def test_in_and_out_again_is_bitwise_the_file_of_transformers(tmp_path):
  folder = GOLDENS / "qwen2-tied"
  config = read_config(folder / "config.json")
  export_safetensors(tmp_path / "model", load(folder), config, "float32")
  with safe_open(folder / "model.safetensors", "np") as theirs, \
      safe_open(tmp_path / "model" / "model.safetensors", "np") as ours:
    assert sorted(ours.keys()) == sorted(theirs.keys())
    assert ours.metadata() == {"format": "pt"}
    for name in ours.keys():
      np.testing.assert_array_equal(ours.get_tensor(name), theirs.get_tensor(name))


@pytest.mark.parametrize("file, params", [("bfloat16", "float32"), ("float32", "bfloat16"),
                                          ("float16", "float32")])
def test_a_file_of_another_dtype_is_converted(tmp_path, file, params):
  original = random_parameters(SMALL, "float32")
  export_safetensors(tmp_path / "model", original, SMALL, file)
  expected = jax.tree.map(lambda x: x.astype(file).astype(params), original)
  assert same(load(tmp_path / "model", dtype=params), expected)


def write(folder, tensors):
  folder.mkdir(exist_ok=True)
  write_safetensors(folder / "model.safetensors", {k: v.shape for k, v in tensors.items()},
                    "float32", tensors.__getitem__)


@pytest.fixture
def tensors(tmp_path):
  """What a good checkpoint holds, to be written with faults."""
  export_safetensors(tmp_path / "good", random_parameters(SMALL, "float32"), SMALL, "float32")
  with safe_open(tmp_path / "good" / "model.safetensors", "np") as file:
    return {name: file.get_tensor(name) for name in file.keys()}


def test_missing_unknown_and_misshapen_tensors_are_all_named_at_once(tmp_path, tensors):
  del tensors["model.norm.weight"]
  del tensors["model.layers.1.mlp.up_proj.weight"]
  tensors["model.layers.0.self_attn.q_norm.weight"] = np.zeros(4, np.float32)
  tensors["model.layers.0.mlp.gate_proj.weight"] = np.zeros((16, 24), np.float32)
  write(tmp_path / "bad", tensors)
  with pytest.raises(UserError) as caught:
    load(tmp_path / "bad", SMALL)
  message = str(caught.value)
  assert str(tmp_path / "bad") in message and "\n" not in message
  for fault in ("model.norm.weight is missing",
                "model.layers.1.mlp.up_proj.weight is missing",
                "model.layers.0.self_attn.q_norm.weight is unknown",
                "model.layers.0.mlp.gate_proj.weight is [16, 24], not [24, 16]"):
    assert fault in message
  assert message.count(";") == 4


def test_a_checkpoint_of_another_shape_is_refused_before_anything_is_allocated(
    tmp_path, tensors, monkeypatch):
  del tensors["lm_head.weight"]
  write(tmp_path / "other", tensors)
  huge = Qwen2Config(
      vocab_size=10 ** 7, hidden_size=10 ** 5, intermediate_size=10 ** 6, num_layers=2,
      num_heads=4, num_kv_heads=2, head_dim=4, max_positions=64, tied=False)
  monkeypatch.setattr("conductor_jax.models.hf.place", lambda *_: pytest.fail("allocated"))
  with pytest.raises(UserError) as caught:
    load(tmp_path / "other", huge)
  message = str(caught.value)
  assert "model.embed_tokens.weight is [32, 16], not [10000000, 100000]" in message
  assert "model.layers.*.mlp.up_proj.weight is [24, 16], not [1000000, 100000] in every layer" in (
      message)
  assert "lm_head.weight is missing" in message
  # Biases have the same width in both.
  assert "q_proj.bias" not in message


def test_a_tied_checkpoint_may_carry_its_head_and_old_ones_their_frequencies(tmp_path):
  folder = GOLDENS / "qwen2-tied"
  with safe_open(folder / "model.safetensors", "np") as file:
    tensors = {name: file.get_tensor(name) for name in file.keys()}
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
  write(tmp_path / "model", tensors)
  config = read_config(folder / "config.json")
  assert same(load(tmp_path / "model", config), load(folder))


def test_a_tensor_of_a_dtype_that_is_no_weights_is_refused(tmp_path, tensors):
  from safetensors.numpy import save_file
  tensors["model.norm.weight"] = tensors["model.norm.weight"].astype(np.int8)
  (tmp_path / "int8").mkdir()
  save_file(tensors, tmp_path / "int8" / "model.safetensors")
  with pytest.raises(UserError, match="model.norm.weight is of dtype I8, not one of F32"):
    load(tmp_path / "int8", SMALL)


@pytest.mark.parametrize("keep", [4, 100, -1])
def test_a_truncated_file_is_named(tmp_path, keep):
  shutil.copytree(GOLDENS / "qwen2-untied", tmp_path / "cut")
  path = tmp_path / "cut" / "model-00002-of-00002.safetensors"
  path.write_bytes(path.read_bytes()[:keep])
  with pytest.raises(UserError, match=f"{path.name} is damaged"):
    load(tmp_path / "cut")


def test_a_missing_file_is_named(tmp_path):
  shutil.copytree(GOLDENS / "qwen2-untied", tmp_path / "model")
  (tmp_path / "model" / "model-00001-of-00002.safetensors").unlink()
  with pytest.raises(UserError, match="there is no .*model-00001-of-00002.safetensors"):
    load(tmp_path / "model")
  (tmp_path / "model" / "model.safetensors.index.json").write_text('{"weight_map": [')
  with pytest.raises(UserError, match="model.safetensors.index.json is damaged"):
    load(tmp_path / "model")
  with pytest.raises(UserError, match="has neither model.safetensors nor"):
    load(tmp_path, SMALL)


def test_a_tokenizer_is_exported_beside_the_weights_and_ends_what_is_generated(tmp_path):
  tokenizer = train_tokenizer(["the quick brown fox"], 280)
  params = random_parameters(SMALL, "float32")
  export_safetensors(tmp_path / "model", params, SMALL, "float32", tokenizer=tokenizer)
  loaded = load_tokenizer(tmp_path / "model")
  assert loaded.get_vocab() == tokenizer.get_vocab()
  assert loaded.chat_template == tokenizer.chat_template
  values = json.loads((tmp_path / "model" / "config.json").read_text())
  assert values["eos_token_id"] == tokenizer.eos_token_id


def test_an_export_never_overwrites(tmp_path):
  (tmp_path / "model").mkdir()
  (tmp_path / "model" / "mine").write_text("kept")
  with pytest.raises(UserError, match="model exists: remove it"):
    export_safetensors(tmp_path / "model", random_parameters(SMALL, "float32"), SMALL, "float32")
  assert [path.name for path in tmp_path.iterdir()] == ["model"]
  assert (tmp_path / "model" / "mine").read_text() == "kept"


def test_an_export_that_raises_leaves_nothing(tmp_path):
  params = random_parameters(SMALL, "float32")
  del params["final_norm"]
  with pytest.raises(KeyError, match="final_norm"):
    export_safetensors(tmp_path / "model", params, SMALL, "float32")
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number, reason", [
    (errno.ENOSPC, "No space left on device"), (errno.EIO, "Input/output error")])
def test_an_export_that_cannot_be_written_says_why_and_leaves_nothing(
    tmp_path, monkeypatch, number, reason):
  def failing(descriptor):
    raise OSError(number, os.strerror(number))

  monkeypatch.setattr("os.fsync", failing)
  with pytest.raises(UserError, match=f"model cannot be written .*{reason}"):
    export_safetensors(tmp_path / "model", random_parameters(SMALL, "float32"), SMALL, "float32")
  assert list(tmp_path.iterdir()) == []


DEEP = Qwen2Config(
    vocab_size=32, hidden_size=16, intermediate_size=24, num_layers=300, num_heads=4,
    num_kv_heads=2, head_dim=4, max_positions=64)


def test_an_export_that_is_killed_leaves_nothing_under_its_name_and_the_next_one_cleans_up(
    tmp_path):
  target, partial_folder = tmp_path / "model", tmp_path / ".model.partial"
  with subprocess.Popen(
      [sys.executable, __file__, target], stderr=subprocess.DEVNULL,
      env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}) as child:
    # 3,600 tensors in 2.8 MB: it is far from done when the first ones are seen.
    while child.poll() is None and not any(
        path.stat().st_size > 800_000 for path in partial_folder.glob("*.safetensors")):
      time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
  assert child.returncode == -signal.SIGKILL
  assert not target.exists()
  assert (partial_folder / "model.safetensors").exists()

  params = random_parameters(SMALL, "float32")
  export_safetensors(target, params, SMALL, "float32")
  assert [path.name for path in tmp_path.iterdir()] == ["model"]
  assert same(load(target), params)


if __name__ == "__main__":
  export_safetensors(Path(sys.argv[1]), random_parameters(DEEP, "float32"), DEEP, "float32")
