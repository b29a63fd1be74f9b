import asyncio
import contextlib
import json
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from conductor_jax.workers.call import Usage
from tests.workers.endpoint import (
    DEAD,
    MESSAGES,
    break_off,
    call,
    client_of,
    completion,
    hang,
    raw,
    reply,
    reset,
    spec,
)

CANARY = "sk-canary-0123456789abcdef"
ERROR = {"error": {"message": "overloaded", "code": 503}}
# What one attempt may cost: 14 bytes of question and 80 for the chat's template at $2 per million,
# 100 tokens of answer at $10.
WORST = 94 * 2e-6 + 100 * 10e-6
BILL = 1000 * 2e-6 + 500 * 10e-6

# Each kind of fault: what the endpoint does, and whether it may have billed the attempt.
PASSING = {
    "reset": (reset, True),
    "body cut off": (break_off, True),
    "nothing said": (raw(b""), True),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH_9.2\r\n"), True),
    "header of 1 MB": (raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2**20 + b"\r\n\r\n"), True),
    "bad chunk": (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), True),
    "no gzip": (reply(b"plain", headers={"Content-Encoding": "gzip"}), True),
    **{f"HTTP {status}": (reply({}, status), billed) for status, billed in (
        (408, True), (409, False), (429, False), (500, True), (502, True), (503, False),
        (504, True), (529, False))},
    "redirect": (reply({}, 302, {"Location": DEAD}), False),
    "error in a 200": (reply(ERROR), True),
    "error beside choices": (reply(completion(error="overloaded", usage=None)), True),
    "HTML": (reply(b"<html>gateway</html>"), True),
    "empty body": (reply(b""), True),
    "not UTF-8": (reply(b'{"choices": "\xff"}'), True),
    "endless nesting": (reply(b'{"a": ' + b"[" * 100_000), True),
    "endless number": (reply(b'{"a": ' + b"1" * 5000 + b"}"), True),
    "JSON of another kind": (reply([1]), True),
    "choices null": (reply(completion(choices=None, usage=None)), True),
    "choices empty": (reply({"choices": []}), True),
    "choices of another kind": (reply({"choices": ["four"]}), True),
    "no choices": (reply({"usage": None}), True),
    "message null": (reply({"choices": [{"message": None}]}), True),
    "content of another kind": (reply(completion(content=4, usage={})), True),
    "usage without counts": (reply({**ERROR, "usage": {"prompt_tokens": None}}), True),
}
FAULTS = pytest.mark.parametrize(("fault", "billed"), PASSING.values(), ids=PASSING.keys())
LIMITED = {"sampling": {"max_tokens": 100}}


@FAULTS
async def test_a_passing_fault_is_retried_and_counted(endpoint, fault, billed):
  endpoint.script = [fault, fault, reply(completion())]
  record = await call(endpoint, **LIMITED)
  assert (record.outcome, record.response, record.attempts) == ("answered", "four", 3)
  assert (record.error, record.possibly_billed, endpoint.hits) == (None, 2 * billed, 3)
  assert record.usage == Usage(
      1000, 500, pytest.approx(BILL), possible_cost=pytest.approx(2 * WORST * billed))


@FAULTS
async def test_a_lasting_fault_is_unavailable_after_all_attempts(endpoint, fault, billed):
  endpoint.script = [fault]
  record = await call(endpoint, client={"max_attempts": 2}, **LIMITED)
  assert (record.outcome, record.response, record.attempts) == ("unavailable", "", 2)
  assert (record.possibly_billed, endpoint.hits) == (2 * billed, 2)
  assert record.usage == Usage(possible_cost=pytest.approx(2 * WORST * billed))
  assert record.error and "\n" not in record.error and len(record.error) <= 300


@pytest.mark.parametrize("body", [
    {**ERROR, "usage": {"prompt_tokens": 1000, "completion_tokens": 500}},
    completion(choices=None), completion(choices=[]), completion(error="overloaded"),
    completion(content=4)])
