"""A process of its own: a chat endpoint that fails at random and keeps a ledger.

    python tests/workers/fault_server.py SEED FAULTS

FAULTS is the share of requests that fail, as many in each way of `KINDS`. It prints its port,
serves until its input ends, and then prints the ledger as JSON: requests by kind, and the tokens of
those that it answered "whole".
"""

import asyncio
import json
import random
import sys

# A connection reset, a refusal before any work, one after it, no answer at all, a body cut in half.
KINDS = ("reset", "429", "500", "stall", "half")


class Ledger:

  def __init__(self, seed: int, faults: float):
    self.random = random.Random(seed)
    self.faults = faults
    self.requests = dict.fromkeys(("whole", *KINDS), 0)
    self.prompt_tokens = self.completion_tokens = 0

  def draw(self) -> str:
    """What is done about the next request."""
    kind = self.random.choice(KINDS) if self.random.random() < self.faults else "whole"
    self.requests[kind] += 1
    return kind

  def answer(self) -> bytes:
    """The body of an answer, entered."""
    usage = {"prompt_tokens": self.random.randrange(1, 1000),
             "completion_tokens": self.random.randrange(1, 500)}
    self.prompt_tokens += usage["prompt_tokens"]
    self.completion_tokens += usage["completion_tokens"]
    message = {"role": "assistant", "content": "four"}
    return json.dumps({
        "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}).encode()


class Connection(asyncio.Protocol):

  def __init__(self, ledger: Ledger):
    self._ledger = ledger
    self._received = b""

  def connection_made(self, transport):
    self._transport = transport

  def data_received(self, data):
    self._received += data
    head, blank, body = self._received.partition(b"\r\n\r\n")
    if not blank:
      return
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    if len(body) < length:
      return
    self._received = body[length:]
    self._respond(self._ledger.draw())

  def _respond(self, kind: str) -> None:
    if kind == "whole":
      self._write(b"200 OK", self._ledger.answer())
    elif kind in ("429", "500"):
      self._write(kind.encode() + b" Fault", b"{}")
    elif kind == "reset":
      self._transport.abort()
    elif kind == "half":
      self._transport.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"choices": [')
      self._transport.close()

  def _write(self, status: bytes, body: bytes) -> None:
    self._transport.write(
        b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\nContent-Length: "
        + str(len(body)).encode() + b"\r\n\r\n" + body)


async def main(seed: int, faults: float) -> None:
  loop = asyncio.get_running_loop()
  ledger = Ledger(seed, faults)
  server = await loop.create_server(lambda: Connection(ledger), "127.0.0.1", 0, backlog=2048)
  print(server.sockets[0].getsockname()[1], flush=True)
  await loop.run_in_executor(None, sys.stdin.read)
  print(json.dumps({"requests": ledger.requests, "prompt_tokens": ledger.prompt_tokens,
                    "completion_tokens": ledger.completion_tokens}), flush=True)


if __name__ == "__main__":
  asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
