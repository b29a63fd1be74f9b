"""What a sampler is: a prompt in, completions with their log-probabilities out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

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
  """Writes completions with the weights loaded last.

  `stage` is called in the trainer's thread, everything else on one event loop, which it never
  blocks.
  """

  async def sample(
      self, prompt: Sequence[int], seeds: np.ndarray, temperature: float) -> list[Completion]:
    """Samples a prompt once per seed.

    Args:
      prompt: token ids.
      seeds: uint32[samples]. A seed fixes its completion, whatever else is in the batch, as far as
        the arithmetic of the machine allows.
      temperature: divides the logits; 0 takes the most likely token, with its log-probability at
        temperature 1.

    Returns:
      One completion per seed, in order.
    """
    ...

  def stage(self, params: dict, version: int) -> None:
    """Takes down parameters, to be loaded. They may be given away when it returns."""
    ...

  async def load(self) -> None:
    """Makes the parameters staged last those of every later token."""
    ...