async def test_a_fault_that_comes_with_a_bill_costs_what_the_bill_says(endpoint, body):
  endpoint.script = [reply(body), reply(completion())]
  record = await call(endpoint, **LIMITED)
  assert (record.outcome, record.attempts, record.possibly_billed) == ("answered", 2, 0)
  assert record.usage == Usage(2000, 1000, pytest.approx(2 * BILL))
  assert endpoint.hits == 2


@pytest.mark.parametrize("timeouts", [
    {"request_timeout": 0.15}, {"read_timeout": 0.15}], ids=["in all", "without a byte"])
async def test_an_attempt_that_takes_too_long_is_retried_and_possibly_billed(endpoint, timeouts):
  endpoint.script = [hang, reply(completion())]
  record = await call(endpoint, client=timeouts, **LIMITED)
  await asyncio.wait_for(endpoint.disconnected.wait(), 5)
  assert (record.outcome, record.attempts, endpoint.hits) == ("answered", 2, 2)
  assert record.possibly_billed == 1
  assert record.usage.possible_cost == pytest.approx(WORST)


async def test_a_refused_connection_is_unavailable_and_cost_nothing(endpoint):
  async with client_of(spec(DEAD, **LIMITED)) as pool_client:
    record = await pool_client.call(0, MESSAGES)
  assert (record.outcome, record.attempts, record.possibly_billed) == ("unavailable", 3, 0)
  assert record.usage == Usage()
  assert "127.0.0.1" in record.error
  assert endpoint.hits == 0


async def test_a_connection_that_takes_too_long_was_never_a_request():
  with socket.socket() as listener, contextlib.ExitStack() as stack:
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    host, port = listener.getsockname()
    for _ in range(4):  # nobody accepts them; once the queue is full, the next one hangs
      filler = stack.enter_context(socket.socket())
      filler.setblocking(False)
      filler.connect_ex((host, port))
    async with client_of(
        spec(f"http://{host}:{port}/v1"), max_attempts=2, connect_timeout=0.1) as pool_client:
      record = await pool_client.call(0, MESSAGES)
  assert (record.outcome, record.attempts, record.possibly_billed) == ("unavailable", 2, 0)
  assert record.usage == Usage()


@pytest.mark.parametrize(("status", "said"), [
    (400, "Your credit balance is too low to access the Anthropic API."),
    (400, "API key not valid. Please pass a valid API key."),
    (400, "Unsupported parameter: 'max_tokens' is not supported with this model."),
    (400, "Unknown name \"seed\": Cannot find field."),
    (422, "Extra inputs are not permitted")])
async def test_a_bad_account_or_option_is_not_the_plans_fault(endpoint, status, said):
  endpoint.script = [reply({"error": {"message": said}}, status)]
  record = await call(endpoint)
  assert (record.outcome, record.attempts, endpoint.hits) == ("unavailable", 1, 1)
  assert record.error.startswith(
      f"HTTP {status}: check the key, the account and the sampling options of worker 'solver': ")
  assert record.possibly_billed == 0


@pytest.mark.parametrize("status", [400, 405, 413, 422])
async def test_other_client_errors_are_refused_without_a_retry(endpoint, status):
  endpoint.script = [reply({"error": {"message": "too long"}}, status)]
  record = await call(endpoint)
  assert (record.outcome, record.attempts, endpoint.hits) == ("refused", 1, 1)
  assert (record.possibly_billed, record.usage) == (0, Usage())
  assert f"HTTP {status}" in record.error and "too long" in record.error


@pytest.mark.parametrize(("status", "text", "overflow"), [
    (400, "This model's maximum context length is 8192 tokens.", True),
    (400, "context_length_exceeded", True), (413, "prompt is too long: 9000 tokens", True),
    (422, "the input is longer than the maximum", True), (400, "temperature must be 1", False),
    (405, "maximum context length", False)])
