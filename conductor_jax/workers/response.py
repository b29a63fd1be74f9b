"""What an endpoint's response says: an answer, or why there is none, and what it cost.

A worker's hidden reasoning is not its answer: `reasoning`, `reasoning_content`, <think> blocks and
thinking parts of the content are kept apart from it.
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
# Of the faults that are retried, those that say that nothing was done: a conflict, a rate limit, an
# overload, and Anthropic's word for one.
_NOT_BILLED = frozenset((409, 429, 503, 529))
_OVERFLOW = re.compile(
    r"context[ _]length|context[ _]window|maximum context|prompt is too long|too many tokens|"
    r"input tokens? count|longer than the max", re.IGNORECASE)
# What HTTP 400 says of an account, a key or a worker's options, whatever it was asked: Anthropic's
# empty account, Gemini's bad key, parameters that a model does not take.
_SETTINGS = re.compile(
    r"credit balance|billing|quota|api[ _]key|permission|"
    r"(unsupported|unknown|unrecognized|invalid) (request )?(parameter|argument|field|name|value)|"
    r"(parameter|argument|value)s? (is|are) not (supported|permitted|allowed)|"
    r"extra (inputs|fields)|unsupported_(parameter|value)", re.IGNORECASE)
_CHARACTERS_PER_TOKEN = 4
_THINKING = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Answer:
  """What the worker wrote.

  Attributes:
    text: the answer.
    reasoning: what it thought before.
    truncated: whether it ran out of tokens.
    usage: tokens and cost.
  """

  text: str
  reasoning: str
  truncated: bool
  usage: Usage

  @property
  def outcome(self) -> Literal["answered", "truncated"]:
    """Of the call."""
    return "truncated" if self.truncated else "answered"

  @property
  def finish_reason(self) -> Literal["stop", "length"]:
    """As endpoints call it."""
    return "length" if self.truncated else "stop"


@dataclass(frozen=True)
class Fault:
  """Why an attempt brought no answer.

  Attributes:
    error: what went wrong, and what to do about it where that is known.
    outcome: of the call, if no attempt follows.
    final: whether the endpoint would say the same again.
    wait: seconds the endpoint asks to wait, None if it does not say.
    usage: what the endpoint says it billed all the same.
    possibly_billed: whether it may have billed the attempt without saying so.
    down: whether the endpoint as a whole seems to be at fault, not this request.
    overflow: whether the request was too long for the worker's window.
  """

  error: str
  outcome: Literal["refused", "unavailable", "over_budget"] = "unavailable"
  final: bool = False
  wait: float | None = None
  usage: Usage = Usage()
  possibly_billed: bool = False
  down: bool = False
  overflow: bool = False


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


def split_thinking(content: str) -> tuple[str, str]:
  """The answer and the <think> blocks, also one that never closes or whose opening was prompted."""
  if "think>" not in content:
    return content, ""
  blocks = _THINKING.findall(content)
  before, closing, answer = _THINKING.sub("", content).rpartition("</think>")
  thoughts = [before] * bool(closing) + blocks
  return answer.strip(), "\n".join(block.strip() for block in thoughts)


def read_answer(payload: bytes, spec: WorkerSpec, request_length: int) -> Answer | Fault:
  """Reads the body of a successful response, whatever it holds.

  Args:
    payload: the body: a JSON object, or the events of a stream, whole.
    spec: the worker, for its prices.
    request_length: characters of the request, for the estimate of missing token counts.
  """
  try:
    body = json.loads(payload) if payload.lstrip()[:1] == b"{" else _merged(payload)
  except (ValueError, RecursionError):
    body = "the response is not JSON"
  if isinstance(body, str):
    return Fault(body, possibly_billed=True, down=True)
  usage = body.get("usage")
  usage = usage if isinstance(usage, dict) else {}
  error, choices = None, body.get("choices")
  choice = choices[0] if isinstance(choices, list) and choices else None
  message = choice.get("message") if isinstance(choice, dict) else None
  if isinstance(message, dict):
    parts = _parts(message.get("content"))
    if parts is None:
      error = "the response's content is not text"
  else:
    error = "the response holds no choices"
  if body.get("error"):
    error = f"the response holds an error: {json.dumps(body['error'])}"
  if error is not None:
    # With a bill, the bill counts.
    billed = _usage(usage, spec, 0, 0)
    if billed.estimated:
      return Fault(error, possibly_billed=True, down=True)
    return Fault(error, usage=billed, down=True)
  text, thought = parts
  text, marked = split_thinking(text)
  hidden = message.get("reasoning") or message.get("reasoning_content")
  hidden = _clean(hidden) if isinstance(hidden, str) else ""
  reasoning = "\n".join(filter(None, (hidden, thought, marked)))
  return Answer(
      text, reasoning, choice.get("finish_reason") == "length",
      _usage(usage, spec, request_length, len(text) + len(reasoning)))


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
    overflow = status in (400, 413, 422) and _OVERFLOW.search(said) is not None
    if not overflow and status in (400, 422) and _SETTINGS.search(said):
      return Fault(f"HTTP {status}: check the key, the account and the sampling options of worker "
                   f"{spec.name!r}: {said}", final=True)
    return Fault(error, "refused", final=True, overflow=overflow)
  return Fault(
      error, wait=retry_after(headers), down=status >= 500,
      possibly_billed=status >= 400 and status not in _NOT_BILLED)


def _merged(payload: bytes) -> dict[str, Any] | str:
  """The one response that a stream's events make up; a line on what is wrong with them.

  A stream is whole if it ends with `[DONE]`, or has told why the worker finished.
  """
  message: dict[str, str] = {"content": ""}
  body: dict[str, Any] = {"choices": [{"message": message}]}
  events = done = False
  for line in payload.splitlines():  # of bytes, for text may hold separators of other kinds
    name, _, data = line.partition(b":")
    if name != b"data":
      continue
    data, events = data.strip(), True
    if data == b"[DONE]":
      done = True
      break
    chunk = json.loads(data)
    if not isinstance(chunk, dict):
      return "an event of the stream is not a JSON object"
    for key in ("error", "usage"):
      if chunk.get(key):
        body[key] = chunk[key]
    match chunk.get("choices"):
      case [{**choice}, *_]:
        delta = choice.get("delta")
        for key, value in (delta if isinstance(delta, dict) else {}).items():
          if key in ("content", "reasoning", "reasoning_content") and isinstance(value, str):
            message[key] = message.get(key, "") + value
        if choice.get("finish_reason"):
          body["choices"][0]["finish_reason"] = choice["finish_reason"]
          done = True
  if not events:
    raise ValueError("no events")
  return body if done or body.get("error") else "the stream broke off before its end"


def _parts(content: Any) -> tuple[str, str] | None:
  """Text and thoughts of a message's content, which is text, parts, or nothing."""
  if isinstance(content, str | None):
    return _clean(content or ""), ""
  if not (isinstance(content, list) and all(isinstance(part, dict) for part in content)):
    return None
  texts = [part.get("text") or "" for part in content if part.get("type") == "text"]
  thoughts = [part.get("thinking") or "" for part in content if part.get("type") == "thinking"]
  return tuple(
      _clean("".join(part if isinstance(part, str) else json.dumps(part) for part in parts))
      for parts in (texts, thoughts))


