"""Where arrays live: one mesh, one table of rules."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from conductor_jax.models.placement import ONE_DEVICE, Placement
from conductor_jax.models.qwen2 import PARAMETER_AXES
from conductor_jax.training.batch import Counts, GroupedBatch

MESH_AXES = ("data", "fsdp", "tensor")

# Logical axis → mesh axes. What is not named is whole on every device.
RULES = {
    # Of parameters.
    "embed": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "head_inputs": ("tensor", "fsdp"),
    "mlp_inputs": ("tensor", "fsdp"),
    "head_vocab": ("fsdp", "tensor"),
    # Of activations: rows are spread over every axis that holds different data. The output head is
    # never gathered, hidden states of a few tokens are: each device has its part of their logits.
    "rows": ("data", "fsdp"),
    "logits": ("fsdp", "tensor", "data"),
}


def make_mesh(data: int, fsdp: int, tensor: int, devices: Sequence[jax.Device] | None = None
              ) -> Mesh:
  """The mesh of all devices, or of the given ones.

  Raises:
    ValueError: the sizes do not multiply to the number of devices.
  """
  devices = jax.devices() if devices is None else devices
  if data * fsdp * tensor != len(devices):
    raise ValueError(
        f"mesh data={data} × fsdp={fsdp} × tensor={tensor} needs {data * fsdp * tensor} devices, "
        f"and there are {len(devices)}")
  return Mesh(np.array(devices).reshape(data, fsdp, tensor), MESH_AXES)


def placement(mesh: Mesh) -> Placement:
  """Where a model on the mesh computes; on a mesh of one device there is nothing to say."""
  return Placement(mesh, tuple(RULES.items())) if mesh.size > 1 else ONE_DEVICE


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


def sharded_shapes(mesh: Mesh, shapes: Any) -> Any:
  """Shapes and dtypes of such a tree, with their shardings."""
  return jax.tree.map(
      lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
      shapes, parameter_shardings(mesh, shapes))


def replicated(mesh: Mesh) -> NamedSharding:
  return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Of a batch in micro-batches, [micro-batches, rows, …]."""
  return NamedSharding(mesh, PartitionSpec(None, RULES["rows"]))


def place_batch(mesh: Mesh, batch: GroupedBatch, micro_batches: int) -> GroupedBatch:
  """Lays the rows of a batch into micro-batches, [micro-batches, rows, …], on the mesh.

  Every process is given the whole batch, and puts its own devices' part of each micro-batch on
  them.
  """
  sharding = batch_sharding(mesh)

  def place(x):
    x = np.asarray(x)
    x = x.reshape(micro_batches, -1, *x.shape[1:])
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

  # The one transfer to the devices that a step is meant to make.
  with jax.transfer_guard_host_to_device("allow"):
    return jax.tree.map(place, batch)


def place_counts(mesh: Mesh, counts: Counts) -> Counts:
  """Puts counts from the host onto every device."""
  def place(x):
    return jax.make_array_from_callback((), replicated(mesh), lambda _: x)

  with jax.transfer_guard_host_to_device("allow"):
    return jax.tree.map(place, counts)


def initialise(
    mesh: Mesh, build: Callable[[Placement], nnx.Module], only: Callable[[dict], dict] = dict
) -> tuple[nnx.GraphDef, dict]:
  """Builds a model straight onto the mesh; no device ever holds more than its own part.

  Args:
    mesh: where to.
    build: returns the module, which is told where it computes.
    only: picks the parameters that are wanted; the others are never made.

  Returns:
    The module's graph definition, and its parameters as a nested dict of arrays.
  """
  graph, shapes = abstract(mesh, build)

  def parameters():
    return only(nnx.to_pure_dict(nnx.split(build(placement(mesh)))[1]))

  shardings = jax.tree.map(lambda x: x.sharding, only(shapes))
  return graph, jax.jit(parameters, out_shardings=shardings)()


def abstract(mesh: Mesh, build: Callable[[Placement], nnx.Module]) -> tuple[nnx.GraphDef, dict]:
  """The graph definition of a model, and the shapes and shardings of its parameters."""
  graph, state = nnx.split(nnx.eval_shape(lambda: build(placement(mesh))))
  return graph, sharded_shapes(mesh, nnx.to_pure_dict(state))
