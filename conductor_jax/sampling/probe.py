"""Whether a server has the weights that it was given: log-probabilities of tokens that stay fixed.

A success of HTTP proves nothing. Two things are compared: what the server and the trainer say of
the same weights, which differ by rounding alone; and what the server says of these weights and of
earlier ones, for after a small step the rounding hides whether it took the new ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array

from conductor_jax.models.placement import ONE_DEVICE, Placement
from conductor_jax.models.qwen2 import Qwen2, Qwen2Config
from conductor_jax.models.streaming import TRANSPOSED

# Mean difference in log-probability, as a share of 1 - log p, that rounding may make, by dtype of
# the server's model. A share, for vLLM rounds logits too, those above 16 to eighths in bfloat16,
# and an unlikely token has all of that. SmolLM2's bfloat16 makes 0.012, and other weights 0.5.
TOLERANCES = {"float32": 0.005, "bfloat16": 0.1, "float16": 0.1}
# By so much the trainer's own mean must move before the server's may not stay bit for bit the same.
_MOVED = 1e-4


@dataclass(frozen=True)
class Probe:
  """Fixed tokens, and what the trainer says of them.

  Attributes:
    tokens: two or more.
    context: how many of them only stand before the others. Of tokens that the model does not expect
      bfloat16 gets some wrong by whole nats, so these are not compared with the trainer's.
    logprobs: (parameters) → float32[tokens - 1], of each token after the first at temperature 1,
      with the parameters rounded as they are exported.
  """

  tokens: Sequence[int]
  context: int
  logprobs: Callable[[dict], np.ndarray]


@dataclass(frozen=True)
class _Rounding(Placement):
  """Rounds kernels where they are computed with.

  That is a layer at a time: of all at once there would be a second copy.
  """

  dtype: str = "float32"

  def gather(self, weight, stored, computed):
    return super().gather(_rounded(weight, self.dtype), stored, computed)


def _rounded(x: Array, dtype: str) -> Array:
  # XLA would take a conversion there and back for none.
  kind = jnp.finfo(dtype)
  return jax.lax.reduce_precision(x.astype(jnp.float32), kind.nexp, kind.nmant)


def make_probe(
    config: Qwen2Config, tokens: Sequence[int], dtype: str, placement: Placement = ONE_DEVICE, *,
    context: int = 1
) -> Probe:
  """The probe of a model whose weights are exported in `dtype`; it computes in float32.

  Args:
    config: the model's shape.
    tokens: such as it is to write, at least two.
    dtype: of the files.
    placement: of the activations, on the parameters' mesh.
    context: see `Probe`.
  """
  rounding = _Rounding(placement.mesh, placement.rules, dtype)
  graph, _ = nnx.split(nnx.eval_shape(lambda: Qwen2(
      config, compute_dtype="float32", remat="none", placement=rounding, rngs=nnx.Rngs(0))))
  # Every device computes a row, for rows are what a mesh is divided by.
  rows = 1 if placement.mesh is None else placement.mesh.size
  first, rest = np.array([tokens[:1]] * rows, np.int32), np.array([[tokens[1:]]] * rows, np.int32)

  @jax.jit
  def logprobs(params):
    params = jax.tree_util.tree_map_with_path(
        lambda path, x: x if path[-1].key in TRANSPOSED else _rounded(x, dtype), params)
    model = nnx.merge(graph, params)
    hidden = model.hidden_states(first, np.ones_like(first, bool), rest)
    every = jax.nn.log_softmax(hidden @ model.output_head().astype(jnp.float32))
    return jnp.take_along_axis(every, rest[..., None], axis=-1)[0, 0, :, 0]

  return Probe(tokens, context, lambda params: jax.device_get(logprobs(params)))


class Answers:
  """What one server has said of the weights that it had.

  Args:
    dtype: of the server's model.
    context: the probe's.
  """

  def __init__(self, dtype: str, context: int):
    self._context = context
    self._tolerance = TOLERANCES[dtype]
    self._earlier: list[tuple[np.ndarray, np.ndarray]] = []

  def objection(
      self, answer: np.ndarray, expected: np.ndarray, *, reloaded: bool) -> str | None:
    """Why these cannot be the server's log-probabilities under the weights; None if they can.

    Args:
      answer: float32[tokens - 1], the server's.
      expected: float32[tokens - 1], the trainer's.
      reloaded: whether the server had other weights before, which it may have kept.
    """
    compared = slice(self._context - 1, None)
    share = float(np.mean((np.abs(answer - expected) / (1 - expected))[compared]))
    if not share <= self._tolerance:
      return (f"its log-probabilities are off by {share:.2%} on average, and rounding explains "
              f"{self._tolerance:.2%} at most")
    for earlier, of_trainer in self._earlier if reloaded else ():
      moved = float(np.mean(np.abs(expected - of_trainer)))
      if moved > _MOVED and np.array_equal(answer, earlier):
        return ("its log-probabilities are bit for bit those of earlier weights, and the "
                f"trainer's have moved by {moved:.3g} on average")
    return None

  def keep(self, answer: np.ndarray, expected: np.ndarray) -> None:
    """Remembers an answer that there is no objection to."""
    self._earlier.append((answer, expected))
