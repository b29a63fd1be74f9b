"""From characters to the tokens that wrote them, and from what fields are worth to their credit.

Tokens are placed by the tokenizer's own decoder, token by token: what was sampled is never
tokenised again, which could give other tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

Scale = Literal["none", "batch"]


@dataclass(frozen=True)
class TokenPlaces:
  """Where in a text its tokens stand.

  Attributes:
    starts, ends: of each token, the first character that it has a part in and the one after its
      last. Tokens that write one character together share its place; a special token, which writes
      nothing, has an empty one.
  """

  starts: Int[np.ndarray, " tokens"]
  ends: Int[np.ndarray, " tokens"]

  def covering(self, span: tuple[int, int]) -> Bool[np.ndarray, " tokens"]:
    """The tokens that have a part in any character of a span."""
    start, end = span
    return (self.starts < end) & (self.ends > start) & (self.starts < self.ends)


def token_places(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> TokenPlaces:
  """Places the tokens of a completion in its text, special tokens left out of it.

  Args:
    tokenizer: a fast one.
    tokens: what was sampled.
  """
  stream = DecodeStream(skip_special_tokens=True)
  backend = tokenizer.backend_tokenizer
  special = set(tokenizer.all_special_ids)
  starts, ends = np.zeros(len(tokens), np.int64), np.zeros(len(tokens), np.int64)
  length, waiting = 0, []
  for place, token in enumerate(map(int, tokens)):
    if token in special:
      starts[place] = ends[place] = length
      continue
    waiting.append(place)
    piece = stream.step(backend, token)
    # A token that ends within a character has no text until the character is whole.
    if piece is not None:
      starts[waiting], ends[waiting] = length, length + len(piece)
      length += len(piece)
      waiting = []
  if waiting:
    rest = tokenizer.decode(list(map(int, tokens)), skip_special_tokens=True,
                            clean_up_tokenization_spaces=False)
    starts[waiting], ends[waiting] = length, max(len(rest), length)
  return TokenPlaces(starts, ends)


def delta_scale(deltas: Iterable[float], scale: Scale) -> float:
  """What the changes of an iteration are divided by.

      "none"    1
      "batch"   their root mean square, 1 where all are 0; unlike a deviation it keeps their signs

  LEMON (arXiv 2605.14483) normalises Δ and does not say how.
  """
  squares = np.square(np.sort(np.abs(np.array(list(deltas), np.float64))))
  if scale == "none" or not squares.any():
    return 1.0
  return float(np.sqrt(squares.mean()))


def token_credit(
    places: TokenPlaces, deltas: Iterable[tuple[tuple[int, int], float]], *, weight: float,
    scale: float, bound: float) -> Float[np.ndarray, " tokens"]:
  """What is added to the advantages of a completion's tokens.

      credit(t) = weight · Σ over the fields that t has a part in of clip(Δ / scale, ±bound)

  Args:
    places: of the completion's tokens.
    deltas: of each field that was taken back, its span and Δ.
    weight: λ.
    scale: from `delta_scale`.
    bound: of a single field's part, before the weight.
  """
  credit = np.zeros(len(places.starts), np.float32)
  for span, delta in deltas:
    credit[places.covering(span)] += weight * np.clip(delta / scale, -bound, bound)
  return credit
