"""A chat endpoint on the loopback interface that behaves as scripted, and clients that ask it."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web

from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.pool import Pool, WorkerSpec

MESSAGES = [{"role": "user", "content": "What is 2 + 2?"}]
# Nothing listens on port 1: connections are refused at once.
DEAD = "http://127.0.0.1:1/v1"

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


def completion(
    content: Any = "four", finish_reason: str | None = "stop", *,
    message: dict[str, Any] | None = None, **body: Any) -> dict[str, Any]:
  """The body of an answer, with 1000 prompt and 500 completion tokens unless told otherwise."""
  message = {"role": "assistant", "content": content, **(message or {})}
  choices = [{"index": 0, "message": message, "finish_reason": finish_reason}]
  usage = {"prompt_tokens": 1000, "completion_tokens": 500}
  return {"choices": choices, "usage": usage, **body}


def reply(
    body: Any, status: int = 200, headers: dict[str, str] | None = None, *,
    seconds: float = 0.0) -> Behaviour:
  """Answers with a body, an object as JSON and bytes as they are, after so many seconds."""
  data = body if isinstance(body, bytes) else json.dumps(body).encode()

  async def behave(request):
    if seconds:
      await asyncio.sleep(seconds)
    return web.Response(body=data, status=status, headers=headers)

  return behave


def raw(data: bytes) -> Behaviour:
  """Writes bytes in place of an HTTP response, and closes the connection."""

  async def behave(request):
    request.transport.write(data)
    request.transport.close()
    return web.Response()

  return behave


async def reset(request):
  request.transport.abort()
  return web.Response()


async def hang(request):
  await asyncio.sleep(30)


async def break_off(request):
  response = web.StreamResponse(headers={"Content-Length": "1000"})
  await response.prepare(request)
  await response.write(b'{"choices"')
  request.transport.abort()
  return response


class Endpoint:
  """A chat endpoint that behaves as scripted, request by request; the last entry repeats.

  Attributes:
    script: its behaviours.
    bodies, headers: of every request, in the order of arrival.
    in_flight, most_in_flight: requests that it is working on, and the most it ever was.
    disconnected: set once a client has gone away before its answer was there.
    base_url: while it is served.
  """

  def __init__(self, *script: Behaviour):
    self.script = list(script) or [reply(completion())]
    self.bodies: list[dict[str, Any]] = []
    self.headers = []
    self.in_flight = 0
    self.most_in_flight = 0
    self.disconnected = asyncio.Event()
    self.base_url = ""

  @property
  def hits(self) -> int:
    return len(self.bodies)

  @property
  def requests(self) -> Counter[str]:
    """Per model, how often it was asked."""
    return Counter(body["model"] for body in self.bodies)

  def behaviour(self, body: dict[str, Any]) -> Behaviour:
    """What it does about the request that has just arrived."""
    return self.script[min(self.hits, len(self.script)) - 1]

  async def handle(self, request: web.Request) -> web.StreamResponse:
    body = await request.json()
    self.bodies.append(body)
    self.headers.append(request.headers)
    self.in_flight += 1
    self.most_in_flight = max(self.most_in_flight, self.in_flight)
    try:
      return await self.behaviour(body)(request)
    except asyncio.CancelledError:
      self.disconnected.set()
      raise
    finally:
      self.in_flight -= 1


@contextlib.asynccontextmanager
async def serve(endpoint: Endpoint) -> AsyncIterator[Endpoint]:
  """Serves an endpoint at its `base_url`."""
  app = web.Application()
  app.router.add_post("/v1/chat/completions", endpoint.handle)
  runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
  await runner.setup()
  try:
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield endpoint
  finally:
    await runner.cleanup()


def spec(base_url: str, **changes: Any) -> WorkerSpec:
  """A worker at $2 and $10 per million tokens: `completion` costs $0.007."""
  fields = {"name": "solver", "model": "m", "price_in": 2.0, "price_out": 10.0, **changes}
  return WorkerSpec(base_url=base_url, **fields)


def client_of(*specs: WorkerSpec, **changes: Any) -> PoolClient:
  """A client that makes three attempts and hardly waits between them."""
  options = {"request_timeout": 5.0, "max_attempts": 3, "backoff": 0.001, "longest_wait": 0.01,
             **changes}
  return PoolClient(Pool(specs), **options)


async def call(endpoint: Endpoint, *, client: dict[str, Any] | None = None,
               seed: int | None = None, deadline: float | None = None, **changes: Any):
  """The record of one call of a worker of this endpoint, with a client of its own."""
  async with client_of(spec(endpoint.base_url, **changes), **(client or {})) as pool_client:
    if deadline is not None:
      deadline += asyncio.get_running_loop().time()
    return await pool_client.call(0, MESSAGES, seed=seed, deadline=deadline)
