"""A chat endpoint that does nothing but wait, for benchmarks of those who ask it.

    python -m experiments.benchmarks.chat_server --latency=0.1 --jitter=0.2

It prints its port and answers every request with the same 200 words. How long that takes is drawn
from the request's seed, so that who knows the seeds knows the times. With `--per_second` it answers
HTTP 429 to what is more than so many requests in any second. `GET /counts` tells the requests it
answered and those it refused. It reads of HTTP only what it must: it is to be faster than any
client.
"""

import asyncio
import json
import random
import re
import subprocess
import sys
from collections import deque

from absl import app, flags

_LATENCY = flags.DEFINE_float("latency", 0.0, "Seconds that an answer takes.")
_JITTER = flags.DEFINE_float("jitter", 0.0, "Share of it that it may take more or less.")
_PER_SECOND = flags.DEFINE_integer("per_second", 0, "Requests in any second; 0 for any number.")

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_SEED = re.compile(rb'"seed": ?(\d+)')
_ANSWER = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "word " * 200}}],
    "usage": {"prompt_tokens": 400, "completion_tokens": 200, "total_tokens": 600}}


def _http(status: str, body: object) -> bytes:
  data = json.dumps(body).encode()
  return (f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
          f"Content-Length: {len(data)}\r\n\r\n").encode() + data


_OK = _http("200 OK", _ANSWER)
_TOO_MANY = _http("429 Too Many Requests", {"error": {"message": "slow down"}})


def latency_of(seed: int, latency: float, jitter: float) -> float:
  """Seconds that the answer to a request of this seed takes."""
  return latency * (1 + jitter * random.Random(seed).uniform(-1, 1))


class _Chat(asyncio.Protocol):
  """One connection."""

  answered = refused = 0
  recent: deque[float] = deque()

  def connection_made(self, transport):
    self._transport, self._received = transport, b""

  def data_received(self, data):
    self._received += data
    while (end := self._received.find(b"\r\n\r\n")) >= 0:
      length = _LENGTH.search(self._received, 0, end)
      stop = end + 4 + (int(length[1]) if length else 0)
      if len(self._received) < stop:
        return
      request, self._received = self._received[:stop], self._received[stop:]
      self._answer(request)

  def _answer(self, request: bytes) -> None:
    counts, loop = type(self), asyncio.get_running_loop()
    if request.startswith(b"GET"):
      self._transport.write(_http(
          "200 OK", {"answered": counts.answered, "refused": counts.refused}))
      return
    if _PER_SECOND.value:
      while counts.recent and loop.time() - counts.recent[0] >= 1:
        counts.recent.popleft()
      if len(counts.recent) >= _PER_SECOND.value:
        counts.refused += 1
        self._transport.write(_TOO_MANY)
        return
      counts.recent.append(loop.time())
    counts.answered += 1
    if not _LATENCY.value:
      self._transport.write(_OK)
      return
    seed = _SEED.search(request)
    wait = latency_of(int(seed[1]) if seed else 0, _LATENCY.value, _JITTER.value)
    loop.call_later(wait, self._transport.write, _OK)


class ChatServer:
  """The server in a process of its own; a context manager.

  Attributes:
    base_url: what a worker's `base_url` takes.
  """

  def __init__(self, *, latency: float = 0.0, jitter: float = 0.0, per_second: int = 0):
    self._process = subprocess.Popen(
        [sys.executable, "-m", "experiments.benchmarks.chat_server", f"--latency={latency}",
         f"--jitter={jitter}", f"--per_second={per_second}"], stdout=subprocess.PIPE, text=True)
    self.base_url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/v1"

  def __enter__(self) -> "ChatServer":
    return self

  def __exit__(self, *_) -> None:
    self._process.kill()
    self._process.wait()
    self._process.stdout.close()


async def _serve() -> None:
  server = await asyncio.get_running_loop().create_server(_Chat, "127.0.0.1", 0, backlog=4096)
  print(server.sockets[0].getsockname()[1], flush=True)
  await server.serve_forever()


def main(arguments: list[str]) -> None:
  if len(arguments) > 1:
    raise app.UsageError(f"unknown arguments: {' '.join(arguments[1:])}")
  asyncio.run(_serve())


if __name__ == "__main__":
  app.run(main)