def _clean(text: str) -> str:
  # JSON can spell half a surrogate pair, which no file or database takes.
  return text if text.isascii() else text.encode(errors="replace").decode()


def _usage(
    usage: Mapping[str, Any], spec: WorkerSpec, request_length: int, response_length: int
) -> Usage:
  """Tokens as reported, else estimated from the characters of the text, and what they cost."""
  prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
  estimated = not (_is_count(prompt) and _is_count(completion))
  if not _is_count(prompt):
    prompt = math.ceil(request_length / _CHARACTERS_PER_TOKEN)
  if not _is_count(completion):
    completion = math.ceil(response_length / _CHARACTERS_PER_TOKEN)
  cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
  reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens")
  total = usage.get("total_tokens")
  if not estimated and _is_count(total) and total > prompt + completion:
    # Some endpoints leave reasoning out of the completion, and not out of the total.
    reasoning = max(reasoning, total - prompt - completion)
    completion = total - prompt
  cached, reasoning = min(cached, prompt), min(reasoning, completion)
  return Usage(
      prompt, completion, spec.cost(prompt, completion, cached, reasoning), cached, reasoning,
      estimated=estimated)


def _detail(usage: Mapping[str, Any], group: str, name: str) -> int:
  details = usage.get(group)
  count = details.get(name) if isinstance(details, dict) else None
  return count if _is_count(count) else 0


def _is_count(value: Any) -> bool:
  return type(value) is int and 0 <= value < 10**12  # a bool is none


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
