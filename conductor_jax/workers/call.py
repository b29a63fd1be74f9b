"""What became of one call of a worker, and what it cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# What became of a call:
#   answered     the worker answered (an empty or refusing answer is an answer)
#   truncated    the worker ran out of tokens; what it wrote is its answer
#   refused      the endpoint rejected this request for good (such as HTTP 400, 413, 422)
#   unavailable  the endpoint could not be used, which is not the plan's fault: at once for a bad
#                key, no money or a wrong model name (HTTP 401 to 404), else after all retries
#   skipped      an earlier step it depends on brought no answer
Outcome = Literal["answered", "truncated", "refused", "unavailable", "skipped"]


@dataclass(frozen=True)
class Usage:
  """Tokens and money.

  Attributes:
    prompt_tokens: tokens read.
    completion_tokens: tokens written.
    cost: dollars.
  """

  prompt_tokens: int = 0
  completion_tokens: int = 0
  cost: float = 0.0

  def __add__(self, other: "Usage") -> "Usage":
    return Usage(
        self.prompt_tokens + other.prompt_tokens,
        self.completion_tokens + other.completion_tokens,
        self.cost + other.cost)

  @property
  def tokens(self) -> int:
    return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class CallRecord:
  """One worker call.

  Attributes:
    worker: the worker's name.
    request: the JSON body sent; never a key.
    response: the text the worker answered, "" if there was none.
    usage: tokens and money, as the endpoint reported them.
    latency: seconds from the first attempt to the outcome.
    attempts: HTTP requests made, 0 for a skipped call.
    outcome: see `Outcome`.
    error: one line on what went wrong, None if nothing did.
  """

  worker: str
  request: Mapping[str, Any]
  response: str
  usage: Usage
  latency: float
  attempts: int
  outcome: Outcome
  error: str | None = None
