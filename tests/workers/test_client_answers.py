"""What workers write in place of a plain answer, whole or in a stream, and what arrives there."""

import asyncio
import json

import pytest
from aiohttp import web

from conductor_jax.workers.call import Usage
from tests.workers.endpoint import MESSAGES, call, client_of, completion, reply, spec

COST = pytest.approx(1000 * 2e-6 + 500 * 10e-6)


@pytest.mark.parametrize(("content", "reason", "response", "outcome"), [
    (None, "stop", "", "answered"),
    (None, "length", "", "truncated"),
    ("", "length", "", "truncated"),
    ("fou", "length", "fou", "truncated"),
    (" four\n", None, " four\n", "answered"),
    ("I can't help with that.", "content_filter", "I can't help with that.", "answered"),
    ("vier 🤔 \ud83d", "stop", "vier 🤔 ?", "answered"),
    ([{"type": "text", "text": "fo"}, {"type": "text", "text": "ur"}], "stop", "four", "answered"),
    ([{"type": "text", "text": None}, {"type": "image_url"}], "stop", "", "answered"),
    ([], "stop", "", "answered"),
])
async def test_what_counts_as_the_answer(endpoint, content, reason, response, outcome):
  endpoint.script = [reply(completion(content, reason))]
  record = await call(endpoint)
  assert (record.response, record.outcome, record.reasoning) == (response, outcome, "")
  assert (record.attempts, record.usage, endpoint.hits) == (1, Usage(1000, 500, COST), 1)


@pytest.mark.parametrize(("content", "message", "reason", "response", "reasoning"), [
    (None, {"reasoning": "2 and 2"}, "stop", "", "2 and 2"),
    (None, {"reasoning_content": "2 and 2"}, "length", "", "2 and 2"),
    ("four", {"reasoning_content": "2 and 2", "reasoning": None}, "stop", "four", "2 and 2"),
    ("four", {"reasoning": {"effort": 1}, "reasoning_content": ["x"]}, "stop", "four", ""),
    ("<think>2 and 2</think>\n\nfour", {}, "stop", "four", "2 and 2"),
    ("2 and 2</think>four", {}, "stop", "four", "2 and 2"),
    ("<think>2 and", {}, "length", "", "2 and"),
    ("<think>b</think>four", {"reasoning": "a"}, "stop", "four", "a\nb"),
    ([{"type": "thinking", "thinking": "2 and 2"}, {"type": "text", "text": "four"}], {}, "stop",
     "four", "2 and 2"),
])
async def test_what_a_worker_thought_is_kept_apart_from_its_answer(
    endpoint, content, message, reason, response, reasoning):
  endpoint.script = [reply(completion(content, reason, message=message))]
  record = await call(endpoint)
  assert (record.response, record.reasoning) == (response, reasoning)
  assert record.outcome == ("truncated" if reason == "length" else "answered")
  assert (record.attempts, record.usage, endpoint.hits) == (1, Usage(1000, 500, COST), 1)


