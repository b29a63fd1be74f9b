"""What a sampler is: prompts in, completions with their log-probabilities out."""

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
    weight_version: which weights wrote it.
  """

  tokens: np.ndarray
  logprobs: np.ndarray
  finish_reason: Literal["stop", "length"]
  weight_version: int


class Sampler(Protocol):
  """Writes completions with the current weights."""

  def sample(
      self, prompts: Sequence[Sequence[int]], seeds: np.ndarray, temperature: float
  ) -> list[list[Completion]]:
    """Samples every prompt once per seed.

    Args:
      prompts: token ids, one list per prompt.
      seeds: uint32[prompts, samples]. A seed fixes its completion, whatever else is in the batch.
      temperature: divides the logits; 0 takes the most likely token.

    Returns:
      One list per prompt, one completion per seed, in order.
    """
    ...

  def update_weights(self, params: Any, version: int) -> None:
    """Makes `params` the weights of every later completion, under the given version."""
    ...
