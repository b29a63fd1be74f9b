"""Where arrays live: one mesh, one table of rules."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from conductor_jax.models.qwen2 import PARAMETER_AXES

MESH_AXES = ("data", "fsdp", "tensor")

# Logical axis of a parameter → mesh axis. What is not named is replicated.
RULES = {
    "embed": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
}

# Rows of a batch are spread over every axis that holds different data.
BATCH = PartitionSpec(("data", "fsdp"))


def make_mesh(data: int, fsdp: int, tensor: int) -> Mesh:
  """The mesh of all devices.

  Raises:
    ValueError: the sizes do not multiply to the number of devices.
  """
  devices = jax.devices()
  if data * fsdp * tensor != len(devices):
    raise ValueError(
        f"mesh data={data} × fsdp={fsdp} × tensor={tensor} needs {data * fsdp * tensor} devices, "
        f"and there are {len(devices)}")
  return Mesh(np.array(devices).reshape(data, fsdp, tensor), MESH_AXES)


def parameter_shardings(mesh: Mesh, tree: Any) -> Any:
  """Shardings of parameters, or of a tree that holds some, such as an optimizer's state.

  A leaf is recognised by the last name in its path that `PARAMETER_AXES` knows; anything else,
  such as a step counter, is replicated.
  """
  def sharding(path, leaf):
    names = [getattr(key, "key", getattr(key, "name", None)) for key in path]
    known = [name for name in names if name in PARAMETER_AXES]
    axes = PARAMETER_AXES[known[-1]] if known and np.ndim(leaf) else ()
    return NamedSharding(mesh, PartitionSpec(*(RULES.get(axis) for axis in axes)))

  return jax.tree_util.tree_map_with_path(sharding, tree)


def batch_sharding(mesh: Mesh) -> NamedSharding:
  return NamedSharding(mesh, BATCH)


def replicated(mesh: Mesh) -> NamedSharding:
  return NamedSharding(mesh, PartitionSpec())


def initialise(mesh: Mesh, build: Callable[[], nnx.Module]) -> tuple[nnx.GraphDef, dict]:
  """Builds a model straight onto the mesh; no device ever holds more than its own part.

  Args:
    mesh: where to.
    build: returns the module.

  Returns:
    The module's graph definition, and its parameters as a nested dict of arrays.
  """
  graph = nnx.split(nnx.eval_shape(build))[0]

  def parameters():
    return nnx.to_pure_dict(nnx.split(build())[1])

  shardings = parameter_shardings(mesh, jax.eval_shape(parameters))
  return graph, jax.jit(parameters, out_shardings=shardings)()
