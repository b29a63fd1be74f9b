"""Weights onto eight devices and onto two processes, which only processes of their own have.

Run as a program, this file is such a process: it loads and exports, and prints what came of it.
"""

import ctypes
import json
import math
import struct
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding

from conductor_jax.models.hf import export_safetensors, load_safetensors, tensor_name, tensors
from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.models.shapes import abstract_parameters
from conductor_jax.models.streaming import _writer, place
from conductor_jax.training.sharding import make_mesh, parameter_shardings
from tests.training.host_devices import free_address, reports, start

SMALL = Qwen2Config(
    vocab_size=32, hidden_size=16, intermediate_size=24, num_layers=3, num_heads=4,
    num_kv_heads=2, head_dim=4, max_positions=64, tied=False)
# 82 million parameters, 312 MiB in float32; the largest tensor is the embedding.
LARGE = Qwen2Config(
    vocab_size=16_384, hidden_size=768, intermediate_size=3_072, num_layers=8, num_heads=12,
    num_kv_heads=4, head_dim=64, max_positions=64)
MEBIBYTE = 2 ** 20


def small_parameters() -> dict:
  generator = np.random.default_rng(0)
  return jax.tree.map(
      lambda leaf: generator.normal(size=leaf.shape).astype(np.float32),
      abstract_parameters(SMALL))


def shardings(mesh, config):
  return parameter_shardings(mesh, abstract_parameters(config))


def differing(params: dict) -> list[str]:
  """Names of loaded parameters with a shard that is not bitwise the original's part."""
  pairs = jax.tree_util.tree_leaves_with_path(
      jax.tree.map(lambda a, b: (a, b), params, small_parameters()),
      is_leaf=lambda node: isinstance(node, tuple))
  return [path[-1].key for path, (loaded, original) in pairs if any(
      np.asarray(shard.data).tobytes() != original[shard.index].tobytes()
      for shard in loaded.addressable_shards)]


def elements_read(mesh) -> dict[str, int]:
  """How many numbers this process reads of each parameter of the small model."""
  counts: dict[str, int] = {}

  def read(name, layer, index):
    shapes = {(n, i): shape for n, i, shape in tensors(SMALL)}
    part = np.zeros(shapes[name, layer], np.float32)[index]
    counts[name] = counts.get(name, 0) + part.size
    return part

  place(SMALL, shardings(mesh, SMALL), "float32", read)
  return counts


