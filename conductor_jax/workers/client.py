"""The client of a pool: asks workers over the OpenAI chat protocol, and says what became of it.

What the endpoint does wrong is retried and, at last, recorded; it is never raised: failed
connections, timeouts, HTTP 408, 409, 429, redirects and 5xx, and successes without a usable body.
No second attempt follows HTTP 401 to 404, where the key, the account or the model name is at fault,
nor any other 4xx, which refuses the request. An attempt that may have been billed without an answer
is counted as such in the record, the budget and the journal. Nothing below retries on its own: the
HTTP session sends no POST twice.
"""

import asyncio
import contextlib
import json
import math
import random
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from conductor_jax.errors import UserError
from conductor_jax.workers.budget import Budget, BudgetError, Spending
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workers.endpoint import Endpoint, open_endpoints
from conductor_jax.workers.journal import Attempt, Journal, call_key
from conductor_jax.workers.pool import Pool
from conductor_jax.workers.response import Answer, Fault, read_answer, read_error
from conductor_jax.workers.tracing import Spans
from conductor_jax.workers.turns import FairSemaphore, Stagger

# Requests that are made in one turn of the event loop.
_AT_ONCE = 8
_GIVEN_UP = Fault("it was given up", possibly_billed=True)


@dataclass
class Activity:
  """What a client is doing, for a person who watches.

  Attributes:
    in_flight: requests on their way.
    calls: calls that have ended, by the worker's name.
    cost: dollars that they were billed.
  """

  in_flight: int = 0
  calls: dict[str, int] = field(default_factory=dict)
  cost: float = 0.0


@dataclass
class _Call:
  """One call of one worker, while it goes on."""

  endpoint: Endpoint
  request: Mapping[str, Any]
  data: bytes
  key: bytes
  seed: int | None
  group: Hashable
  most_tokens: int
  most_dollars: float
  began: float | None = None
  attempts: int = 0
  possibly_billed: int = 0
  possible_cost: float = 0.0
  usage: Usage = Usage()


