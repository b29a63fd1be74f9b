"""A worker's endpoint, checked: what all requests to it share, and who waits for it."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from yarl import URL

from conductor_jax.errors import UserError
from conductor_jax.workers.breaker import Breaker
from conductor_jax.workers.dialects import Dialect, accepted_messages, dialect, request_options
from conductor_jax.workers.pool import Pool, WorkerSpec
from conductor_jax.workers.turns import FairSemaphore, Pace

_OWN_PARAMETERS = ("messages", "model", "n", "seed", "stream", "stream_options")
_ERROR_LENGTH = 300
# A placeholder key such as "EMPTY" may well be a word of an answer.
_SECRET_LENGTH = 16
# What chat templates put around a message, and around all of them, in tokens, with room to spare.
_TOKENS_PER_MESSAGE, _TOKENS_PER_CHAT = 16, 64

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Endpoint:
  """Everything about a worker that no call changes.

  Attributes:
    spec: the worker.
    url: of chat completions.
    headers: of every request.
    key: None where none is needed.
    spellings: the key, and how it may stand in JSON or in an address.
    dialect: what it accepts.
    body: the fields of every request.
    chat_tokens: that a prompt has beside its messages, at most.
    places: its attempts in flight.
    requests: their pace, None for any.
    tokens: the pace of their tokens, None for any.
    breaker: of its `base_url`.
  """

  spec: WorkerSpec
  url: URL
  headers: Mapping[str, str] = field(repr=False)
  key: str | None = field(repr=False)
  spellings: tuple[str, ...] = field(repr=False)
  dialect: Dialect
  body: Mapping[str, Any]
  chat_tokens: int
  places: FairSemaphore
  requests: Pace | None
  tokens: Pace | None
  breaker: Breaker

  def request(self, messages: Sequence[Mapping[str, str]], seed: int | None) -> dict[str, Any]:
    """The JSON body that asks for one sample of an answer."""
    request = {**self.body, "messages": accepted_messages(self.dialect, messages)}
    if seed is not None and "seed" in self.dialect.options:
      request["seed"] = seed
    return request

  def bound(self, messages: Sequence[Mapping[str, str]]) -> tuple[int, float]:
    """The most tokens and dollars that one request may take, as no token is less than a byte.

    Where nothing bounds the answer, it is that of the prompt alone.
    """
    spec = self.spec
    prompt = self.chat_tokens + sum(
        _TOKENS_PER_MESSAGE + len(message["content"].encode(errors="replace"))
        for message in messages)
    completion = spec.max_tokens or 0
    price_in = max(spec.price_in, spec.price_cached or 0.0)
    price_out = max(spec.price_out, spec.price_reasoning or 0.0)
    return prompt + completion, (prompt * price_in + completion * price_out) / 1e6

  def hidden(self, text: str | bytes) -> str | bytes:
    """The text, or a response's body, without the key, if that is long enough to be no word."""
    if self.key is None or len(self.key) < _SECRET_LENGTH:
      return text
    for spelling in self.spellings:
      if isinstance(text, bytes):
        text = text.replace(spelling.encode(), b"[key]")
      else:
        text = text.replace(spelling, "[key]")
    return text

  def error_line(self, error: str) -> str:
    """An error as one line without the key: endpoints quote it."""
    for spelling in self.spellings:
      error = error.replace(spelling, "[key]")
    return " ".join(error.split())[:_ERROR_LENGTH]


def open_endpoints(
    pool: Pool, *, breaker_failures: int, breaker_cooldown: float, longest_wait: float,
    with_keys: bool
) -> tuple[Endpoint, ...]:
  """The endpoints of a pool; arguments as in `PoolClient`, and whether keys are needed.

  Options that a worker's dialect does not take are logged.

  Raises:
    UserError: a missing or unusable key, URL or parameter.
  """
  breakers: dict[str, Breaker] = {}
  for spec in pool.workers:
    breakers.setdefault(spec.base_url, Breaker(
        failures=breaker_failures, cooldown=breaker_cooldown, longest=longest_wait))
  return tuple(
      _open(spec, spec.api_key() if with_keys else None, breakers[spec.base_url])
      for spec in pool.workers)


def _open(spec: WorkerSpec, key: str | None, breaker: Breaker) -> Endpoint:
  if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
    raise UserError(f"worker {spec.name!r}: the key in {spec.api_key_env} holds blanks, line breaks"
                    " or other characters that no HTTP header may carry")
  # Of what stands there, also where it is no address at all.
  if any(mark in spec.base_url for mark in "@?#"):
    raise UserError(f"worker {spec.name!r}: base_url holds a name, a password or a query, which "
                    "would show up in logs: put the key in an environment variable and name that "
                    "in api_key_env")
  try:
    url = URL(spec.base_url.rstrip("/") + "/chat/completions")
  except ValueError:
    url = URL()
  if url.scheme not in ("http", "https") or not url.host:
    raise UserError(
        f"worker {spec.name!r}: base_url must be like https://host/v1, got {spec.base_url!r}")
  if own := [name for name in _OWN_PARAMETERS if name in spec.sampling]:
    raise UserError(f"worker {spec.name!r}: sampling may not set {own[0]}, the client does")
  family = dialect(spec.dialect)
  options, left_out = request_options(family, spec.sampling)
  for line in left_out:
    _log.warning("worker %r: %s", spec.name, line)
  body = {"model": spec.model, **options}
  if spec.stream:
    body |= {"stream": True, "stream_options": {"include_usage": True}}
  headers = {"Content-Type": "application/json", "User-Agent": "conductor_jax"}
  if key is not None:
    headers["Authorization"] = f"Bearer {key}"
  limits, schema = spec.limits, body.get("response_format")
  return Endpoint(
      spec=spec, url=url, headers=headers, key=key, spellings=_spellings(key), dialect=family,
      body=body,
      # Endpoints put the schema of an answer into the prompt.
      chat_tokens=_TOKENS_PER_CHAT + (len(json.dumps(schema)) if schema else 0),
      places=FairSemaphore(limits.concurrent),
      requests=Pace(limits.requests_per_minute) if limits.requests_per_minute else None,
      tokens=Pace(limits.tokens_per_minute) if limits.tokens_per_minute else None,
      breaker=breaker)


def _spellings(key: str | None) -> tuple[str, ...]:
  """How an endpoint may write a key; most keys are letters, digits, hyphens, and written so."""
  if key is None:
    return ()

  def escaped(form: str) -> str:
    return "".join(c if c.isalnum() or c in "-._" else form.format(ord(c)) for c in key)

  return tuple(dict.fromkeys((
      key, json.dumps(key)[1:-1], key.replace("/", "\\/"), escaped("\\u{:04x}"),
      escaped("\\u{:04X}"), escaped("\\u{:04X}").replace("\\u002F", "/"), quote(key),
      quote(key, safe=""))))