def sparse_checkpoint(folder: Path) -> None:
  """The large model in float32, all zeros: it takes no room on the disk."""
  header, offset = {}, 0
  for name, layer, shape in tensors(LARGE):
    end = offset + 4 * math.prod(shape)
    header[tensor_name(name, layer)] = {
        "dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
    offset = end
  text = json.dumps(header).encode()
  folder.mkdir()
  with (folder / "model.safetensors").open("wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    file.truncate(8 + len(text) + offset)


def memory(key: str) -> float:
  """An entry of this process's memory, in MiB."""
  for line in Path("/proc/self/status").read_text().splitlines():
    if line.startswith(key):
      return int(line.split()[1]) / 1024
  raise KeyError(key)


def peak_of(action) -> tuple[float, dict]:
  """Memory at its highest during an action, above what there was before, and its result."""
  ctypes.CDLL(None).malloc_trim(0)
  before = memory("VmRSS")
  Path("/proc/self/clear_refs").write_text("5")
  result = jax.block_until_ready(action())
  return memory("VmHWM") - before, result


def eight_devices(folder: Path) -> dict:
  report = {}
  for name, sizes in (("fsdp", (1, 8, 1)), ("all three", (2, 2, 2))):
    mesh = make_mesh(*sizes)
    params = load_safetensors(folder / "small", SMALL, shardings(mesh, SMALL), "float32")
    export_safetensors(folder / name, params, SMALL, "float32")
    report[name] = {
        "differing": differing(params), "read": elements_read(mesh),
        "query": params["layers"]["query"].addressable_shards[0].data.shape,
        "as asked for": jax.tree.map(lambda x: x.sharding, params) == shardings(mesh, SMALL)}
  sparse_checkpoint(folder / "large")
  peak, params = peak_of(lambda: load_safetensors(
      folder / "large", LARGE, shardings(make_mesh(1, 8, 1), LARGE), "float32"))
  own = sum(shard.data.nbytes for leaf in jax.tree.leaves(params)
            for shard in leaf.addressable_shards) / MEBIBYTE
  export_peak, _ = peak_of(lambda: export_safetensors(
      folder / "shards", params, LARGE, "bfloat16", shard_bytes=64 * MEBIBYTE))
  shards = [path.stat().st_size / MEBIBYTE for path in (folder / "shards").glob("*.safetensors")]
  return report | {
      "own": own, "beyond": peak - own, "export beyond": export_peak, "shards": shards}


def one_of_two_processes(folder: Path, address: str, index: int) -> dict:
  jax.distributed.initialize(address, num_processes=2, process_id=index)
  mesh = make_mesh(1, 8, 1)
  params = load_safetensors(folder / "small", SMALL, shardings(mesh, SMALL), "float32")
  export_safetensors(folder / "two", params, SMALL, "float32")
  return {"differing": differing(params), "read": elements_read(mesh),
          "exported": (folder / "two" / "model.safetensors").exists()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp("placement")
  export_safetensors(
      folder / "small", jax.tree.map(jax.numpy.asarray, small_parameters()), SMALL, "float32")
  return folder


@pytest.fixture(scope="module")
def eight(folder):
  return reports(start(__file__, "eight", str(folder), devices=8))[0]


@pytest.fixture(scope="module")
def two(folder):
  address = free_address()
  return reports(*(
      start(__file__, "two", str(folder), address, str(index), devices=4) for index in range(2)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_layer_is_written_into_its_stack_without_a_copy_of_the_stack(dtype):
  sharding = SingleDeviceSharding(jax.devices()[0])
  stack = jax.ShapeDtypeStruct((8, 64, 128), dtype, sharding=sharding)
  tensor = jax.ShapeDtypeStruct((128, 64), dtype, sharding=sharding)
  memory = _writer(True, sharding).lower(stack, tensor, 0).compile().memory_analysis()
  assert memory.alias_size_in_bytes == stack.size * stack.dtype.itemsize
  assert memory.temp_size_in_bytes <= tensor.size * 4


@pytest.mark.parametrize("mesh, query", [("fsdp", [3, 2, 16]), ("all three", [3, 8, 8])])
def test_eight_devices_hold_the_parts_of_the_file_bit_for_bit(eight, mesh, query):
  assert eight[mesh]["differing"] == []
  assert eight[mesh]["as asked for"]
  assert eight[mesh]["query"] == query


@pytest.mark.parametrize("mesh", ["fsdp", "all three"])
def test_devices_with_the_same_part_share_one_reading_of_it(eight, mesh):
  whole = {}
  for name, _, shape in tensors(SMALL):
    whole[name] = whole.get(name, 0) + math.prod(shape)
  assert eight[mesh]["read"] == whole


@pytest.mark.parametrize("mesh", ["fsdp", "all three"])
def test_an_export_from_eight_devices_is_that_from_one(eight, folder, mesh):
  assert ((folder / mesh / "model.safetensors").read_bytes()
          == (folder / "small" / "model.safetensors").read_bytes())


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process its peak memory")
def test_loading_needs_at_most_twice_the_largest_tensor_beyond_the_parameters(eight):
  largest = 4 * LARGE.vocab_size * LARGE.hidden_size / MEBIBYTE
  assert eight["own"] == pytest.approx(312, abs=1)
  assert eight["beyond"] <= 2 * largest


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process its peak memory")
def test_exporting_needs_at_most_a_fifth_more_than_the_largest_file(eight):
  assert sum(eight["shards"]) == pytest.approx(312 / 2, abs=1)
  assert 50 < max(eight["shards"]) <= 64
  assert eight["export beyond"] <= 1.2 * max(eight["shards"])


def test_each_of_two_processes_reads_and_holds_its_half(two):
  for report in two:
    assert report["differing"] == []
    # The embedding is split over the mesh, biases are not.
    assert report["read"]["embedding"] == 32 * 16 / 2
    assert report["read"]["down"] == 3 * 24 * 16 / 2
    assert report["read"]["query_bias"] == 3 * 16


def test_an_export_from_two_processes_is_that_from_one_and_complete_when_either_goes_on(
    two, folder):
  assert all(report["exported"] for report in two)
  assert ((folder / "two" / "model.safetensors").read_bytes()
          == (folder / "small" / "model.safetensors").read_bytes())
  assert sorted(path.name for path in (folder / "two").iterdir()) == [
      "config.json", "model.safetensors"]


if __name__ == "__main__":
  where = Path(sys.argv[2])
  print(json.dumps(eight_devices(where) if sys.argv[1] == "eight"
                   else one_of_two_processes(where, sys.argv[3], int(sys.argv[4]))))
