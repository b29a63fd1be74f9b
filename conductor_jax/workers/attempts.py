"""What comes of the attempts of a call: its spending, its rows in the journal, and its record."""

import json
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from conductor_jax.workers.budget import Spending
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workers.endpoint import Endpoint
from conductor_jax.workers.journal import Attempt
from conductor_jax.workers.response import Answer, Fault, read_answer, read_error

GIVEN_UP = Fault("it was given up", possibly_billed=True)


@dataclass
class PendingCall:
  """One call of one worker, while it goes on.

  Attributes:
    endpoint: who is asked.
    request: the JSON body.
    data: the same as bytes.
    key: of the call, in the journal; empty where there is none.
    seed: of the call, None if it has none.
    group: the queue that it waits in.
    most_tokens, most_dollars: that an attempt may take.
    began: monotonic seconds at its first attempt, None before.
    attempts: requests made.
    possibly_billed, possible_cost: those that may have been billed without an answer, and dollars
      that they may have cost at most.
    tokens: of all attempts, as reported or at most.
    usage: of all attempts, as reported.
  """

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
  tokens: int = 0
  usage: Usage = Usage()


def spending_of(call: PendingCall, result: Answer | Fault) -> Spending:
  """What an attempt has taken of the budget."""
  usage = result.usage
  if isinstance(result, Fault) and result.possibly_billed:
    return Spending(1, possible_tokens=call.most_tokens, possible_cost=call.most_dollars,
                    possibly_billed=1)
  return Spending(1, usage.tokens, usage.cost, estimated=int(usage.estimated))


def span_end(result: Answer | Fault) -> tuple[dict[str, Any], str | None]:
  """What a request's span is told at its end."""
  attributes = {"gen_ai.usage.input_tokens": result.usage.prompt_tokens,
                "gen_ai.usage.output_tokens": result.usage.completion_tokens}
  if isinstance(result, Answer):
    return {**attributes, "gen_ai.response.finish_reasons": (result.finish_reason,)}, None
  return attributes, result.outcome


def fill_in(attempt: Attempt, endpoint: Endpoint, result: Answer | Fault, spent: Spending) -> None:
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
    attempt.outcome = result.outcome
    if endpoint.key is not None:
      said = result.text + result.reasoning
      if endpoint.hidden(said) != said:
        attempt.response = _without_key(endpoint, result)
  else:
    attempt.outcome = ("refused" if result.outcome == "refused" else
                       "given up" if result is GIVEN_UP else "failed")
    attempt.error = endpoint.error_line(result.error)


def _without_key(endpoint: Endpoint, answer: Answer) -> bytes:
  """A body that says the same; in the one that came, a key may be spread over the events."""
  choice = {
      "message": {"content": endpoint.hidden(answer.text),
                  "reasoning": endpoint.hidden(answer.reasoning)},
      "finish_reason": answer.finish_reason}
  return json.dumps({"choices": [choice]}).encode()


def record_of(call: PendingCall, result: Answer | Fault) -> CallRecord:
  """The record of a call that asked its endpoint."""
  latency = 0.0 if call.began is None else time.monotonic() - call.began
  usage = call.usage
  if call.possibly_billed:
    usage = replace(usage, possible_cost=call.possible_cost)
  return _made(
      call.endpoint, call.request, result, usage=usage, latency=latency,
      attempts=call.attempts, possibly_billed=call.possibly_billed)


def replayed(endpoint: Endpoint, request: Mapping[str, Any], found: Attempt) -> CallRecord:
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
        endpoint.spec.name, request, endpoint.hidden(result.text), outcome=result.outcome,
        reasoning=endpoint.hidden(result.reasoning), **rest)
  return CallRecord(
      endpoint.spec.name, request, "", outcome=result.outcome,
      error=endpoint.error_line(result.error), overflow=result.overflow, **rest)