async def test_a_missing_usage_is_estimated_and_marked(endpoint):
  endpoint.script = [reply(completion("x" * 41, usage=None))]
  record = await call(endpoint)
  sent = len(json.dumps(endpoint.bodies[0]))
  prompt = -(-sent // 4)
  assert record.usage == Usage(
      prompt, 11, pytest.approx(prompt * 2e-6 + 11 * 10e-6), estimated=True)


def event(delta=None, finish_reason=None, **chunk):
  choices = [] if delta is None else [
      {"index": 0, "delta": delta, "finish_reason": finish_reason}]
  return f"data: {json.dumps({'choices': choices, **chunk}, ensure_ascii=False)}\n\n"


def stream(*events, ending=True, newline="\n"):
  """Writes events one by one; ends the response properly, or breaks the connection."""

  async def behave(request):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for text in events:
      await response.write(text.replace("\n", newline).encode())
      await asyncio.sleep(0)
    if not ending:
      request.transport.abort()
    return response

  return behave


USAGE = event(usage={"prompt_tokens": 1000, "completion_tokens": 500})
DONE = "data: [DONE]\n\n"
FOUR = (event({"role": "assistant", "content": ""}), event({"content": "fo"}),
        event({"content": "ur"}))
STREAMED = {"stream": True, "sampling": {"max_tokens": 100}}


async def test_a_stream_is_asked_for_with_its_usage(endpoint):
  endpoint.script = [stream(*FOUR, event({}, "stop"), USAGE, DONE)]
  await call(endpoint, **STREAMED)
  assert endpoint.bodies == [{
      "model": "m", "max_tokens": 100, "stream": True, "stream_options": {"include_usage": True},
      "messages": MESSAGES}]


@pytest.mark.parametrize(("events", "response", "reasoning", "outcome"), [
    ((*FOUR, event({}, "stop"), USAGE, DONE), "four", "", "answered"),
    ((*FOUR, event({}, "stop"), USAGE), "four", "", "answered"),
    ((*FOUR, USAGE, DONE), "four", "", "answered"),
    ((*FOUR, event({}, "length"), USAGE, DONE), "four", "", "truncated"),
    ((event({"content": "four"}, "stop", usage={"prompt_tokens": 1, "completion_tokens": 1}),
      USAGE, DONE), "four", "", "answered"),
    ((": keep-alive\n\n", FOUR[0], ": OPENROUTER PROCESSING\n\n", *FOUR[1:], ":\n\n",
      "event: message\nid: 7\nretry: 100\n", event({}, "stop"), USAGE, DONE),
     "four", "", "answered"),
    ((event({"reasoning_content": "2 and"}), event({"reasoning_content": " 2"}), *FOUR,
      event({}, "stop"), USAGE, DONE), "four", "2 and 2", "answered"),
    ((event({"reasoning": "2 and 2", "content": None}), event(None), *FOUR, event({}, "stop"),
      USAGE, DONE), "four", "2 and 2", "answered"),
    ((event({"content": "<think>2 and"}), event({"content": " 2</thi"}),
      event({"content": "nk>four"}, "stop"), USAGE, DONE), "four", "2 and 2", "answered"),
    ((event({"content": "vier\u2028\u2029\x85\x0b\x0c\x1c🤔"}, "stop"), USAGE, DONE),
     "vier\u2028\u2029\x85\x0b\x0c\x1c🤔", "", "answered"),
    ((event({}, "stop"), USAGE, DONE), "", "", "answered"),
    ((event({}, "stop").replace("data: ", "data:"), USAGE, DONE), "", "", "answered"),
])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
async def test_the_events_of_a_stream_make_up_one_answer(
    endpoint, events, response, reasoning, outcome, newline):
  endpoint.script = [stream(*events, newline=newline)]
  record = await call(endpoint, **STREAMED)
  assert (record.response, record.reasoning, record.outcome) == (response, reasoning, outcome)
  assert (record.attempts, record.usage, endpoint.hits) == (1, Usage(1000, 500, COST), 1)


@pytest.mark.parametrize("events", [
    FOUR, (*FOUR, USAGE), (*FOUR, ": keep-alive\n\n"), (*FOUR, "data: {\"choi"),
    (*FOUR, "data: [1]\n\n", DONE), (DONE[:7],), (": keep-alive\n\n",), ()])
async def test_a_stream_that_ends_before_its_end_is_a_fault_and_possibly_billed(endpoint, events):
  endpoint.script = [stream(*events), stream(*FOUR, event({}, "stop"), USAGE, DONE)]
  record = await call(endpoint, **STREAMED)
  assert (record.response, record.outcome, record.attempts) == ("four", "answered", 2)
  assert (record.possibly_billed, endpoint.hits) == (1, 2)
  assert record.usage == Usage(
      1000, 500, COST, possible_cost=pytest.approx(94 * 2e-6 + 100 * 10e-6))


async def test_a_stream_whose_connection_breaks_is_a_fault_whatever_it_has_said(endpoint):
  endpoint.script = [stream(*FOUR, event({}, "stop"), USAGE, DONE, ending=False), stream(
      *FOUR, event({}, "stop"), USAGE, DONE)]
  record = await call(endpoint, **STREAMED)
  assert (record.response, record.attempts, record.possibly_billed) == ("four", 2, 1)


@pytest.mark.parametrize(("events", "billed", "usage"), [
    ((*FOUR, event(error={"message": "overloaded"})), 1, Usage(1000, 500, COST)),
    ((*FOUR, "event: error\n", event(error="overloaded"), DONE), 1, Usage(1000, 500, COST)),
    ((*FOUR, event({}, "error", error={"code": 502}), USAGE, DONE), 0,
     Usage(2000, 1000, pytest.approx(2 * 0.007))),
])
async def test_an_error_within_a_stream_is_a_fault(endpoint, events, billed, usage):
  endpoint.script = [stream(*events), stream(*FOUR, event({}, "stop"), USAGE, DONE)]
  record = await call(endpoint, **STREAMED)
  assert (record.response, record.attempts, record.possibly_billed) == ("four", 2, billed)
  assert record.usage.cost == usage.cost and record.usage.tokens == usage.tokens
  assert endpoint.hits == 2


async def test_an_endpoint_that_does_not_stream_though_asked_to_is_understood(endpoint):
  record = await call(endpoint, **STREAMED)
  assert (record.response, record.attempts, record.usage) == ("four", 1, Usage(1000, 500, COST))


def chat(*turns):
  return [{"role": role, "content": content} for role, content in turns]


async def sent(endpoint, messages, **changes):
  """The body that arrives."""
  async with client_of(spec(endpoint.base_url, **changes)) as pool_client:
    record = await pool_client.call(0, messages, seed=7)
  assert record.request == endpoint.bodies[0] and endpoint.hits == 1
  return endpoint.bodies[0]


async def test_a_reasoning_model_of_openai_is_sent_its_own_parameters(endpoint, caplog):
  body = await sent(
      endpoint, MESSAGES, dialect="openai-reasoning",
      sampling={"max_tokens": 4096, "temperature": 0.2, "top_p": 0.9, "reasoning_effort": "low"})
  assert body == {"model": "m", "max_completion_tokens": 4096, "reasoning_effort": "low",
                  "messages": MESSAGES, "seed": 7}
  told = [record.getMessage() for record in caplog.records]
  assert [line for line in told if "temperature=0.2" in line and "is not sent" in line]
  assert [line for line in told if "top_p=0.9" in line and "is not sent" in line]
  assert len(told) == 2


# What an open access list makes of a workflow: a question, answers of others, the next subtask.
HISTORY = chat(("system", "Be brief."), ("user", "Q"), ("user", "A?"), ("assistant", "a"),
               ("assistant", "b"), ("user", "C?"))


@pytest.mark.parametrize(("dialect", "arrives"), [
    ("openai", HISTORY),
    ("gemma", chat(("user", "Be brief.\n\nQ\n\nA?"), ("assistant", "a\n\nb"), ("user", "C?"))),
    ("mistral", chat(("system", "Be brief."), ("user", "Q\n\nA?"), ("assistant", "a\n\nb"),
                     ("user", "C?"))),
    ("anthropic", chat(("system", "Be brief."), ("user", "Q\n\nA?"), ("assistant", "a\n\nb"),
                       ("user", "C?"))),
    ("deepseek-r1", chat(("user", "Be brief.\n\nQ"), ("user", "A?"), ("assistant", "a"),
                         ("assistant", "b"), ("user", "C?"))),
])
async def test_a_chat_arrives_as_the_family_accepts_it(endpoint, dialect, arrives):
  assert (await sent(endpoint, HISTORY, dialect=dialect))["messages"] == arrives


@pytest.mark.parametrize("dialect", ["anthropic", "mistral", "gemma", "openrouter-gemma"])
async def test_a_chat_that_begins_with_an_answer_arrives_with_a_user_turn_first(
    endpoint, dialect):
  body = await sent(endpoint, chat(("assistant", "a"), ("user", "C?")), dialect=dialect)
  assert body["messages"] == chat(("user", "Begin."), ("assistant", "a"), ("user", "C?"))
