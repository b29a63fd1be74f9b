"""How fast requests reach an endpoint that allows so many in a minute."""

import asyncio
from collections import deque

from aiohttp import web

from conductor_jax.workers.pool import Limits
from tests.workers.endpoint import MESSAGES, Endpoint, client_of, completion, reply, serve, spec


class Limited(Endpoint):
  """Allows 50 requests in any second, and refuses others.

  Attributes:
    arrivals: when requests came, in the event loop's time.
    refused: how many.
  """

  def __init__(self):
    super().__init__(self.answer)
    self.arrivals = []
    self.refused = 0
    self._window = deque()

  async def answer(self, request):
    now = asyncio.get_running_loop().time()
    self.arrivals.append(now)
    while self._window and self._window[0] <= now - 1:
      self._window.popleft()
    if len(self._window) == 50:
      self.refused += 1
      return web.json_response({}, status=429)
    self._window.append(now)
    return web.json_response(completion())


async def test_50_requests_a_second_are_used_and_never_refused():
  async with serve(Limited()) as endpoint:
    paced = spec(endpoint.base_url, limits=Limits(requests_per_minute=3000))
    async with client_of(paced) as client:
      records = await asyncio.gather(*(client.call(0, MESSAGES) for _ in range(150)))
  assert endpoint.refused == 0
  assert {(record.outcome, record.attempts) for record in records} == {("answered", 1)}
  rate = 149 / (endpoint.arrivals[-1] - endpoint.arrivals[0])
  assert 47 <= rate <= 50


async def test_a_server_without_a_pace_would_refuse_them():
  async with serve(Limited()) as endpoint, client_of(
      spec(endpoint.base_url), max_attempts=1) as client:
    await asyncio.gather(*(client.call(0, MESSAGES) for _ in range(60)))
  assert endpoint.refused == 10


async def test_every_attempt_takes_its_turn(endpoint):
  endpoint.script = [reply({}, 503)]
  paced = spec(endpoint.base_url, limits=Limits(requests_per_minute=60 / 0.97 * 20))
  began = asyncio.get_running_loop().time()
  async with client_of(paced, max_attempts=5) as client:
    await client.call(0, MESSAGES)
  assert endpoint.hits == 5
  assert asyncio.get_running_loop().time() - began >= 4 * 0.05


async def test_a_pace_of_tokens_counts_those_that_were_used(endpoint):
  # At most 94 tokens are read and 100 written, which takes a second; 4 are, which takes 20 ms.
  usage = {"prompt_tokens": 3, "completion_tokens": 1}
  endpoint.script = [reply(completion(usage=usage))]
  paced = spec(endpoint.base_url, sampling={"max_tokens": 100},
               limits=Limits(tokens_per_minute=194 * 60 / 0.97))
  loop = asyncio.get_running_loop()
  began = loop.time()
  async with client_of(paced) as client, asyncio.timeout(10):
    for _ in range(21):
      await client.call(0, MESSAGES)
  assert endpoint.hits == 21
  assert loop.time() - began >= 20 * 4 / 194


async def test_calls_that_were_given_up_leave_their_time_to_others(endpoint):
  # One in half a second: were the fifty counted, the next would wait for 25 seconds.
  paced = spec(endpoint.base_url, limits=Limits(requests_per_minute=120 / 0.97))
  deadline = asyncio.get_running_loop().time() + 0.1
  async with client_of(paced) as client, asyncio.timeout(10):
    late = await asyncio.gather(*(
        client.call(0, MESSAGES, deadline=deadline) for _ in range(51)))
    assert [record.outcome for record in late].count("answered") == 1
    assert (await client.call(0, MESSAGES)).outcome == "answered"
  assert endpoint.hits == 2
  assert sum(record.attempts for record in late) == 1
