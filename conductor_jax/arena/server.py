"""A local server that speaks the OpenAI chat protocol.

    echo '{"seed": 0}' | python -m conductor_jax.arena.server package.module:function --port=8000

The factory `package.module:function` is called with the JSON object on the first line of standard
input as keyword arguments and returns one `Answerer` per model name. Once the socket listens, one
JSON line `{"port": N}` is printed. The server runs until standard input ends, so it never outlives
the process that holds the other end, or until SIGTERM.

Tokens are counted by one cheap rule: the number of whitespace-separated words.
"""

import argparse
import asyncio
import contextlib
import errno
import importlib
import itertools
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from conductor_jax.errors import UserError

# (messages, seed) -> answer. The seed is the request's, 0 where it has none.
Answerer = Callable[[list[dict[str, Any]], int], str]

# The loopback interface: whoever can reach the server may use it.
HOST = "127.0.0.1"
_MAX_BODY_BYTES = 16 * 2**20


class _RequestError(Exception):
  """A request the server refuses; the message goes to the client."""


def _json(body: Any, status: int = 200) -> web.Response:
  return web.Response(
      body=json.dumps(body).encode(), status=status, content_type="application/json")


def _error(status: int, message: str, kind: str, code: str | None = None) -> web.Response:
  return _json({"error": {"message": message, "type": kind, "param": None, "code": code}}, status)


def _is_count(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _checked(payload: Any) -> tuple[str, list[dict[str, Any]], int, int | None]:
  """Reads model, messages, seed and token limit of a request body."""
  if not isinstance(payload, dict):
    raise _RequestError("the body must be a JSON object")
  if payload.get("stream"):
    raise _RequestError("streaming is not supported: send stream=false")
  if payload.get("n") not in (None, 1):
    raise _RequestError("n must be 1")
  model = payload.get("model")
  if not isinstance(model, str):
    raise _RequestError("model must be a string")
  messages = payload.get("messages")
  if not isinstance(messages, list) or not messages:
    raise _RequestError("messages must be a list with at least one message")
  for index, message in enumerate(messages):
    if not (isinstance(message, dict) and isinstance(message.get("role"), str)
            and isinstance(message.get("content"), str)):
      raise _RequestError(f"messages[{index}] must have a string role and a string content")
  seed = payload.get("seed")
  if seed is None:
    seed = 0
  elif not isinstance(seed, int) or isinstance(seed, bool):
    raise _RequestError("seed must be an integer")
  limit = payload.get("max_completion_tokens")
  if limit is None:
    limit = payload.get("max_tokens")
  if limit is not None and not _is_count(limit):
    raise _RequestError("max_tokens must be a positive integer")
  return model, messages, seed, limit


def _handler(answerers: Mapping[str, Answerer], latency: float):
  """The request handler: one function, no router and no middleware, since it is the hot path."""
  created = int(time.time())
  models = {"object": "list", "data": [
      {"id": name, "object": "model", "created": created, "owned_by": "conductor_jax"}
      for name in answerers]}
  numbers = itertools.count()

  def complete(body: bytes) -> web.Response:
    try:
      model, messages, seed, limit = _checked(json.loads(body))
    except (ValueError, RecursionError) as fault:
      return _error(400, f"the body is not JSON: {fault}", "invalid_request_error")
    except _RequestError as fault:
      return _error(400, str(fault), "invalid_request_error")
    answerer = answerers.get(model)
    if answerer is None:
      return _error(404, f"The model {model!r} does not exist; GET /v1/models lists those that do.",
                    "invalid_request_error", "model_not_found")
    answer = answerer(messages, seed)
    prompt_tokens = sum(len(message["content"].split()) for message in messages)
    completion_tokens = len(answer.split())
    finish_reason = "stop"
    if limit is not None and completion_tokens > limit:
      answer = re.match(rf"(?:\s*\S+){{{limit}}}", answer).group()
      completion_tokens, finish_reason = limit, "length"
    return _json({
        "id": f"chatcmpl-{next(numbers)}", "object": "chat.completion",
        "created": int(time.time()), "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": answer},
                     "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens,
                  "total_tokens": prompt_tokens + completion_tokens}})

  async def handle(request: web.BaseRequest) -> web.Response:
    method, path = request.method, request.path
    if path == "/v1/chat/completions":
      if method != "POST":
        return _error(405, f"{method} is not allowed here: POST", "invalid_request_error")
      try:
        body = await request.read()
      except web.HTTPRequestEntityTooLarge:
        return _error(
            413, f"the body is larger than {_MAX_BODY_BYTES} bytes", "invalid_request_error")
      if latency:
        await asyncio.sleep(latency)
      try:
        return complete(body)
      except Exception as fault:  # one faulty answer must not take the other workers down
        traceback.print_exc()
        return _error(500, f"the worker failed: {type(fault).__name__}: {fault}", "server_error")
    if path not in ("/v1/models", "/health"):
      return _error(404, f"no such path: {path}", "invalid_request_error")
    if method != "GET":
      return _error(405, f"{method} is not allowed here: GET", "invalid_request_error")
    return _json(models if path == "/v1/models" else {"status": "ok"})

  return handle


