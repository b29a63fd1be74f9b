"""A pool behind a real server on the loopback interface."""

import asyncio
from collections import Counter

import pytest
from aiohttp import web

from conductor_jax.workers.pool import Pool, WorkerSpec


class Workers:
  """Five workers: one is always right where the answer is 4, one where it is 5, three are odd.

      0 four    "4"
      1 five    "5"
      2 seed    its request's seed
      3 dead    cannot be reached
      4 flaky   "4" to "Question 0?", HTTP 503 to any other

  Attributes:
    requests: per model, how often it was asked.
    bodies: every request, in the order of arrival.
    pool: the workers; 0 costs three times as much as 1.
  """

  names = ("four", "five", "seed", "dead", "flaky")

  async def start(self) -> None:
    self.requests = Counter()
    self.bodies = []
    application = web.Application()
    application.router.add_post("/v1/chat/completions", self._answer)
    self._runner = web.AppRunner(application)
    await self._runner.setup()
    site = web.TCPSite(self._runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
    # Nothing listens on port 1: connections are refused at once.
    urls = {"dead": "http://127.0.0.1:1/v1"}
    self.pool = Pool(tuple(
        WorkerSpec(name, urls.get(name, url), name, price_in=price, price_out=price)
        for name, price in zip(self.names, (300.0, 100.0, 100.0, 100.0, 100.0), strict=True)))

  async def _answer(self, request: web.Request) -> web.Response:
    body = await request.json()
    self.requests[body["model"]] += 1
    self.bodies.append(body)
    await asyncio.sleep(0.01 * (len(self.bodies) % 3))  # answers overtake each other
    if body["model"] == "flaky" and "Question 0?" not in body["messages"][0]["content"]:
      return web.Response(status=503)
    answer = {"four": "4", "five": "5", "flaky": "4"}.get(body["model"], str(body["seed"]))
    return web.json_response({
        "choices": [{"message": {"role": "assistant", "content": answer},
                     "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 8, "completion_tokens": 2}})

  async def stop(self) -> None:
    await self._runner.cleanup()


@pytest.fixture
async def workers():
  workers = Workers()
  await workers.start()
  yield workers
  await workers.stop()
