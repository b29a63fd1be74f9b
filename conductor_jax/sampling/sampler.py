"""What a sampler is: a prompt in, completions with their log-probabilities out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np


@dataclass(frozen=True)
class Completion:
  """One sampled completion.

  Attributes:
    tokens: int32[tokens], the end-of-sequence token included when the policy wrote it.
    logprobs: float32[tokens], log-probability of each token at the sampling temperature.
    finish_reason: "stop" after the end-of-sequence token, "length" at the token limit.
    weight_versions: int32[tokens], which weights wrote each token.
  """

  tokens: np.ndarray
  logprobs: np.ndarray
  finish_reason: Literal["stop", "length"]
  weight_versions: np.ndarray


class Sampler(Protocol):
  """Writes completions with the weights it was last given.

  `stage` is called where the trainer runs; the rest are coroutines of one event loop.
  """

  async def sample(
      self, prompt: Sequence[int], seeds: np.ndarray, temperature: float) -> list[Completion]:
    """Samples a prompt once per seed.

    Args:
      prompt: token ids.
      seeds: uint32[samples]. A seed fixes its completion, whatever else is sampled beside it, as
        far as the arithmetic of the machine does not depend on the batch.
      temperature: divides the logits; 0 takes the most likely token.

    Returns:
      One completion per seed, in order.
    """
    ...

  def stage(self, params: Any, version: int) -> None:
    """Takes new weights over. When it returns, the caller may give `params` away."""
    ...

  async def load(self) -> None:
    """Makes the weights that were staged last those of every later token."""
    ...

  async def rest(self) -> None:
    """Nothing is sampled until the next `load`: memory may be given up."""
    ...