async def test_a_request_that_was_too_long_is_marked(endpoint, status, text, overflow):
  endpoint.script = [reply({"error": {"message": text}}, status)]
  record = await call(endpoint)
  assert (record.outcome, record.overflow, endpoint.hits) == ("refused", overflow, 1)


@pytest.mark.parametrize(("status", "remedy"), [
    (401, "check the key in the environment variable SOLVER_KEY"),
    (402, "pay for the account of worker 'solver'"),
    (403, "the environment variable SOLVER_KEY, which must give access to the model 'm'"),
    (404, "check the model name 'm' and the base_url of worker 'solver'")])
async def test_a_bad_key_account_or_model_is_unavailable_at_once_and_says_what_to_do(
    endpoint, monkeypatch, status, remedy):
  monkeypatch.setenv("SOLVER_KEY", CANARY)
  endpoint.script = [reply({"error": {"message": "go away. " * 50}}, status)]
  record = await call(endpoint, api_key_env="SOLVER_KEY")
  assert (record.outcome, record.attempts, endpoint.hits) == ("unavailable", 1, 1)
  assert record.possibly_billed == 0
  assert record.error.startswith(f"HTTP {status}: ") and remedy in record.error
  assert "go away" in record.error and len(record.error) <= 300


@pytest.mark.parametrize("status", [401, 403])
async def test_an_endpoint_that_wants_a_key_where_none_is_named_says_so(endpoint, status):
  endpoint.script = [reply({}, status)]
  record = await call(endpoint)
  assert record.error == (
      f"HTTP {status}: name the environment variable that holds a key in api_key_env of worker "
      "'solver': {}")


def http_date(seconds):
  return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


# Without a wait that the endpoint asks for, the bound of the random one is no second here.
@pytest.mark.parametrize(("headers", "least"), [
    ({"Retry-After": "0.3"}, 0.3), ({"Retry-After": http_date(86400)}, 0.4),
    ({"retry-after-ms": "300"}, 0.3), ({"retry-after-ms": "300", "Retry-After": "0.001"}, 0.3),
    ({"Retry-After": "1000000000"}, 0.4), ({"Retry-After": "inf"}, 0.4),
    ({"Retry-After": "-5"}, 0), ({"Retry-After": "0"}, 0), ({"Retry-After": "soon"}, 0),
    ({"Retry-After": "nan"}, 0), ({"Retry-After": http_date(-60)}, 0),
    ({"retry-after-ms": "-300"}, 0)])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_retry_waits_as_long_as_it_is_asked_to_and_no_longer_than_the_limit(
    endpoint, monkeypatch, headers, least, status):
  waits = []
  sleep = asyncio.sleep

  async def noted(seconds, *rest):
    waits.append(seconds)
    await sleep(0)

  endpoint.script = [reply({}, status, headers), reply(completion())]
  monkeypatch.setattr("conductor_jax.workers.client.asyncio.sleep", noted)
  record = await call(endpoint, client={"longest_wait": 0.4, "backoff": 0.01})
  assert (record.outcome, record.attempts, record.possibly_billed) == ("answered", 2, 0)
  wait, = [seconds for seconds in waits if seconds]
  if least:
    assert wait == least
  else:
    assert 0 < wait <= 0.01
  assert endpoint.hits == 2


async def test_the_waits_without_advice_are_random_within_a_bound_that_doubles(
    endpoint, monkeypatch):
  waits = []
  sleep = asyncio.sleep

  async def noted(seconds, *rest):
    waits.append(seconds)
    await sleep(0)

  endpoint.script = [reply({}, 503)]
  monkeypatch.setattr("conductor_jax.workers.client.asyncio.sleep", noted)
  record = await call(endpoint, client={"max_attempts": 9, "backoff": 1.0, "longest_wait": 16.0,
                                        "breaker_failures": 100})
  assert (record.attempts, endpoint.hits) == (9, 9)
  shares = [seconds / min(2 ** i, 16) for i, seconds in enumerate(s for s in waits if s)]
  assert len(shares) == 8 and all(0 <= share <= 1 for share in shares)
  assert max(shares) - min(shares) > 0.1