class PoolClient:
  """Calls the workers of a pool; an async context manager.

  One HTTP session per distinct endpoint. Attempts of one worker run at most `limits.concurrent` at
  a time, those of all workers `max_in_flight`; groups of calls that wait take turns. A call that
  waits before its next attempt leaves its place to others.

  Attributes:
    pool: the workers.
    budget: what they may spend, and have.
    activity: what goes on.
    spans: what is traced of it.

  Args:
    pool: the workers.
    request_timeout: seconds one attempt may take, connecting and reading included.
    max_attempts: HTTP requests per call and worker at most.
    connect_timeout: seconds to establish a connection.
    read_timeout: seconds without a byte, once the request is sent; None for no other bound than
      `request_timeout`.
    max_in_flight: requests to all workers at once.
    backoff: seconds that bound the random wait before the second attempt; doubles every time.
    longest_wait: seconds that bound every wait, also one that the endpoint asks for.
    breaker_failures: attempts in a row without a sign of life after which an endpoint is taken to
      be down, and is left alone but for a probe now and then.
    breaker_cooldown: seconds until the first probe; doubles with every one that fails.
    fallbacks: whether workers' fallbacks are asked in their place.
    budget: None for no limits.
    journal: where every attempt is written before its result is used; None for nowhere.

  Raises:
    UserError: a missing or unusable key, URL or parameter, or a budget on a worker whose answers
      nothing bounds.
  """

  def __init__(
      self,
      pool: Pool,
      *,
      request_timeout: float,
      max_attempts: int,
      connect_timeout: float = 10.0,
      read_timeout: float | None = None,
      max_in_flight: int = 1024,
      backoff: float = 0.5,
      longest_wait: float = 60.0,
      breaker_failures: int = 10,
      breaker_cooldown: float = 1.0,
      fallbacks: bool = False,
      budget: Budget | None = None,
      journal: Journal | None = None,
  ):
    if max_attempts < 1:
      raise UserError(f"max_attempts must be at least 1, got {max_attempts}")
    self.pool = pool
    self.budget = Budget() if budget is None else budget
    self.activity = Activity()
    self.spans = Spans()
    self._max_attempts = max_attempts
    self._timeout = aiohttp.ClientTimeout(
        total=request_timeout, sock_connect=connect_timeout, sock_read=read_timeout)
    self._backoff = backoff
    self._longest_wait = longest_wait
    self._random = random.Random()
    self._journal = journal
    self._places = FairSemaphore(max_in_flight)
    self._stagger = Stagger(_AT_ONCE)
    endpoints = open_endpoints(
        pool, breaker_failures=breaker_failures, breaker_cooldown=breaker_cooldown,
        longest_wait=longest_wait)
    for spec in pool.workers:
      if self.budget.bounds_answers(spec.name) and spec.max_tokens is None:
        raise UserError(f"worker {spec.name!r}: nothing bounds the tokens of an answer, so no "
                        "budget can: set max_tokens in its sampling, or its context_length")
    by_name = {endpoint.spec.name: endpoint for endpoint in endpoints}
    # Who is asked for a worker, one after the other.
    self._asked = tuple(
        (endpoint, *(by_name[name] for name in endpoint.spec.fallbacks if fallbacks))
        for endpoint in endpoints)
    self._sessions: dict[str, aiohttp.ClientSession] = {}

  async def __aenter__(self) -> "PoolClient":
    for spec in self.pool.workers:
      if spec.base_url not in self._sessions:
        self._sessions[spec.base_url] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # the workers' own limits bind
            cookie_jar=aiohttp.DummyCookieJar(),
            # Each takes its time, request by request.
            skip_auto_headers=("Accept", "Accept-Encoding"),
            timeout=self._timeout)
    return self

  async def __aexit__(self, *exception) -> None:
    sessions, self._sessions = self._sessions, {}
    for session in sessions.values():
      await session.close()

  async def call(
      self, worker: int, messages: Sequence[Mapping[str, str]], *, seed: int | None = None,
      group: Hashable = None, deadline: float | None = None, rank: int = 0
  ) -> CallRecord:
    """Asks one worker, and its fallbacks if they are on and its endpoint is unavailable.

    Args:
      worker: its id in the pool.
      messages: the conversation, each with `role` and `content`.
      seed: which sample of the answer it is; sent as the request's `seed` where the worker's
        dialect has one.
      group: calls of the same one wait in one queue.
      deadline: the event loop's time at which the call is given up.
      rank: of calls that are made at the same moment, those with a higher one are sent first.

    Returns:
      The record; faults of the endpoint are in its outcome. A missing token count is estimated
      as one token per four characters.

    Raises:
      UserError: the journal cannot be written, or is replayed and does not know the call.
    """
    record = None
    *others, last = self._asked[worker]
    for endpoint in (*others, last):
      following = await self._ask(
          endpoint, messages, seed, group, deadline, rank, endpoint is last)
      record = following if record is None else _continued(record, following)
      if following.outcome != "unavailable":
        break
    calls = self.activity.calls
    calls[record.worker] = calls.get(record.worker, 0) + 1
    self.activity.cost += record.usage.cost if record.source == "endpoint" else 0.0
    return record

  async def _ask(
      self, endpoint: Endpoint, messages: Sequence[Mapping[str, str]], seed: int | None,
      group: Hashable, deadline: float | None, rank: int, last: bool
  ) -> CallRecord:
    """Asks one worker, as often as it takes."""
    await self._stagger.enter(rank)
    request = endpoint.request(messages, seed)
    data = json.dumps(request).encode()
    key = call_key(endpoint.spec.name, data, seed)
    if self._journal is not None:
      found = self._journal.find(key)
      if found is not None:
        return _replayed(endpoint, request, found)
    call = _Call(endpoint, request, data, key, seed, group, *endpoint.bound(request["messages"]))
    result = Fault("the workflow's deadline passed")
    if deadline is None:
      result = await self._attempts(call, last)
    elif deadline > asyncio.get_running_loop().time():  # a timeout would let an attempt begin
      with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
          result = await self._attempts(call, last)
    if not call.attempts:
      await self._note_unsent(call, result)
    return _record(call, result)

  async def _note_unsent(self, call: _Call, fault: Fault) -> None:
    """Notes a call that ended before its first request, so that a replay knows of it."""
    if self._journal is None or fault.outcome == "over_budget":
      return
    attempt = Attempt(
        call.key, call.endpoint.spec.name, call.seed, time.time(), call.data.decode(), 0, 0.0,
        outcome="not sent", seconds=0.0, error=call.endpoint.error_line(fault.error))
    self._journal.begin(attempt)
    self._journal.end(attempt)
    await self._journal.written()

  async def _attempts(self, call: _Call, last: bool) -> Answer | Fault:
    """Makes attempts until one settles the call, or there were enough of them."""
    for number in range(1, self._max_attempts + 1):
      result = await self._in_turn(call)
      if result is None:
        result = Fault(f"{call.endpoint.spec.base_url} is down: it failed again and again, and "
                       "once more when it was probed")
        continue
      if isinstance(result, Answer) or result.final:
        break
      if number < self._max_attempts:
        if not last and (result.wait or 0.0) > self._longest_wait:
          break  # another worker can be asked at once
        await asyncio.sleep(wait_before(
            number + 1, result.wait, self._random.random(), self._backoff, self._longest_wait))
    return result

  async def _in_turn(self, call: _Call) -> Answer | Fault | None:
    """Makes one attempt when its turn comes; None if the endpoint turns out to be down by then."""
    endpoint = call.endpoint
    while (admitted := await endpoint.breaker.admit()) != "no":
      up = None
      try:
        await endpoint.places.acquire(call.group)
        try:
          await self._places.acquire(call.group)
          try:
            # Those who waited for a place may have been let through before it went down.
            if admitted == "probe" or not endpoint.breaker.open:
              result = await self._attempt(call)
              if isinstance(result, Answer):
                up = True
              elif result.outcome != "over_budget":  # which says nothing of the endpoint
                up = not result.down
              return result
          finally:
            self._places.release()
        finally:
          endpoint.places.release()
      finally:
        endpoint.breaker.report(admitted, up)
    return None

  async def _attempt(self, call: _Call) -> Answer | Fault:
    """Makes one HTTP request: reserved and noted before, settled and noted after."""
    endpoint, name = call.endpoint, call.endpoint.spec.name
    if endpoint.requests is not None:
      await endpoint.requests.take(1)
    if endpoint.tokens is not None:
      await endpoint.tokens.take(call.most_tokens)
    try:
      await self.budget.reserve(name, call.most_dollars, call.most_tokens)
    except BudgetError as fault:
      return Fault(str(fault), "over_budget", final=True)
    call.began = time.monotonic() if call.began is None else call.began
    call.attempts += 1
    attempt = Attempt(
        call.key, name, call.seed, time.time(), call.data.decode(), call.most_tokens,
        call.most_dollars)
    if self._journal is not None:
      self._journal.begin(attempt)
    self.activity.in_flight += 1
    result: Answer | Fault = _GIVEN_UP
    try:
      with self.spans.request(call.request, dialect=endpoint.spec.dialect, host=endpoint.url.host,
                              port=endpoint.url.port) as span:
        result = await self._send(call, attempt)
        if span is not None:
          span.end(*_span_end(result))
    finally:
      self.activity.in_flight -= 1
      spent = _spent(call, result)
      self.budget.settle(name, call.most_dollars, call.most_tokens, spent)
      if endpoint.tokens is not None:
        endpoint.tokens.give_back(call.most_tokens - spent.tokens - spent.possible_tokens)
      call.possibly_billed += spent.possibly_billed
      call.possible_cost += spent.possible_cost
      call.usage = result.usage if call.attempts == 1 else call.usage + result.usage
      if self._journal is not None:
        _fill(attempt, endpoint, result, spent)
        self._journal.end(attempt)
    if self._journal is not None:
      await self._journal.written()
    return result

  async def _send(self, call: _Call, attempt: Attempt) -> Answer | Fault:
    """Sends the request and reads what comes back; notes the response in the attempt."""
    endpoint = call.endpoint
    try:
      async with self._sessions[endpoint.spec.base_url].post(
          endpoint.url, data=call.data, headers=endpoint.headers, allow_redirects=False
      ) as response:
        attempt.status = response.status
        payload = attempt.response = await response.read()
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
      # No connection, so nothing was sent.
      return Fault(f"{type(error).__name__}: {error}", down=True)
    except TimeoutError:
      return Fault("the endpoint did not answer in time", possibly_billed=True, down=True)
    except (aiohttp.ClientError, OSError) as error:
      return Fault(f"{type(error).__name__}: {error}", possibly_billed=True, down=True)
    if 200 <= response.status < 300:
      return read_answer(payload, endpoint.spec, len(call.data))
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


