"""The client of a pool: asks workers over the OpenAI chat protocol, and says what became of it.

What the endpoint does wrong is retried and, at last, recorded; it is never raised: failed
connections, timeouts, HTTP 408, 409, 429, redirects and 5xx, and successes without a usable body.
No second attempt follows HTTP 401 to 404, or a 400 or 422 that says so, where the key, the account,
the model name or an option is at fault, nor any other 4xx, which refuses the request. An attempt
that may have been billed without an answer is counted as such in the record, the budget and the
journal. Nothing below retries on its own: the HTTP session sends no POST twice.
"""

import asyncio
import contextlib
import json
import math
import random
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import aiohttp

from conductor_jax.errors import UserError
from conductor_jax.workers.attempts import (
    GIVEN_UP,
    PendingCall,
    fill_in,
    record_of,
    replayed,
    span_end,
    spending_of,
)
from conductor_jax.workers.budget import Budget, BudgetError
from conductor_jax.workers.call import CallRecord
from conductor_jax.workers.endpoint import Endpoint, open_endpoints
from conductor_jax.workers.journal import Attempt, Journal, call_key
from conductor_jax.workers.pool import Pool
from conductor_jax.workers.response import Answer, Fault, read_answer, read_error
from conductor_jax.workers.tracing import Spans
from conductor_jax.workers.turns import FairSemaphore, Stagger

# Requests that are made in one turn of the event loop.
_AT_ONCE = 8


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
        longest_wait=longest_wait, with_keys=journal is None or journal.mode != "replay")
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
      record = following if record is None else replace(
          following.after(record), worker=record.worker,
          fallback=following.worker if following.answers else None)
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
    key = b""
    if self._journal is not None:
      key = call_key(endpoint.spec.name, data, seed)
      found = self._journal.find(key)
      if found is not None:
        return replayed(endpoint, request, found)
    call = PendingCall(
        endpoint, request, data, key, seed, group, *endpoint.bound(request["messages"]))
    result = Fault("the workflow's deadline passed")
    if deadline is None:
      result = await self._attempts(call, last)
    elif deadline > asyncio.get_running_loop().time():  # a timeout would let an attempt begin
      with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
          result = await self._attempts(call, last)
    if not call.attempts:
      await self._note_unsent(call, result)
    return record_of(call, result)

  async def _note_unsent(self, call: PendingCall, fault: Fault) -> None:
    """Notes a call that ended before its first request, so that a replay knows of it."""
    if self._journal is None or fault.outcome == "over_budget":
      return
    attempt = Attempt(
        call.key, call.endpoint.spec.name, call.seed, time.time(), call.data.decode(), 0, 0.0,
        outcome="not sent", seconds=0.0, error=call.endpoint.error_line(fault.error))
    self._journal.begin(attempt)
    self._journal.end(attempt)
    await self._journal.written()

  async def _attempts(self, call: PendingCall, last: bool) -> Answer | Fault:
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

  async def _in_turn(self, call: PendingCall) -> Answer | Fault | None:
    """Makes one attempt when its turn comes; None if the endpoint turns out to be down by then."""
    endpoint = call.endpoint
    while (admitted := await endpoint.breaker.admit()) != "no":
      up = None
      try:
        await endpoint.places.acquire(call.group)
        try:
          result = await self._at_pace(call, probe=admitted == "probe")
        finally:
          endpoint.places.release()
        if isinstance(result, Answer):
          up = True
        elif result is not None and result.outcome != "over_budget":  # says nothing of the endpoint
          up = not result.down
        if result is not None:
          return result
      finally:
        endpoint.breaker.report(admitted, up)
    return None

  async def _at_pace(self, call: PendingCall, *, probe: bool) -> Answer | Fault | None:
    """Makes one attempt when the worker's pace allows it; None if the endpoint is down by then."""
    endpoint, before = call.endpoint, call.tokens
    if endpoint.requests is not None:
      await endpoint.requests.take(1)
    if endpoint.tokens is not None:
      await endpoint.tokens.take(call.most_tokens)
    try:
      await self._places.acquire(call.group)
      try:
        # Those who waited may have been let through before it went down.
        return await self._attempt(call) if probe or not endpoint.breaker.open else None
      finally:
        self._places.release()
    finally:
      if endpoint.tokens is not None:
        endpoint.tokens.give_back(call.most_tokens - (call.tokens - before))

  async def _attempt(self, call: PendingCall) -> Answer | Fault:
    """Makes one HTTP request: reserved and noted before, settled and noted after."""
    endpoint, name = call.endpoint, call.endpoint.spec.name
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
    result: Answer | Fault = GIVEN_UP
    try:
      if self._journal is not None and self.budget.bounds_answers(name):
        # A process that is killed must not forget what it may owe.
        self._journal.write_begun()
        await self._journal.written()
      with self.spans.request(call.request, dialect=endpoint.spec.dialect, host=endpoint.url.host,
                              port=endpoint.url.port) as span:
        result = await self._send(call, attempt)
        if span is not None:
          span.end(*span_end(result))
    finally:
      self.activity.in_flight -= 1
      spent = spending_of(call, result)
      self.budget.settle(name, call.most_dollars, call.most_tokens, spent)
      call.tokens += spent.tokens + spent.possible_tokens
      call.possibly_billed += spent.possibly_billed
      call.possible_cost += spent.possible_cost
      call.usage = result.usage if call.attempts == 1 else call.usage + result.usage
      if self._journal is not None:
        fill_in(attempt, endpoint, result, spent)
        self._journal.end(attempt)
    if self._journal is not None:
      await self._journal.written()
    return result

  async def _send(self, call: PendingCall, attempt: Attempt) -> Answer | Fault:
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
