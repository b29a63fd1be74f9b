"""Where parameters live, and one step on eight host devices, which only a process of its own has.

Run as a program, this file is that process: it takes the same steps on three meshes and prints what
came of them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import Mesh, PartitionSpec

from conductor_jax.models.qwen2 import Qwen2, Qwen2Config
from conductor_jax.training.batch import GroupedBatch
from conductor_jax.training.grpo import grpo_loss
from conductor_jax.training.logprobs import batch_statistics
from conductor_jax.training.sharding import (
    MESH_AXES,
    initialise,
    make_mesh,
    parameter_shardings,
)
from conductor_jax.training.step import initial_state, make_step

CONFIG = Qwen2Config(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_layers=2, num_heads=4,
    num_kv_heads=2, head_dim=4, max_positions=32, tied=False)
# A larger epsilon than usual: Adam must not blow rounding noise up to whole steps.
SCHEDULE = optax.constant_schedule(1e-2)
OPTIMIZER = optax.chain(
    optax.clip_by_global_norm(1.0), optax.adamw(SCHEDULE, eps=1e-3, weight_decay=0.1))

SPECS = {
    "embedding": ("tensor", "fsdp"),
    "head": ("fsdp", "tensor"),
    "final_norm": ("fsdp",),
    "layers": {
        "attention_norm": (None, "fsdp"),
        "query": (None, "fsdp", "tensor"),
        "query_bias": (None, "tensor"),
        "key": (None, "fsdp", "tensor"),
        "key_bias": (None, "tensor"),
        "value": (None, "fsdp", "tensor"),
        "value_bias": (None, "tensor"),
        "output": (None, "tensor", "fsdp"),
        "mlp_norm": (None, "fsdp"),
        "gate": (None, "fsdp", "tensor"),
        "up": (None, "fsdp", "tensor"),
        "down": (None, "tensor", "fsdp"),
    },
}


def build():
  return Qwen2(CONFIG, compute_dtype="float32", remat="none", rngs=nnx.Rngs(0))


def grid(devices, *sizes) -> Mesh:
  return Mesh(np.array(devices).reshape(sizes), MESH_AXES)


def batch() -> GroupedBatch:
  generator = np.random.default_rng(0)
  shape = (8, 2, 5)
  return GroupedBatch(
      prompt_tokens=generator.integers(32, size=(8, 6)),
      prompt_mask=np.arange(6) < generator.integers(1, 7, size=(8, 1)),
      completion_tokens=generator.integers(32, size=shape),
      completion_mask=np.arange(5) < generator.integers(0, 6, size=(8, 2, 1)),
      advantages=generator.normal(size=shape).astype(np.float32),
      sampler_logprobs=np.full(shape, -3.5, np.float32))


def two_steps(mesh: Mesh):
  """Loss of each of two steps, the state after them, and how often the loss was traced."""
  graph, params = initialise(mesh, build)
  state = initial_state(mesh, params, OPTIMIZER)

  traced = []

  def statistics(params, reference, batch):
    return batch_statistics(graph, params, batch, temperature=1.0, chunk=16)

  def loss(statistics, batch, counts, state):
    traced.append(state.step)
    return grpo_loss(
        statistics, batch, counts, aggregation="token", max_tokens=5, ratio="token", clip_low=0.2,
        clip_high=0.2, dual_clip=0.0, importance_cap=0.0, kl_estimator="k3", kl_coefficient=0.0,
        entropy_coefficient=None)

  step = make_step(loss, statistics, OPTIMIZER, SCHEDULE, mesh, state)
  losses = []
  for _ in range(2):
    state, measurements = step(state, None, batch())
    losses.append(float(measurements["loss"]))
  return losses, state, len(traced)


def main():
  meshes = {
      "one device": grid(jax.devices()[:1], 1, 1, 1),
      "fsdp": make_mesh(data=1, fsdp=8, tensor=1),
      "all three": make_mesh(data=2, fsdp=2, tensor=2),
  }
  report = {}
  for name, mesh in meshes.items():
    losses, state, traces = two_steps(mesh)
    leaves = [np.array(leaf) for leaf in jax.tree.leaves(state.params)]
    if not report:
      expected = leaves
    adam = optax.tree_utils.tree_get(state.optimizer, "mu"), optax.tree_utils.tree_get(
        state.optimizer, "nu")
    report[name] = {
        "losses": losses,
        "traces": traces,
        "difference": max(
            float(np.abs(a - b).max()) for a, b in zip(leaves, expected, strict=True)),
        "parts": {
            name: list(state.params["layers"][name].addressable_shards[0].data.shape)
            for name in ("query", "down", "mlp_norm")},
        "optimizer like parameters": all(
            moment.sharding == leaf.sharding for tree in adam for moment, leaf in zip(
                jax.tree.leaves(tree), jax.tree.leaves(state.params), strict=True)),
    }
  print(json.dumps(report))


@pytest.fixture(scope="module")
def report():
  environment = os.environ | {
      "JAX_PLATFORMS": "cpu",
      "XLA_FLAGS": "--xla_force_host_platform_device_count=8 "
                   "--xla_cpu_collective_call_terminate_timeout_seconds=300",
      # XLA's pool has a thread per device or this many, and a device that waits for the others in
      # two collectives at once holds two: with eight threads in all, everyone may wait for ever.
      "NPROC": "64",
      "PYTHONPATH": str(Path(__file__).parents[2]),
  }
  result = subprocess.run(
      [sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
  assert result.returncode == 0, result.stderr
  return json.loads(result.stdout)


@pytest.mark.parametrize("mesh", ["fsdp", "all three"])
def test_eight_devices_give_the_losses_and_parameters_of_one(report, mesh):
  np.testing.assert_allclose(report[mesh]["losses"], report["one device"]["losses"], rtol=1e-5)
  assert report[mesh]["difference"] < 1e-5
  first, second = report["one device"]["losses"]
  assert second < first - 1e-3


@pytest.mark.parametrize("mesh, query, down, mlp_norm", [
    ("one device", [2, 16, 16], [2, 16, 16], [2, 16]),
    ("fsdp", [2, 2, 16], [2, 16, 2], [2, 2]),
    ("all three", [2, 8, 8], [2, 8, 8], [2, 8]),
])
def test_a_device_holds_only_its_part_of_parameters_and_optimizer_state(
    report, mesh, query, down, mlp_norm):
  assert report[mesh]["parts"] == {"query": query, "down": down, "mlp_norm": mlp_norm}
  assert report[mesh]["optimizer like parameters"]


@pytest.mark.parametrize("mesh", ["one device", "fsdp", "all three"])
def test_a_steps_result_enters_the_next_step_without_another_compilation(report, mesh):
  assert report[mesh]["traces"] == 1


def specs(tree):
  shardings = parameter_shardings(grid(jax.devices()[:1], 1, 1, 1), tree)
  return jax.tree.map(lambda sharding: sharding.spec, shardings)


def test_parameters_are_sharded_as_the_table_says_and_the_optimizer_state_alike():
  params = jax.eval_shape(lambda: nnx.to_pure_dict(nnx.split(build())[1]))
  expected = jax.tree.map(
      lambda axes: PartitionSpec(*axes), SPECS, is_leaf=lambda node: isinstance(node, tuple))
  assert specs(params) == expected
  adam = specs(jax.eval_shape(OPTIMIZER.init, params))[1][0]
  assert adam.mu == adam.nu == expected
  assert adam.count == PartitionSpec()


def test_what_is_no_parameter_is_replicated():
  assert specs({"step": jnp.zeros(()), "other": jnp.zeros((4, 4))}) == {
      "step": PartitionSpec(), "other": PartitionSpec()}


def test_a_mesh_that_does_not_fit_the_devices_is_refused_with_the_numbers():
  count = len(jax.devices())
  with pytest.raises(ValueError, match=rf"data=2 × fsdp=3 × tensor=5 needs 30 .* are {count}"):
    make_mesh(data=2, fsdp=3, tensor=5)


if __name__ == "__main__":
  main()
