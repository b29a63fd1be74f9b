"""Where parameters live, and steps on eight host devices, which only a process of its own has.

Run as a program, this file is that process: it takes the same step on several meshes and prints
what came of it.
"""

import json

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax.sharding import PartitionSpec

from conductor_jax.models.placement import Placement
from conductor_jax.training.batch import pack
from conductor_jax.training.optimizer import adamw
from conductor_jax.training.sharding import make_mesh, parameter_shardings
from tests.training.gradient_steps import (
    CASES,
    build,
    grid,
    groups,
    keep_gradient,
    largest_difference,
    make,
)
from tests.training.host_devices import reports, start

SPECS = {
    "embedding": ("tensor", "fsdp"),
    "head": (None, ("fsdp", "tensor")),
    "final_norm": ("fsdp",),
    "layers": {
        "attention_norm": (None, "fsdp"),
        "query": (None, "fsdp", "tensor"),
        "query_bias": (None, "tensor"),
        "key": (None, "fsdp", "tensor"),
        "key_bias": (None, "tensor"),
        "value": (None, "fsdp", "tensor"),
        "value_bias": (None, "tensor"),
        "output": (None, ("tensor", "fsdp"), None),
        "mlp_norm": (None, "fsdp"),
        "gate": (None, "fsdp", "tensor"),
        "up": (None, "fsdp", "tensor"),
        "down": (None, ("tensor", "fsdp"), None),
    },
}
ADAPTER_SPECS = {
    "query_lora_a": (None, "fsdp", None), "query_lora_b": (None, None, "tensor"),
    "value_lora_a": (None, "fsdp", None), "value_lora_b": (None, None, "tensor"),
    "output_lora_a": (None, ("tensor", "fsdp"), None), "output_lora_b": (None, None, None),
    "down_lora_a": (None, ("tensor", "fsdp"), None), "down_lora_b": (None, None, None),
}

# Sizes of data, fsdp and tensor, and micro-batches of the eight rows.
MESHES = {"fsdp": (1, 8, 1, 1), "fsdp and tensor": (1, 4, 2, 2), "all three": (2, 2, 2, 2)}
RUNS = [*[("KL and entropy", mesh) for mesh in MESHES],
        ("policy alone", "fsdp and tensor"), ("adapters", "all three")]


def stepped(case: str, data: int, fsdp: int, tensor: int, micro_batches: int):
  """Loss and gradient of the second of two steps, and how often the step was traced in each."""
  traces = []

  def traced(coefficient, entropy):
    del entropy
    traces.append(case)
    return coefficient

  step, state, _ = make(
      CASES[case], grid(data, fsdp, tensor), keep_gradient(), micro_batches=micro_batches,
      steer_entropy=traced)
  batch = pack(groups(), pad=0, samples_per_row=2)
  state, _ = step(state, batch)
  first = len(traces)
  state, measurements = step(state, batch)
  return float(measurements["loss"]), state, (first, len(traces) - first)


def report() -> dict:
  found, expected = {}, {}
  for case in CASES:
    loss, state, _ = stepped(case, 1, 1, 1, 1)
    expected[case] = loss, jax.device_get(state.optimizer.gradient)
  for case, mesh in RUNS:
    loss, state, traces = stepped(case, *MESHES[mesh])
    gradient = state.optimizer.gradient
    found[f"{case}, {mesh}"] = {
        "loss": loss - expected[case][0],
        "gradient": largest_difference(jax.device_get(gradient), expected[case][1]),
        "traces": traces,
        "parts": {name: leaf.addressable_shards[0].data.shape
                  for name, leaf in state.params["layers"].items()},
        "gradient like parameters": jax.tree.map(lambda x: x.sharding, gradient)
                                    == jax.tree.map(lambda x: x.sharding, state.params)}
  return found


@pytest.fixture(scope="module")
def eight():
  return reports(start(__file__, devices=8))[0]


@pytest.mark.parametrize("case, mesh", RUNS)
def test_eight_devices_give_the_loss_and_the_gradient_of_one(eight, case, mesh):
  found = eight[f"{case}, {mesh}"]
  assert abs(found["loss"]) < 1e-5
  assert found["gradient"] < 1e-5


@pytest.mark.parametrize("case, mesh", RUNS)
def test_a_steps_result_enters_the_next_step_without_another_compilation(eight, case, mesh):
  first, second = eight[f"{case}, {mesh}"]["traces"]
  assert first > 0 and second == 0


@pytest.mark.parametrize("case, mesh, parts", [
    ("KL and entropy", "fsdp", {"query": [2, 2, 16], "down": [2, 2, 16], "mlp_norm": [2, 2]}),
    ("KL and entropy", "all three", {"query": [2, 8, 8], "down": [2, 4, 16], "mlp_norm": [2, 8]}),
    ("adapters", "all three", {
        "query_lora_a": [2, 8, 2], "query_lora_b": [2, 2, 8], "down_lora_a": [2, 4, 2],
        "down_lora_b": [2, 2, 16]}),
])
def test_a_device_holds_only_its_part_of_parameters_and_optimizer_state(eight, case, mesh, parts):
  found = eight[f"{case}, {mesh}"]
  assert {name: found["parts"][name] for name in parts} == parts
  assert found["gradient like parameters"]


def specs(tree):
  return jax.tree.map(lambda x: x.spec, parameter_shardings(grid(1, 1, 1), tree))


@pytest.mark.parametrize("case", ["KL and entropy", "adapters"])
def test_parameters_are_sharded_as_the_table_says_and_the_optimizer_state_alike(case):
  params = jax.eval_shape(lambda: nnx.to_pure_dict(nnx.split(build(CASES[case], Placement()))[1]))
  adapters = ADAPTER_SPECS if case == "adapters" else {}
  expected = jax.tree.map(
      lambda axes: PartitionSpec(*axes), SPECS | {"layers": SPECS["layers"] | adapters},
      is_leaf=lambda node: isinstance(node, tuple))
  assert specs(params) == expected
  optimizer = adamw(
      lambda _: 1e-2, b1=0.9, b2=0.99, weight_decay=0.0, mu_dtype="float32")
  adam = specs(jax.eval_shape(optimizer.init, params))
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
  print(json.dumps(report()))
