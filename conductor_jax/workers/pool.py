"""Who can be asked: workers behind OpenAI-compatible endpoints."""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from conductor_jax.errors import UserError
from conductor_jax.workers.dialects import dialect

CAPACITIES = ("small", "medium", "large")
# What stands in its place may be the key.
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


@dataclass(frozen=True)
class Limits:
  """Bounds on the use of a worker.

  Attributes:
    concurrent: requests in flight at once.
    requests_per_minute: None for no limit. Requests are spread evenly, not sent in bursts.
    tokens_per_minute: read and written; None for no limit.
  """

  concurrent: int = 64
  requests_per_minute: float | None = None
  tokens_per_minute: float | None = None


@dataclass(frozen=True)
class WorkerSpec:
  """One worker.

  Attributes:
    name: what people call it in reports; never shown to the conductor.
    base_url: the endpoint up to and including `/v1`.
    model: the model name sent to the endpoint.
    api_key_env: the environment variable that holds the key, None where no key is needed.
    price_in: price per million prompt tokens, in dollars.
    price_out: price per million completion tokens, in dollars.
    price_cached: price per million prompt tokens that the endpoint had in its cache; None for
      price_in.
    price_reasoning: price per million completion tokens of reasoning; None for price_out.
    capacity: "small", "medium" or "large".
    context_length: tokens of prompt and completion together, None where it is not known.
    limits: bounds on its use.
    dialect: which family of request parameters and chats the endpoint accepts, see `dialects`.
    sampling: request parameters sent with every call, such as temperature and max_tokens.
    stream: whether answers are streamed, which some endpoints demand of long ones.
    fallbacks: names of workers of the pool that are asked in its place, one after the other, when
      its endpoint is unavailable.

  Raises:
    UserError: a value that cannot be; names the worker, the field, its value and what it may be.
  """

  name: str
  base_url: str
  model: str
  api_key_env: str | None = None
  price_in: float = 0.0
  price_out: float = 0.0
  price_cached: float | None = None
  price_reasoning: float | None = None
  capacity: str = "medium"
  context_length: int | None = None
  limits: Limits = Limits()
  dialect: str = "openai"
  sampling: Mapping[str, Any] = field(default_factory=dict)
  stream: bool = False
  fallbacks: tuple[str, ...] = ()

  def __post_init__(self):
    def refuse(key: str, value: Any, remedy: str) -> None:
      raise UserError(f"worker {self.name!r}: {key}={value!r} {remedy}")

    if not self.name:
      refuse("name", self.name, "must not be empty")
    try:
      dialect(self.dialect)
    except UserError as fault:
      raise UserError(f"worker {self.name!r}: {fault}") from fault
    if self.api_key_env is not None and not _VARIABLE.fullmatch(self.api_key_env):
      raise UserError(f"worker {self.name!r}: api_key_env must be the name of an environment "
                      "variable that holds the key")
    if self.capacity not in CAPACITIES:
      refuse("capacity", self.capacity, f"must be one of {', '.join(CAPACITIES)}")
    for key in ("price_in", "price_out", "price_cached", "price_reasoning"):
      price = getattr(self, key)
      if price is not None and not (price >= 0 and math.isfinite(price)):
        refuse(key, price, "must be 0 or above, in dollars per million tokens")
    if not self.limits.concurrent >= 1:
      refuse("limits.concurrent", self.limits.concurrent, "must be 1 or above")
    for key in ("requests_per_minute", "tokens_per_minute"):
      rate = getattr(self.limits, key)
      if rate is not None and not rate > 0:
        refuse(f"limits.{key}", rate, "must be above 0, or None for no limit")
    try:
      json.dumps(dict(self.sampling), allow_nan=False)
    except (TypeError, ValueError):
      refuse("sampling", self.sampling, "must be what JSON can hold")
    longest = self.sampling.get("max_tokens", 1)
    if type(longest) is not int or longest < 1:
      refuse("sampling.max_tokens", longest, "must be a whole number above 0")
    if self.context_length is not None and self.context_length <= longest:
      refuse("context_length", self.context_length,
             f"must be above sampling.max_tokens={longest}, for it holds the question too")

  def api_key(self) -> str | None:
    """Reads the key from the environment.

    Raises:
      UserError: the variable is not set. The message names the variable, never a value.
    """
    if self.api_key_env is None:
      return None
    key = os.environ.get(self.api_key_env)
    if not key:
      raise UserError(
          f"worker {self.name!r} needs an API key: set the environment variable {self.api_key_env}")
    return key

  def cost(self, prompt: int, completion: int, cached: int = 0, reasoning: int = 0) -> float:
    """Dollars for so many tokens; cached are part of the prompt, reasoning of the completion."""
    price_cached = self.price_in if self.price_cached is None else self.price_cached
    price_reasoning = self.price_out if self.price_reasoning is None else self.price_reasoning
    return ((prompt - cached) * self.price_in + cached * price_cached
            + (completion - reasoning) * self.price_out + reasoning * price_reasoning) / 1e6

  @property
  def max_tokens(self) -> int | None:
    """The most tokens that an answer may have, None where nothing bounds it."""
    return self.sampling.get("max_tokens", self.context_length)


@dataclass(frozen=True)
class Pool:
  """The workers on offer. A worker's id is its position.

  Raises:
    UserError: two workers share a name, or a fallback is none of the others.
  """

  workers: tuple[WorkerSpec, ...]

  def __post_init__(self):
    names = [worker.name for worker in self.workers]
    for worker in self.workers:
      if names.count(worker.name) > 1:
        raise UserError(f"{names.count(worker.name)} workers are called {worker.name!r}: give each "
                        "a name of its own")
      others = [name for name in names if name != worker.name]
      if not set(worker.fallbacks) <= set(others):
        raise UserError(f"worker {worker.name!r}: fallbacks={worker.fallbacks!r} must be some of "
                        f"the others, {', '.join(others) or 'and there are none'}")

  def __len__(self) -> int:
    return len(self.workers)

  def next_cheaper(self, worker: int, among: Sequence[int]) -> int | None:
    """The dearest of the workers that cost less than this one, None where none does.

    Args:
      worker: its id.
      among: the ids of those that may take its place. Of several that cost the same the first does.
    """
    def price(worker: int) -> float:
      # As many tokens read as written: what a call costs is not known before.
      return self.workers[worker].price_in + self.workers[worker].price_out

    cheaper = [other for other in among if price(other) < price(worker)]
    return max(cheaper, key=price, default=None)

  def subset(self, ids: Sequence[int]) -> "Pool":
    """The pool of the given workers, renumbered in the order given.

    Fallbacks that are not among them are left out, for they are not on offer.
    """
    workers = [self.workers[i] for i in ids]
    names = {worker.name for worker in workers}
    return Pool(tuple(
        replace(worker, fallbacks=tuple(name for name in worker.fallbacks if name in names))
        for worker in workers))