async def ask_two(endpoint, first_url, **options):
  first = spec(first_url, name="first", model="first", fallbacks=("second",), **LIMITED)
  second = spec(endpoint.base_url, name="second", model="second", price_in=1.0, price_out=1.0)
  async with client_of(first, second, **options) as pool_client:
    return await pool_client.call(0, MESSAGES)


async def test_a_wait_above_the_limit_fails_over_at_once(endpoint):
  endpoint.script = [reply({}, 429, {"Retry-After": "3600"}), reply(completion())]
  began = time.monotonic()
  record = await ask_two(endpoint, endpoint.base_url, fallbacks=True, longest_wait=30.0)
  assert time.monotonic() - began < 30
  assert [body["model"] for body in endpoint.bodies] == ["first", "second"]
  assert (record.worker, record.fallback, record.outcome) == ("first", "second", "answered")
  assert (record.attempts, record.possibly_billed) == (2, 0)
  assert record.usage.cost == pytest.approx(1500e-6)


async def test_a_wait_within_the_limit_is_waited_for_though_there_is_a_fallback(endpoint):
  endpoint.script = [reply({}, 429, {"Retry-After": "0.01"}), reply(completion())]
  record = await ask_two(endpoint, endpoint.base_url, fallbacks=True)
  assert [body["model"] for body in endpoint.bodies] == ["first", "first"]
  assert (record.fallback, record.attempts) == (None, 2)


async def test_a_fallback_answers_after_all_attempts_and_what_they_may_have_cost_is_kept(endpoint):
  endpoint.script = [reset, reset, reset, reply(completion())]
  record = await ask_two(endpoint, endpoint.base_url, fallbacks=True)
  assert [body["model"] for body in endpoint.bodies] == ["first"] * 3 + ["second"]
  assert (record.worker, record.fallback, record.response) == ("first", "second", "four")
  assert (record.attempts, record.possibly_billed) == (4, 3)
  assert record.usage == Usage(
      1000, 500, pytest.approx(1500e-6), possible_cost=pytest.approx(3 * WORST))


async def test_no_fallback_is_asked_unless_they_are_on_nor_after_a_refusal(endpoint):
  record = await ask_two(endpoint, DEAD)
  assert (record.outcome, record.fallback, record.attempts) == ("unavailable", None, 3)
  assert endpoint.hits == 0
  endpoint.script = [reply({}, 400)]
  record = await ask_two(endpoint, endpoint.base_url, fallbacks=True)
  assert (record.outcome, record.fallback, endpoint.hits) == ("refused", None, 1)


async def test_where_no_fallback_answers_none_is_said_to_have(endpoint):
  endpoint.script = [reply({}, 503)]
  record = await ask_two(endpoint, DEAD, fallbacks=True)
  assert (record.worker, record.outcome, record.fallback) == ("first", "unavailable", None)
  assert (record.attempts, endpoint.hits) == (6, 3)


async def test_one_bound_on_attempts_holds_across_all_layers(endpoint):
  endpoint.script = [reset]
  async with client_of(spec(endpoint.base_url), breaker_failures=1000) as pool_client:
    records = await asyncio.gather(*(pool_client.call(0, MESSAGES) for _ in range(50)))
  assert {record.attempts for record in records} == {3}
  assert endpoint.hits == 150


async def test_an_error_that_is_no_text_is_still_one_line(endpoint):
  said = json.dumps({"error": "a\nb\r\n\tc" + "\u2028d" * 200}).encode()
  endpoint.script = [reply(said, 400)]
  record = await call(endpoint)
  assert record.error.startswith("HTTP 400: ") and len(record.error) == 300
  assert len(record.error.splitlines()) == 1
