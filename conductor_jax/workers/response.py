"""What an endpoint's response says: an answer, or why there is none.

A worker's hidden reasoning is not its answer: `reasoning_content` is not read, and <think> blocks
are cut.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from conductor_jax.workers.call import Usage
from conductor_jax.workers.pool import WorkerSpec

_RETRIED_4XX = frozenset((408, 409, 429))
_CHARACTERS_PER_TOKEN = 4
_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Answer:
  """What the worker wrote."""

  text: str
  truncated: bool
  usage: Usage


@dataclass(frozen=True)
class Fault:
  """Why an attempt brought no answer.

  Attributes:
    error: what went wrong, and what to do about it where that is known.
    outcome: of the call, if no attempt follows.
    final: whether the endpoint would say the same again.
    wait: seconds the endpoint asks to wait, None if it does not say.
  """

  error: str
  outcome: Literal["refused", "unavailable"] = "unavailable"
  final: bool = False
  wait: float | None = None


def retry_after(headers: Mapping[str, str]) -> float | None:
  """Seconds that a response asks to wait; None if it says nothing that makes sense.

  `retry-after-ms` goes before `Retry-After`, which is a number of seconds or an HTTP date. What is
  not positive makes no sense.
  """
  seconds = _number(headers.get("retry-after-ms")) / 1000
  if math.isnan(seconds):
    value = headers.get("Retry-After")
    seconds = _number(value)
    if math.isnan(seconds) and value is not None:
      seconds = _until(value)
  return seconds if seconds > 0 else None


def without_thinking(content: str) -> str:
  """Cuts <think> blocks, also one that never closes or whose opening the prompt held."""
  if "think>" not in content:
    return content
  return _THINKING.sub("", content).rpartition("</think>")[2].strip()


def read_answer(payload: bytes, spec: WorkerSpec, request_length: int) -> Answer | Fault:
  """Reads the body of a successful response, whatever it holds.

  Args:
    payload: the body.
    spec: the worker, for its prices.
    request_length: characters of the request, for the estimate of missing token counts.
  """
  try:
    body = json.loads(payload)
    if isinstance(body, dict) and body.get("error"):
      return Fault(f"the response holds an error: {json.dumps(body['error'])}")
  except (ValueError, RecursionError):
    return Fault("the response is not JSON")
  if not isinstance(body, dict):
    return Fault("the response is not a JSON object")
  match body.get("choices"):
    case [{"message": {**message}, **choice}, *_]:
      content = message.get("content")
    case _:
      return Fault("the response holds no choices")
  if not isinstance(content, str | None):
    return Fault("the response's content is not text")
  # JSON can spell half a surrogate pair, which no file or database takes.
  content = (content or "").encode(errors="replace").decode()
  usage = body.get("usage")
  usage = usage if isinstance(usage, dict) else {}
  read = _tokens(usage.get("prompt_tokens"), request_length)
  written = _tokens(usage.get("completion_tokens"), len(content))
  cost = (read * spec.price_in + written * spec.price_out) / 1e6
  return Answer(
      without_thinking(content), choice.get("finish_reason") == "length",
      Usage(read, written, cost))


def read_error(
    status: int, payload: bytes, headers: Mapping[str, str], spec: WorkerSpec) -> Fault:
  """Reads a response that is no success.

  Args:
    status: the HTTP status.
    payload: the body.
    headers: for the wait that the endpoint asks for.
    spec: the worker, for what to check.
  """
  said = payload.decode(errors="replace")
  if status in (401, 402, 403, 404):
    return Fault(f"HTTP {status}: {_remedy(status, spec)}: {said}", final=True)
  error = f"HTTP {status}: {said}"
  if 400 <= status < 500 and status not in _RETRIED_4XX:
    return Fault(error, "refused", final=True)
  return Fault(error, wait=retry_after(headers))


def _remedy(status: int, spec: WorkerSpec) -> str:
  """What to check after a fault of the worker's settings, whatever it was asked."""
  if status == 404:
    return f"check the model name {spec.model!r} and the base_url of worker {spec.name!r}"
  if status == 402:
    return f"pay for the account of worker {spec.name!r}"
  if spec.api_key_env is None:
    return f"name the environment variable that holds a key in api_key_env of worker {spec.name!r}"
  may_use = f", which must give access to the model {spec.model!r}" if status == 403 else ""
  return f"check the key in the environment variable {spec.api_key_env}{may_use}"


def _tokens(reported: Any, characters: int) -> int:
  """A token count as reported, else an estimate from the text."""
  if isinstance(reported, int) and not isinstance(reported, bool) and 0 <= reported < 10**12:
    return reported
  return math.ceil(characters / _CHARACTERS_PER_TOKEN)


def _number(text: str | None) -> float:
  """The number that a header holds, NaN if it holds none."""
  try:
    return math.nan if text is None else float(text)
  except ValueError:
    return math.nan


def _until(date: str) -> float:
  """Seconds from now until an HTTP date, NaN if it is none."""
  try:
    moment = parsedate_to_datetime(date)
  except (ValueError, TypeError, IndexError, OverflowError):
    return math.nan
  if moment.tzinfo is None:
    moment = moment.replace(tzinfo=UTC)
  return (moment - datetime.now(UTC)).total_seconds()
