"""Low-rank adapters (LoRA, arXiv 2106.09685): W + (alpha / rank) · A B beside a frozen W."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

TARGETS = ("query", "key", "value", "output", "gate", "up", "down")


@dataclass(frozen=True)
class LoraConfig:
  """Which kernels have adapters, and how large these are.

  Attributes:
    rank: of A [inputs, rank] and B [rank, outputs].
    alpha: the product is scaled by alpha / rank.
    targets: names of kernels, of `TARGETS`.
  """

  rank: int
  alpha: float
  targets: tuple[str, ...]


def initial_adapters(
    lora: LoraConfig, shapes: Mapping[str, tuple[int, int]], key: Callable[[], Array]
) -> dict[str, Array]:
  """Adapters that change nothing yet: A is drawn, B is 0 (section 4.1)."""
  adapters = {}
  for name in lora.targets:
    inputs, outputs = shapes[name]
    draw = jax.nn.initializers.he_uniform()
    adapters[f"{name}_lora_a"] = draw(key(), (inputs, lora.rank), jnp.float32)
    adapters[f"{name}_lora_b"] = jnp.zeros((lora.rank, outputs), jnp.float32)
  return adapters


def adapter_axes(name: str, axes: tuple[str | None, ...]) -> dict[str, tuple[str | None, ...]]:
  """Names and logical axes of the adapter of a kernel with the given axes, A first."""
  *before, inputs, outputs = axes
  return {f"{name}_lora_a": (*before, inputs, None), f"{name}_lora_b": (*before, None, outputs)}


def low_rank(
    lora: LoraConfig, multiply: Callable[[Array, Array], Array], x: Float[Array, "... inputs"],
    a: Float[Array, "inputs rank"], b: Float[Array, "rank outputs"]
) -> Float[Array, "... outputs"]:
  """What an adapter adds to x @ W."""
  return multiply(multiply(x, a), b) * (lora.alpha / lora.rank)


def is_adapter(name: str) -> bool:
  return name.endswith(("_lora_a", "_lora_b"))


def split_adapters(params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
  """Adapters and everything else, as two trees that `merge_trees` puts together again."""
  layers = params["layers"]
  adapters = {name: value for name, value in layers.items() if is_adapter(name)}
  rest = {name: value for name, value in layers.items() if not is_adapter(name)}
  return {"layers": adapters}, params | {"layers": rest}


def merge_trees(trainable: dict[str, Any], frozen: dict[str, Any] | None) -> dict[str, Any]:
  """One parameter tree of two that share no leaf; the first alone if there is no other."""
  if frozen is None:
    return trainable
  return frozen | {
      name: merge_trees(value, frozen.get(name)) if isinstance(value, dict) else value
      for name, value in trainable.items()}
