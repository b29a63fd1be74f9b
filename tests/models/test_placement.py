"""Where a model's arrays live, on eight host devices, which only a process of its own has.

Run as a program, this file is that process.
"""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from conductor_jax.models.placement import Placement
from tests.training.host_devices import reports, start

RULES = (("embed", "fsdp"), ("heads", "tensor"), ("inputs", ("tensor", "fsdp")))
STORED, COMPUTED = ("embed", "heads"), (None, "heads")


def eight_devices() -> dict:
  placement = Placement(Mesh(np.array(jax.devices()).reshape(4, 2), ("fsdp", "tensor")), RULES)

  def part(shape, *axes):
    x = jax.jit(lambda x: placement.constrain(x, *axes))(jnp.ones(shape))
    return x.addressable_shards[0].data.shape

  def gathered(weight):
    return placement.gather(weight, STORED, COMPUTED)

  def of_weight(weight, x):
    """Value and gradient of a sum over what devices have a part of each."""
    x = placement.constrain(x, "embed", None)
    return jax.value_and_grad(lambda w: jnp.sum((x @ gathered(w)) ** 2))(weight)

  generator = np.random.default_rng(0)
  weight, x = generator.normal(size=(16, 8)), generator.normal(size=(8, 16))
  weight, x = weight.astype(np.float32), x.astype(np.float32)
  compiled = jax.jit(of_weight).lower(weight, x).compile()
  _, gradient = compiled(weight, x)
  local = placement.local(
      lambda x: x / jnp.sum(x), placement.spec("embed", None),
      result=placement.spec("embed", None))
  return {
      "parts": {
          "all divide": part((8, 8), "embed", "heads"),
          "one divides": part((6, 8), "embed", "heads"),
          "none divides": part((6, 7), "embed", "heads"),
          "two axes": part((16, 3), "inputs", None),
          "one of two axes": part((12, 3), "inputs", None),
          "unnamed": part((8, 8), "other", None)},
      "gathered": jax.jit(gathered)(weight).addressable_shards[0].data.shape,
      "same": bool((jax.jit(gathered)(weight) == weight).all()),
      "gradient": gradient.addressable_shards[0].data.shape,
      "error": float(np.abs(gradient - 2 * x.T @ (x @ weight)).max()),
      "local": np.asarray(jax.jit(local)(jnp.ones((8, 2)))).ravel().tolist()}


@pytest.fixture(scope="module")
def eight():
  return reports(start(__file__, devices=8))[0]


def test_without_a_mesh_everything_is_as_it_was():
  placement, x = Placement(), jnp.ones((3, 4))
  assert placement.constrain(x, "embed", "heads") is x
  assert placement.gather(x, STORED, COMPUTED) is x
  assert placement.local(math.sin, result=PartitionSpec()) is math.sin
  assert placement.spec("embed", None) == PartitionSpec(None, None)


def test_a_weight_that_is_stored_as_it_is_computed_with_is_not_moved():
  placement = Placement(Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tensor")), RULES)
  x = jnp.ones((3, 4))
  assert placement.gather(x, COMPUTED, COMPUTED) is x
  # Nor is one on a mesh whose axes spread nothing.
  assert placement.gather(x, STORED, COMPUTED) is x
  assert placement.spec("embed", None, "inputs") == PartitionSpec(None, None, None)


def test_a_dimension_that_its_mesh_axes_do_not_divide_is_whole(eight):
  assert eight["parts"] == {
      "all divide": [2, 4], "one divides": [6, 4], "none divides": [6, 7], "two axes": [2, 3],
      "one of two axes": [12, 3], "unnamed": [8, 8]}


def test_a_weight_is_gathered_over_the_axes_it_is_not_computed_along(eight):
  assert eight["gathered"] == [16, 4]
  assert eight["same"]


def test_the_gradient_of_a_gathered_weight_comes_back_as_the_weight_is_stored(eight):
  assert eight["gradient"] == [4, 4]
  assert eight["error"] < 1e-4


def test_a_local_function_sees_only_its_devices_part(eight):
  # Four devices hold four numbers each.
  assert eight["local"] == [0.25] * 16


if __name__ == "__main__":
  print(json.dumps(eight_devices()))