def _request(message, payload, protocol, writer, task) -> web.BaseRequest:
  return web.BaseRequest(
      message, payload, protocol, writer, task, asyncio.get_running_loop(),
      client_max_size=_MAX_BODY_BYTES)


async def serve(answerers: Mapping[str, Answerer], port: int, ready: Callable[[int], None],
                stop: asyncio.Event, latency: float = 0.0) -> None:
  """Serves on the loopback interface until `stop` is set.

  Args:
    answerers: one per model name.
    port: 0 takes any free one.
    ready: called with the port once the socket listens.
    stop: ends the server.
    latency: seconds before a completion is sent.

  Raises:
    UserError: the port is taken or may not be bound.
  """
  server = web.Server(_handler(answerers, latency), request_factory=_request, access_log=None)
  try:
    listener = await asyncio.get_running_loop().create_server(
        server, HOST, port, backlog=4096)
  except (OSError, OverflowError) as fault:
    if getattr(fault, "errno", None) == errno.EADDRINUSE:
      raise UserError(f"port {port} is taken: free it, choose another port, "
                      "or pass 0 to take any free one") from fault
    raise UserError(f"port {port} cannot be bound ({fault}): choose another port, "
                    "or pass 0 to take any free one") from fault
  try:
    ready(listener.sockets[0].getsockname()[1])
    await stop.wait()
  finally:
    listener.close()
    await server.shutdown(timeout=1.0)


def load_factory(name: str) -> Callable[..., Mapping[str, Answerer]]:
  """Imports `package.module:function`.

  Raises:
    UserError: the name is malformed or names nothing.
  """
  module, colon, function = name.partition(":")
  if not (module and colon and function):
    raise UserError(f"server factory {name!r} must read package.module:function")
  try:
    return getattr(importlib.import_module(module), function)
  except (ModuleNotFoundError, AttributeError) as fault:
    raise UserError(f"server factory {name!r} cannot be imported: {fault}") from fault


async def _serve_until_input_ends(
    answerers: Mapping[str, Answerer], port: int, ready: Callable[[int], None], latency: float
) -> None:
  loop, stop = asyncio.get_running_loop(), asyncio.Event()

  def watch() -> None:
    while os.read(0, 4096):
      pass
    with contextlib.suppress(RuntimeError):  # the loop has closed already, after SIGTERM
      loop.call_soon_threadsafe(stop.set)

  # A thread, since standard input may be anything: pipe, terminal or file.
  threading.Thread(target=watch, daemon=True).start()
  loop.add_signal_handler(signal.SIGTERM, stop.set)
  await serve(answerers, port, ready, stop, latency)


def main(arguments: list[str] | None = None) -> int:
  """The child process. Returns its exit status: 2 after a UserError."""
  parser = argparse.ArgumentParser(prog="python -m conductor_jax.arena.server")
  parser.add_argument("factory", metavar="FACTORY", help="package.module:function")
  parser.add_argument("--port", type=int, default=0, help="0 takes any free one")
  parser.add_argument(
      "--latency", type=float, default=0.0, help="seconds before a completion is sent")
  options = parser.parse_args(arguments)
  # Standard output carries one line only; whatever a factory prints goes to standard error.
  channel, sys.stdout = sys.stdout, sys.stderr

  def ready(port: int) -> None:
    print(json.dumps({"port": port}), file=channel, flush=True)

  try:
    line = sys.stdin.readline()
    try:
      keywords = json.loads(line)
    except ValueError as fault:
      raise UserError(
          f"the first line of standard input must be a JSON object, got {line!r}") from fault
    if not isinstance(keywords, dict):
      raise UserError(f"the first line of standard input must be a JSON object, got {line!r}")
    answerers = load_factory(options.factory)(**keywords)
    asyncio.run(_serve_until_input_ends(answerers, options.port, ready, options.latency))
  except UserError as fault:
    print(fault, file=sys.stderr)
    return 2
  return 0


if __name__ == "__main__":
  sys.exit(main())
