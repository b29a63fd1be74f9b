"""Where the arrays inside a model live, said in logical axes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

MeshAxes = str | tuple[str, ...]


@dataclass(frozen=True)
class Placement:
  """A mesh, and the mesh axes that each logical axis is spread over; by default, no mesh at all.

  Attributes:
    mesh: None for a model on one device, where nothing is to be said.
    rules: pairs of a logical axis and its mesh axes. What is not named is not spread.
  """

  mesh: Mesh | None = None
  rules: tuple[tuple[str, MeshAxes], ...] = ()

  def _mesh_axes(self, axis: str | None) -> tuple[str, ...]:
    """What a logical axis is spread over; mesh axes of a single device spread nothing."""
    names = dict(self.rules).get(axis, ())
    names = (names,) if isinstance(names, str) else names
    return tuple(name for name in names if self.mesh is not None and self.mesh.shape[name] > 1)

  def spec(self, *axes: str | None) -> PartitionSpec:
    return PartitionSpec(*(self._mesh_axes(axis) or None for axis in axes))

  def _dividing(self, shape: tuple[int, ...], axes: tuple[str | None, ...]) -> PartitionSpec:
    """The spec of `axes`, without those that a dimension is not a multiple of."""
    def divides(size, axis):
      return size % math.prod(self.mesh.shape[name] for name in self._mesh_axes(axis)) == 0

    return self.spec(*(
        axis if divides(size, axis) else None for size, axis in zip(shape, axes, strict=True)))

  def constrain(self, x: Array, *axes: str | None) -> Array:
    """Says where an activation lives. A dimension that its mesh axes do not divide is whole."""
    if self.mesh is None:
      return x
    return jax.lax.with_sharding_constraint(
        x, NamedSharding(self.mesh, self._dividing(x.shape, axes)))

  def gather(self, weight: Array, stored: tuple[str | None, ...],
             computed: tuple[str | None, ...]) -> Array:
    """Brings a weight from where it is stored to where it is computed with, and its gradient back.

    The gradient is asked for in the stored sharding, so that what devices have of it is summed and
    scattered at once and is whole on none.
    """
    if self.mesh is None or self.spec(*stored) == self.spec(*computed):
      return weight
    return _gather(weight, self, stored, computed)

  def local(self, function: Callable[..., Array], *specs: Any, result: PartitionSpec):
    """`function` run by every device on its own part, given the specs of its arguments.

    For what needs no other device's part: nothing is moved.
    """
    if self.mesh is None:
      return function
    return jax.shard_map(
        function, mesh=self.mesh, in_specs=specs, out_specs=result, check_vma=False)


ONE_DEVICE = Placement()


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _gather(weight, placement, stored, computed):
  return placement.constrain(placement.constrain(weight, *stored), *computed)


def _gather_forward(weight, placement, stored, computed):
  return _gather(weight, placement, stored, computed), None


def _gather_backward(placement, stored, computed, _, gradient):
  return (placement.constrain(gradient, *stored),)


_gather.defvjp(_gather_forward, _gather_backward)