def _spent(call: _Call, result: Answer | Fault) -> Spending:
  usage = result.usage
  if isinstance(result, Fault) and result.possibly_billed:
    return Spending(1, possible_tokens=call.most_tokens, possible_cost=call.most_dollars,
                    possibly_billed=1)
  return Spending(1, usage.tokens, usage.cost, estimated=int(usage.estimated))


def _span_end(result: Answer | Fault) -> tuple[dict[str, Any], str | None]:
  """What a request's span is told at its end."""
  attributes = {"gen_ai.usage.input_tokens": result.usage.prompt_tokens,
                "gen_ai.usage.output_tokens": result.usage.completion_tokens}
  if isinstance(result, Answer):
    reasons = ("length" if result.truncated else "stop",)
    return {**attributes, "gen_ai.response.finish_reasons": reasons}, None
  return attributes, result.outcome


def _fill(attempt: Attempt, endpoint: Endpoint, result: Answer | Fault, spent: Spending) -> None:
  """Notes what became of an attempt."""
  usage = result.usage
  attempt.possible_tokens, attempt.possible_cost = spent.possible_tokens, spent.possible_cost
  attempt.seconds = time.time() - attempt.began
  attempt.prompt_tokens, attempt.completion_tokens = usage.prompt_tokens, usage.completion_tokens
  attempt.cached_tokens, attempt.reasoning_tokens = usage.cached_tokens, usage.reasoning_tokens
  attempt.cost, attempt.estimated = usage.cost, usage.estimated
  if attempt.response is not None:
    attempt.response = endpoint.hidden(attempt.response)
  if isinstance(result, Answer):
    attempt.outcome = "truncated" if result.truncated else "answered"
    if endpoint.key is not None:
      said = result.text + result.reasoning
      if endpoint.hidden(said) != said:
        attempt.response = _without_key(endpoint, result)
  else:
    attempt.outcome = ("refused" if result.outcome == "refused" else
                       "given up" if result is _GIVEN_UP else "failed")
    attempt.error = endpoint.error_line(result.error)


