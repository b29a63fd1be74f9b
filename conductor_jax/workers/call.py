"""What became of one call of a worker, and what it cost."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

# What became of a call:
#   answered     the worker answered (an empty or refusing answer is an answer)
#   truncated    the worker ran out of tokens; what it wrote is its answer
#   refused      the endpoint rejected this request for good (such as HTTP 400, 413, 422)
#   unavailable  the endpoint could not be used, which is not the plan's fault: at once for a bad
#                key, no money, a wrong model name or option (HTTP 401 to 404, and 400 or 422 that
#                say so), else after all retries or at the workflow's deadline
#   over_budget  the budget had no room for it
#   skipped      an earlier step it depends on brought no answer
Outcome = Literal["answered", "truncated", "refused", "unavailable", "over_budget", "skipped"]

# Where an answer is from: the endpoint, the journal of an earlier run, another rollout of the
# group, which made the same call and paid for it, or the run that a counterfactual differs from.
Source = Literal["endpoint", "journal", "group", "original"]


@dataclass(frozen=True)
class Usage:
  """Tokens and money.

  Attributes:
    prompt_tokens: tokens read, those from a cache included.
    completion_tokens: tokens written, reasoning included.
    cost: dollars.
    cached_tokens: of the prompt tokens, those that the endpoint had in its cache.
    reasoning_tokens: of the completion tokens, those of reasoning.
    possible_cost: dollars that attempts without an answer may have cost on top, at most.
    estimated: whether token counts that the endpoint did not report are estimated.
  """

  prompt_tokens: int = 0
  completion_tokens: int = 0
  cost: float = 0.0
  cached_tokens: int = 0
  reasoning_tokens: int = 0
  possible_cost: float = 0.0
  estimated: bool = False

  def __add__(self, other: "Usage") -> "Usage":
    return Usage(
        self.prompt_tokens + other.prompt_tokens,
        self.completion_tokens + other.completion_tokens,
        self.cost + other.cost,
        self.cached_tokens + other.cached_tokens,
        self.reasoning_tokens + other.reasoning_tokens,
        self.possible_cost + other.possible_cost,
        self.estimated or other.estimated)

  @property
  def tokens(self) -> int:
    return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class CallRecord:
  """One worker call.

  Attributes:
    worker: the name of the worker that was asked.
    request: the JSON body sent last; never a key.
    response: the text the worker answered, "" if there was none.
    usage: tokens and money of all attempts.
    latency: seconds from the first attempt to the outcome.
    attempts: HTTP requests made; 0 for a call that was skipped, or answered from elsewhere.
    outcome: see `Outcome`.
    error: one line on what went wrong, None if nothing did.
    reasoning: what the worker thought, where the endpoint shows it. Never shown to other workers.
    possibly_billed: attempts without an answer that the endpoint may have billed all the same.
    source: see `Source`.
    fallback: the name of the worker that answered in its place, None for itself.
    overflow: whether it was refused as too long for the worker's window.
  """

  worker: str
  request: Mapping[str, Any]
  response: str
  usage: Usage
  latency: float
  attempts: int
  outcome: Outcome
  error: str | None = None
  reasoning: str = ""
  possibly_billed: int = 0
  source: Source = "endpoint"
  fallback: str | None = None
  overflow: bool = False

  @property
  def answers(self) -> bool:
    """Whether there is an answer, whole or not."""
    return self.outcome in ("answered", "truncated")

  def after(self, earlier: "CallRecord") -> "CallRecord":
    """This record, with what an earlier one of the same call has taken added."""
    return replace(
        self, usage=earlier.usage + self.usage, latency=earlier.latency + self.latency,
        attempts=earlier.attempts + self.attempts,
        possibly_billed=earlier.possibly_billed + self.possibly_billed)
