"""Puts weights that a file holds one by one onto the mesh, and takes them off it again.

No host ever holds more than one of the file's tensors, and of that only what its devices need:
stacked arrays exist on the devices alone, and layers are written into them in place.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array

from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.models.shapes import abstract_parameters

# Kernels are [inputs, outputs] here, and [outputs, inputs] in a file.
TRANSPOSED = frozenset({"query", "key", "value", "output", "gate", "up", "down", "head"})

# (parameter, layer or None, slices) → that part of the file's tensor.
Read = Callable[[str, int | None, tuple[slice, ...]], np.ndarray]


def place(config: Qwen2Config, shardings: dict, dtype: str, read: Read) -> dict:
  """Loads every parameter.

  Args:
    config: the shape.
    shardings: a `NamedSharding` for each parameter, a tree like the parameters.
    dtype: of the result; conversion happens on the devices.
    read: reads a part of one tensor, in its file's layout.

  Returns:
    The parameters.
  """
  def load(path, leaf: jax.ShapeDtypeStruct, sharding: NamedSharding) -> Array:
    name = path[-1].key
    transposed = name in TRANSPOSED
    if path[0].key != "layers":
      tensor = _fetch(name, None, leaf.shape, sharding, read)
      return _converter(transposed, dtype, sharding)(tensor)
    row = NamedSharding(sharding.mesh, PartitionSpec(*tuple(sharding.spec)[1:]))
    stack = _zeros(leaf.shape, dtype, sharding)()
    write = _writer(transposed, sharding)
    for layer in range(config.num_layers):
      stack = write(stack, _fetch(name, layer, leaf.shape[1:], row, read), layer)
      # Otherwise tensors that wait for the devices pile up on the host.
      stack.block_until_ready()
    return stack

  return jax.tree_util.tree_map_with_path(
      load, abstract_parameters(config, dtype), shardings)


def _fetch(name, layer, shape, sharding, read: Read) -> Array:
  """One tensor in its file's layout and dtype, laid out as the parameter is."""
  if name in TRANSPOSED:
    axes = (*sharding.spec, *[None] * (2 - len(sharding.spec)))
    shape, sharding = shape[::-1], NamedSharding(sharding.mesh, PartitionSpec(*axes[::-1]))
  parts: dict[Any, np.ndarray] = {}

  def part(index: tuple[slice, ...]) -> np.ndarray:
    # Devices that hold the same part share one copy of it.
    key = tuple((each.start, each.stop) for each in index)
    if key not in parts:
      parts[key] = read(name, layer, index)
    return parts[key]

  return jax.make_array_from_callback(shape, sharding, part)


@cache
def _zeros(shape: tuple[int, ...], dtype: str, sharding: NamedSharding) -> Callable[[], Array]:
  return jax.jit(partial(jnp.zeros, shape, dtype), out_shardings=sharding)


@cache
def _writer(transposed: bool, sharding: NamedSharding) -> Callable[[Array, Array, int], Array]:
  @partial(jax.jit, donate_argnums=0, out_shardings=sharding)
  def write(stack, tensor, layer):
    # `stack.at[layer].set` would check bounds, for which XLA copies the whole stack on a CPU.
    tensor = _oriented(tensor, transposed).astype(stack.dtype)
    return jax.lax.dynamic_update_index_in_dim(stack, tensor, layer, 0)

  return write


@cache
def _converter(
    transposed: bool, dtype: str, sharding: NamedSharding) -> Callable[[Array], Array]:
  return jax.jit(
      lambda tensor: _oriented(tensor, transposed).astype(dtype), out_shardings=sharding)


def _oriented(tensor: Array, transposed: bool) -> Array:
  return tensor.T if transposed else tensor


def take(
    array: Array, layer: int | None, dtype: str, *, transpose: bool) -> np.ndarray | Array:
  """One tensor off the mesh.

  Every process that holds a part takes part, and receives the whole.

  Args:
    array: a parameter.
    layer: which of its layers, None where it has none.
    dtype: of the result, unless one CPU has the parameter: then conversion is left to the caller.
    transpose: gives [outputs, inputs], as files hold it, of a kernel [inputs, outputs]; in which
      order in memory is left open.

  Returns:
    The tensor, or one that is on its way to the host.
  """
  # Where one process sees every part it puts them together itself; otherwise the devices do.
  whole = None if array.is_fully_addressable else NamedSharding(
      array.sharding.mesh, PartitionSpec())
  here = all(device.platform == "cpu" for device in array.devices())
  if here and len(array.devices()) == 1:
    values = np.asarray(array)  # no copy
    values = values if layer is None else values[layer]
  else:
    # On a CPU, XLA would be several times slower at turning it than whoever copies it next.
    picked = _picker(layer is not None, dtype, transpose and not here, whole)(array, layer or 0)
    picked.copy_to_host_async()
    if not here:
      return picked
    values = np.asarray(picked)
  return values.T if transpose else values


@cache
def _picker(
    stacked: bool, dtype: str, transpose: bool, sharding: NamedSharding | None
) -> Callable[[Array, int], Array]:
  @partial(jax.jit, out_shardings=sharding)
  def pick(array, layer):
    tensor = array[layer] if stacked else array
    return _oriented(tensor, transpose).astype(dtype)

  return pick