def _without_key(endpoint: Endpoint, answer: Answer) -> bytes:
  """A body that says the same; in the one that came, a key may be spread over the events."""
  choice = {
      "message": {"content": endpoint.hidden(answer.text),
                  "reasoning": endpoint.hidden(answer.reasoning)},
      "finish_reason": "length" if answer.truncated else "stop"}
  return json.dumps({"choices": [choice]}).encode()


def _record(call: _Call, result: Answer | Fault) -> CallRecord:
  """The record of a call that asked its endpoint."""
  latency = 0.0 if call.began is None else time.monotonic() - call.began
  usage = call.usage
  if call.possibly_billed:
    usage = replace(usage, possible_cost=call.possible_cost)
  return _made(
      call.endpoint, call.request, result, usage=usage, latency=latency,
      attempts=call.attempts, possibly_billed=call.possibly_billed)


def _replayed(endpoint: Endpoint, request: Mapping[str, Any], found: Attempt) -> CallRecord:
  """The record of a call that the journal knows."""
  if found.outcome in ("answered", "truncated"):
    result = read_answer(found.response, endpoint.spec, len(found.request))
  elif found.outcome == "refused":
    result = read_error(found.status, found.response, {}, endpoint.spec)
  else:
    result = Fault(found.error)
  usage = Usage(
      found.prompt_tokens, found.completion_tokens, found.cost, found.cached_tokens,
      found.reasoning_tokens, found.possible_cost, bool(found.estimated))
  return _made(
      endpoint, request, result, usage=usage, latency=found.seconds, attempts=0,
      source="journal")


def _made(
    endpoint: Endpoint, request: Mapping[str, Any], result: Answer | Fault, **rest
) -> CallRecord:
  if isinstance(result, Answer):
    return CallRecord(
        endpoint.spec.name, request, endpoint.hidden(result.text),
        outcome="truncated" if result.truncated else "answered",
        reasoning=endpoint.hidden(result.reasoning), **rest)
  return CallRecord(
      endpoint.spec.name, request, "", outcome=result.outcome,
      error=endpoint.error_line(result.error), overflow=result.overflow, **rest)


def _continued(first: CallRecord, following: CallRecord) -> CallRecord:
  """One record of a worker's call and that of the one who was asked in its place."""
  return replace(
      following, worker=first.worker,
      fallback=following.worker if following.answers else None,
      usage=first.usage + following.usage, latency=first.latency + following.latency,
      attempts=first.attempts + following.attempts,
      possibly_billed=first.possibly_billed + following.possibly_billed)
