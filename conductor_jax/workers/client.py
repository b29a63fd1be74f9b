"""The client of a pool: asks workers over the OpenAI chat protocol, and says what became of it.

What the endpoint does wrong is retried and, at last, recorded; it is never raised: failed
connections, timeouts, HTTP 408, 409, 429, redirects and 5xx, and successes without a usable body.
No second attempt follows HTTP 401 to 404, where the key, the account or the model name is at fault,
nor any other 4xx, which refuses the request.
"""

import asyncio
import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from conductor_jax.errors import UserError
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workers.pool import Pool, WorkerSpec
from conductor_jax.workers.response import Answer, Fault, read_answer, read_error

_OWN_PARAMETERS = ("messages", "model", "seed", "stream")
_ERROR_LENGTH = 300
_SECRET_LENGTH = 16


@dataclass(frozen=True)
class _Endpoint:
  """Everything about a worker that no call changes."""

  spec: WorkerSpec
  url: URL
  headers: Mapping[str, str] = field(repr=False)
  key: str | None = field(repr=False)
  body: Mapping[str, Any]
  slots: asyncio.Semaphore


class PoolClient:
  """Calls the workers of a pool; an async context manager.

  One HTTP session per distinct endpoint. Attempts of one worker run at most `limits["concurrent"]`
  at a time; a call that waits before its next attempt leaves its place to others.

  Args:
    pool: the workers.
    request_timeout: seconds one attempt may take, connecting and reading included.
    max_attempts: HTTP requests per call at most.
    connect_timeout: seconds to establish a connection.
    backoff: seconds that bound the random wait before the second attempt; doubles every time.
    longest_wait: seconds that bound every wait, also one that the endpoint asks for.

  Raises:
    UserError: a missing or unusable key, URL, limit or parameter.
  """

  def __init__(
      self,
      pool: Pool,
      *,
      request_timeout: float,
      max_attempts: int,
      connect_timeout: float = 10.0,
      backoff: float = 0.5,
      longest_wait: float = 60.0,
  ):
    if max_attempts < 1:
      raise UserError(f"max_attempts must be at least 1, got {max_attempts}")
    self.pool = pool
    self._max_attempts = max_attempts
    self._timeout = aiohttp.ClientTimeout(total=request_timeout, sock_connect=connect_timeout)
    self._backoff = backoff
    self._longest_wait = longest_wait
    self._random = random.Random()
    self._endpoints = tuple(map(_endpoint, pool.workers))
    self._sessions: dict[str, aiohttp.ClientSession] = {}

  async def __aenter__(self) -> "PoolClient":
    for spec in self.pool.workers:
      if spec.base_url not in self._sessions:
        self._sessions[spec.base_url] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # the workers' own limits bind
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout)
    return self

  async def __aexit__(self, *exception) -> None:
    sessions, self._sessions = self._sessions, {}
    for session in sessions.values():
      await session.close()

  async def call(
      self, worker: int, messages: Sequence[Mapping[str, str]], *, seed: int | None = None
  ) -> CallRecord:
    """Asks one worker.

    Args:
      worker: its id in the pool.
      messages: the conversation, each with `role` and `content`.
      seed: the request's `seed`, None to send none.

    Returns:
      The record; faults of the endpoint are in its outcome. A missing token count is estimated
      as one token per four characters. Failed attempts count in `attempts`, not in `usage`.
    """
    endpoint = self._endpoints[worker]
    request = {**endpoint.body, "messages": messages}
    if seed is not None:
      request["seed"] = seed
    data = json.dumps(request).encode()
    started = None
    for attempt in range(1, self._max_attempts + 1):
      async with endpoint.slots:
        started = started or time.monotonic()
        result = await self._attempt(endpoint, data)
      if isinstance(result, Answer) or result.final:
        break
      if attempt < self._max_attempts:
        jitter = self._random.random()
        await asyncio.sleep(
            wait_before(attempt + 1, result.wait, jitter, self._backoff, self._longest_wait))
    latency = time.monotonic() - started
    return _record(endpoint, request, result, latency, attempt)

  async def _attempt(self, endpoint: _Endpoint, data: bytes) -> Answer | Fault:
    """Makes one HTTP request."""
    try:
      async with self._sessions[endpoint.spec.base_url].post(
          endpoint.url, data=data, headers=endpoint.headers, allow_redirects=False) as response:
        payload = await response.read()
    except TimeoutError:
      return Fault("the endpoint did not answer in time")
    except (aiohttp.ClientError, OSError) as error:
      return Fault(f"{type(error).__name__}: {error}")
    if 200 <= response.status < 300:
      return read_answer(payload, endpoint.spec, len(data))
    return read_error(response.status, payload, response.headers, endpoint.spec)


def wait_before(
    attempt: int, asked: float | None, jitter: float, backoff: float, longest: float
) -> float:
  """Seconds to wait before an attempt (the second, third, ...).

  Args:
    attempt: which attempt.
    asked: what the endpoint asks for, None if it does not.
    jitter: uniform in [0, 1); scales the wait where nothing is asked for ("full jitter").
    backoff: the bound before the second attempt, doubled from one attempt to the next.
    longest: bounds every wait.
  """
  if asked is not None:
    return min(asked, longest)
  return jitter * min(longest, math.ldexp(backoff, attempt - 2))


def _endpoint(spec: WorkerSpec) -> _Endpoint:
  """Checks a worker's settings, and builds what all its requests share."""
  key = spec.api_key()
  if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
    raise UserError(f"worker {spec.name!r}: the key in {spec.api_key_env} holds blanks, line breaks"
                    " or other characters that no HTTP header may carry")
  try:
    url = URL(spec.base_url.rstrip("/") + "/chat/completions")
  except ValueError:
    url = URL()
  if url.scheme not in ("http", "https") or not url.host:
    raise UserError(
        f"worker {spec.name!r}: base_url must be like https://host/v1, got {spec.base_url!r}")
  concurrent = spec.limits.get("concurrent", 0)
  if concurrent < 1:
    raise UserError(
        f'worker {spec.name!r}: limits must hold "concurrent", at least 1, got {dict(spec.limits)}')
  if own := [name for name in _OWN_PARAMETERS if name in spec.sampling]:
    raise UserError(f"worker {spec.name!r}: sampling may not set {own[0]}, the client does")
  headers = {"Content-Type": "application/json"}
  if key is not None:
    headers["Authorization"] = f"Bearer {key}"
  return _Endpoint(
      spec=spec,
      url=url,
      headers=headers,
      key=key,
      body={"model": spec.model, **spec.sampling},
      slots=asyncio.Semaphore(concurrent))


def _record(
    endpoint: _Endpoint, request: Mapping[str, Any], result: Answer | Fault, latency: float,
    attempts: int,
) -> CallRecord:
  name = endpoint.spec.name
  if isinstance(result, Answer):
    outcome = "truncated" if result.truncated else "answered"
    # A placeholder key such as "EMPTY" may well be a word of the answer.
    secret = endpoint.key if endpoint.key and len(endpoint.key) >= _SECRET_LENGTH else None
    text = _redacted(result.text, secret)
    return CallRecord(name, request, text, result.usage, latency, attempts, outcome)
  error = " ".join(_redacted(result.error, endpoint.key).split())[:_ERROR_LENGTH]
  return CallRecord(name, request, "", Usage(), latency, attempts, result.outcome, error)


def _redacted(text: str, key: str | None) -> str:
  """Hides the key: endpoints quote it in their errors."""
  return text.replace(key, "[key]") if key else text
