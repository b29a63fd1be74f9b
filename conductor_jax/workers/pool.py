"""Who can be asked: workers behind OpenAI-compatible endpoints."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conductor_jax.errors import UserError


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
    capacity: "small", "medium" or "large".
    limits: bounds on its use: `concurrent` calls in flight at once.
    dialect: which family of request parameters the endpoint accepts.
    sampling: request parameters sent with every call, such as temperature and max_tokens.
  """

  name: str
  base_url: str
  model: str
  api_key_env: str | None = None
  price_in: float = 0.0
  price_out: float = 0.0
  capacity: str = "medium"
  limits: Mapping[str, int] = field(default_factory=lambda: {"concurrent": 64})
  dialect: str = "openai"
  sampling: Mapping[str, Any] = field(default_factory=dict)

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


@dataclass(frozen=True)
class Pool:
  """The workers on offer. A worker's id is its position."""

  workers: tuple[WorkerSpec, ...]

  def __len__(self) -> int:
    return len(self.workers)

  def subset(self, ids: Sequence[int]) -> "Pool":
    """The pool of the given workers, renumbered in the order given."""
    return Pool(tuple(self.workers[i] for i in ids))
