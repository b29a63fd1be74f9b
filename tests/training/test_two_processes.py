"""Two processes of two devices each that train one model, and what they leave for others.

Run as a program, this file is one of them, or one that reads their checkpoint on other meshes.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from jax.experimental import multihost_utils

from conductor_jax.training.batch import pack
from conductor_jax.training.checkpoint import Checkpoints
from conductor_jax.training.optimizer import adamw
from conductor_jax.training.sharding import make_mesh
from tests.training.gradient_steps import CASES, grid, groups, make
from tests.training.host_devices import free_address, reports, start

STEPS = 2
RECORD = {"cursor": {"next_index": 7}}


def prepared(mesh):
  """A step and a first state. Adam's epsilon is large, lest it blow rounding up to whole steps."""
  optimizer = adamw(
      optax.constant_schedule(1e-2), b1=0.9, b2=0.99, weight_decay=0.1, mu_dtype="float32",
      eps=1e-3)
  step, state, _ = make(
      CASES["KL and entropy"], mesh, optimizer,
      steer_entropy=lambda coefficient, entropy: coefficient + 0.1 * entropy)
  return step, state


def trained(mesh):
  """The losses of the steps, and the state after them."""
  step, state = prepared(mesh)
  losses = []
  for _ in range(STEPS):
    state, measurements = step(state, pack(groups(), pad=0))
    losses.append(float(measurements["loss"]))
  return losses, state


def same(first, second) -> bool:
  """Whether this process's parts of two states hold the same bits."""
  return all(
      np.asarray(a.data).tobytes() == np.asarray(b.data).tobytes()
      for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
      for a, b in zip(x.addressable_shards, y.addressable_shards, strict=True))


def restored(folder: Path, mesh):
  """The checkpoint's step, state and record, on the mesh."""
  checkpoints = Checkpoints(folder, keep=2, say=print)
  found = checkpoints.restore(prepared(mesh)[1])
  checkpoints.close()
  return found


def one_of_two(folder: Path, address: str, index: int) -> dict:
  jax.distributed.initialize(address, num_processes=2, process_id=index)
  losses, state = trained(make_mesh(data=1, fsdp=2, tensor=2))
  checkpoints = Checkpoints(folder, keep=2, say=print)
  checkpoints.save(STEPS, state, RECORD)
  step, again, record = checkpoints.restore(prepared(make_mesh(data=1, fsdp=2, tensor=2))[1])
  checkpoints.close()
  damaged = Checkpoints(folder.with_name("damaged"), keep=2, say=print)
  for number in (1, 2):
    damaged.save(number, state, RECORD)
  if index == 0:
    (damaged.folder / "2" / "state" / "manifest.ocdbt").write_bytes(b"")
  multihost_utils.sync_global_devices("damaged")
  fallback, *_ = damaged.restore(state)
  damaged.close()
  return {"losses": losses, "processes": jax.process_count(), "devices": len(jax.devices()),
          "own": len(jax.local_devices()), "step": step, "record": record,
          "same": same(state, again), "fallback": fallback}


def elsewhere(folder: Path) -> dict:
  """Whether the state on four devices is that on one."""
  _, alone, _ = restored(folder, grid(1, 1, 1))
  _, spread, _ = restored(folder, make_mesh(data=1, fsdp=4, tensor=1))
  query = spread.params["layers"]["query"].addressable_shards[0].data.shape
  pairs = zip(jax.tree.leaves(jax.device_get(spread)), jax.tree.leaves(jax.device_get(alone)),
              strict=True)
  return {"query": query, "same": all(a.tobytes() == b.tobytes() for a, b in pairs)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("two") / "checkpoints"


@pytest.fixture(scope="module")
def two(folder):
  address = free_address()
  return reports(*(
      start(__file__, "train", str(folder), address, str(index), devices=2) for index in range(2)))


@pytest.fixture(scope="module")
def one():
  return trained(grid(1, 1, 1))


def test_both_processes_take_the_steps_of_one(two, one):
  for report in two:
    assert (report["processes"], report["devices"], report["own"]) == (2, 4, 2)
    np.testing.assert_allclose(report["losses"], one[0], rtol=0, atol=1e-5)
  assert abs(one[0][0] - one[0][1]) > 1e-3


def test_both_read_their_parts_of_the_checkpoint_back_bit_for_bit(two):
  for report in two:
    assert report["step"] == STEPS and report["record"] == RECORD
    assert report["same"]


def test_both_fall_back_from_a_damaged_checkpoint_and_it_is_set_aside_once(two, folder):
  assert [report["fallback"] for report in two] == [1, 1]
  assert folder.with_name("damaged-2.corrupt").is_dir()
  assert not (folder.with_name("damaged") / "2").exists()


def test_their_checkpoint_holds_the_state_of_one_process_and_is_read_by_one(two, one, folder):
  step, state, record = restored(folder, grid(1, 1, 1))
  assert step == STEPS and record == RECORD
  assert state.step == STEPS and state.entropy_coefficient > 0.3
  start_params = prepared(grid(1, 1, 1))[1].params
  for leaf, expected, old in zip(*map(
      jax.tree.leaves, (state.params, one[1].params, start_params)), strict=True):
    np.testing.assert_allclose(leaf, expected, rtol=0, atol=1e-5)
    assert np.abs(np.asarray(leaf) - np.asarray(old)).max() > 1e-3
  for leaf, expected in zip(*map(jax.tree.leaves, (state, one[1])), strict=True):
    np.testing.assert_allclose(leaf, expected, rtol=0, atol=1e-5)


def test_their_checkpoint_is_read_on_a_mesh_of_another_shape(two, folder):
  report, = reports(start(__file__, "read", str(folder), devices=4))
  assert report == {"query": [2, 4, 16], "same": True}


if __name__ == "__main__":
  where = Path(sys.argv[2])
  print(json.dumps(
      one_of_two(where, sys.argv[3], int(sys.argv[4])) if sys.argv[1] == "train"
      else elsewhere(where)))
