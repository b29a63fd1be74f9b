import asyncio
import json
import logging

import aiohttp
import pytest
from aiohttp import web

from conductor_jax.errors import UserError
from conductor_jax.workers.call import Usage
from conductor_jax.workers.client import PoolClient, wait_before
from conductor_jax.workers.pool import Limits, Pool, WorkerSpec

MESSAGES = [{"role": "user", "content": "What is 2 + 2?"}]
CANARY = "sk-canary-0123456789abcdef"


def completion(content="four", finish_reason="stop", **body):
  message = {"role": "assistant", "content": content}
  usage = {"prompt_tokens": 1000, "completion_tokens": 500}
  choices = [{"index": 0, "message": message, "finish_reason": finish_reason}]
  return {"choices": choices, "usage": usage, **body}


def reply(body, status=200, headers=None):
  """An endpoint's behaviour: answers with a body, an object as JSON and bytes as they are."""

  async def behave(request):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return web.Response(body=data, status=status, headers=headers)

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
  """A chat endpoint that behaves as scripted, request by request; the last entry repeats."""

  def __init__(self):
    self.script = [reply(completion())]
    self.bodies = []
    self.headers = []
    self.in_flight = 0
    self.most_in_flight = 0
    self.disconnected = asyncio.Event()

  @property
  def hits(self):
    return len(self.bodies)

  async def handle(self, request):
    behave = self.script[min(self.hits, len(self.script) - 1)]
    self.bodies.append(await request.json())
    self.headers.append(request.headers)
    self.in_flight += 1
    self.most_in_flight = max(self.most_in_flight, self.in_flight)
    try:
      return await behave(request)
    except asyncio.CancelledError:
      self.disconnected.set()
      raise
    finally:
      self.in_flight -= 1


@pytest.fixture
async def endpoint():
  served = Endpoint()
  app = web.Application()
  app.router.add_post("/v1/chat/completions", served.handle)
  runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
  await runner.setup()
  site = web.TCPSite(runner, "127.0.0.1", 0)
  await site.start()
  served.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
  yield served
  await runner.cleanup()


def spec(base_url, **changes):
  fields = {"name": "solver", "model": "m", "price_in": 2.0, "price_out": 10.0, **changes}
  return WorkerSpec(base_url=base_url, **fields)


def client_of(*specs, request_timeout=5.0, max_attempts=3, backoff=0.001, longest_wait=0.01):
  return PoolClient(
      Pool(specs), request_timeout=request_timeout, max_attempts=max_attempts, backoff=backoff,
      longest_wait=longest_wait)


async def call(endpoint, *, seed=None, client=None, **changes):
  async with client_of(spec(endpoint.base_url, **changes), **(client or {})) as pool_client:
    return await pool_client.call(0, MESSAGES, seed=seed)


async def test_an_answer_is_recorded_with_its_request_usage_and_cost(endpoint):
  record = await call(endpoint, seed=7, sampling={"temperature": 0.2, "max_tokens": 64})
  sent = {"model": "m", "temperature": 0.2, "max_tokens": 64, "messages": MESSAGES, "seed": 7}
  assert endpoint.bodies == [sent]
  assert record.request == sent
  assert (record.worker, record.response, record.outcome) == ("solver", "four", "answered")
  assert record.usage == Usage(1000, 500, pytest.approx(1000 * 2e-6 + 500 * 10e-6))
  assert (record.attempts, record.error) == (1, None)
  assert record.latency > 0


async def test_no_seed_and_no_key_are_sent_unless_given(endpoint):
  await call(endpoint)
  assert "seed" not in endpoint.bodies[0]
  assert "Authorization" not in endpoint.headers[0]


RETRIED = {
    "reset": reset,
    "body cut off": break_off,
    **{f"HTTP {status}": reply({}, status) for status in (408, 409, 429, 500, 502, 503, 529)},
    "redirect": reply({}, 302, {"Location": "http://127.0.0.1:1/"}),
    "error in a 200": reply({"error": {"message": "overloaded"}}),
    "error beside choices": reply(completion(error="overloaded")),
    "HTML": reply(b"<html>gateway</html>"),
    "empty body": reply(b""),
    "not UTF-8": reply(b'{"choices": "\xff"}'),
    "endless nesting": reply(b"[" * 100_000),
    "JSON of another kind": reply([1]),
    "choices null": reply(completion(choices=None)),
    "choices empty": reply(completion(choices=[])),
    "choices of another kind": reply(completion(choices=["four"])),
    "no choices": reply({"usage": None}),
    "message null": reply(completion(choices=[{"message": None}])),
    "content of another kind": reply(completion(content=4)),
}


@pytest.mark.parametrize("fault", RETRIED.values(), ids=RETRIED.keys())
async def test_a_passing_fault_is_retried(endpoint, fault):
  endpoint.script = [fault, fault, reply(completion())]
  record = await call(endpoint)
  assert (record.outcome, record.response, record.attempts) == ("answered", "four", 3)
  assert endpoint.hits == 3


@pytest.mark.parametrize("fault", RETRIED.values(), ids=RETRIED.keys())
async def test_a_lasting_fault_is_unavailable_after_all_attempts(endpoint, fault):
  endpoint.script = [fault]
  record = await call(endpoint, client={"max_attempts": 2})
  assert (record.outcome, record.response, record.attempts) == ("unavailable", "", 2)
  assert record.usage == Usage()
  assert record.error and "\n" not in record.error and len(record.error) <= 300
  assert endpoint.hits == 2


async def test_an_attempt_that_takes_too_long_is_retried(endpoint):
  endpoint.script = [hang, reply(completion())]
  record = await call(endpoint, client={"request_timeout": 0.1})
  assert (record.outcome, record.attempts, endpoint.hits) == ("answered", 2, 2)


async def test_a_refused_connection_is_unavailable(endpoint):
  async with client_of(spec("http://127.0.0.1:1/v1")) as pool_client:
    record = await pool_client.call(0, MESSAGES)
  assert (record.outcome, record.attempts) == ("unavailable", 3)
  assert "127.0.0.1" in record.error
  assert endpoint.hits == 0


@pytest.mark.parametrize("status", [400, 405, 413, 422])
async def test_other_client_errors_are_refused_without_a_retry(endpoint, status):
  endpoint.script = [reply({"error": {"message": "too long"}}, status)]
  record = await call(endpoint)
  assert (record.outcome, record.attempts, endpoint.hits) == ("refused", 1, 1)
  assert f"HTTP {status}" in record.error and "too long" in record.error


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
  assert record.error.startswith(f"HTTP {status}: ") and remedy in record.error
  assert "go away" in record.error and len(record.error) <= 300


@pytest.mark.parametrize("status", [401, 403])
async def test_an_endpoint_that_wants_a_key_where_none_is_named_says_so(endpoint, status):
  endpoint.script = [reply({}, status)]
  record = await call(endpoint)
  assert record.error == (
      f"HTTP {status}: name the environment variable that holds a key in api_key_env of worker "
      "'solver': {}")


@pytest.mark.parametrize(("content", "reason", "response", "outcome"), [
    (None, "stop", "", "answered"),
    (None, "length", "", "truncated"),
    ("fou", "length", "fou", "truncated"),
    ("<think>2 and 2</think>\n\nfour", "stop", "four", "answered"),
    ("<think>2 and", "length", "", "truncated"),
    (" four\n", None, " four\n", "answered"),
    ("vier 🤔 \ud83d", "stop", "vier 🤔 ?", "answered"),
])
async def test_what_counts_as_the_answer(endpoint, content, reason, response, outcome):
  body = completion(content, reason)
  body["choices"][0]["message"]["reasoning_content"] = "secret thoughts"
  endpoint.script = [reply(body)]
  record = await call(endpoint)
  assert (record.response, record.outcome, record.attempts) == (response, outcome, 1)


@pytest.mark.parametrize("header", [
    "1000000000", "inf", "-5", "nonsense", "Fri, 31 Dec 2100 23:59:59 GMT"])
async def test_no_retry_after_makes_a_call_wait_longer_than_the_limit(endpoint, header):
  endpoint.script = [reply({}, 429, {"Retry-After": header}), reply(completion())]
  record = await asyncio.wait_for(call(endpoint), 5)
  assert (record.outcome, record.attempts) == ("answered", 2)


@pytest.mark.parametrize(("attempt", "asked", "jitter", "seconds"), [
    (2, None, 0.5, 0.25), (3, None, 0.5, 0.5), (4, None, 1.0, 2.0), (9, None, 0.5, 30.0),
    (900, None, 1.0, 60.0), (2, 7.0, 0.0, 7.0), (2, 1e9, 0.0, 60.0), (2, float("inf"), 0.5, 60.0)])
def test_waits_double_with_full_jitter_unless_the_endpoint_asks(attempt, asked, jitter, seconds):
  assert wait_before(attempt, asked, jitter, backoff=0.5, longest=60.0) == seconds


async def test_the_key_is_sent_and_never_shown(endpoint, monkeypatch, caplog):
  caplog.set_level(logging.DEBUG)
  monkeypatch.setenv("SOLVER_KEY", CANARY)
  echo = {"error": {"message": f"Incorrect API key provided: {CANARY}."}}
  padding = "x" * 290  # the key would be cut at the end of the error line
  shown = []
  for behaviour in (reply(completion()), reply(echo, 401), reply(echo, 500), reply(echo),
                    reply(completion(f"Bearer {CANARY}")), reply((padding + CANARY).encode(), 400),
                    reset):
    endpoint.script = [behaviour]
    endpoint.bodies.clear()
    async with client_of(spec(endpoint.base_url, api_key_env="SOLVER_KEY")) as pool_client:
      record = await pool_client.call(0, MESSAGES)
      shown += [repr(record), repr(pool_client), repr(vars(pool_client)), str(record.error)]
  assert {headers["Authorization"] for headers in endpoint.headers} == {f"Bearer {CANARY}"}
  text = "".join(shown) + caplog.text
  assert CANARY not in text
  assert CANARY[:10] not in text
  assert "[key]" in text


async def test_a_placeholder_key_does_not_change_answers(endpoint, monkeypatch):
  monkeypatch.setenv("SOLVER_KEY", "EMPTY")
  endpoint.script = [reply(completion("The set is EMPTY."))]
  record = await call(endpoint, api_key_env="SOLVER_KEY")
  assert record.response == "The set is EMPTY."


async def test_a_missing_key_is_named_before_any_call(monkeypatch):
  monkeypatch.delenv("SOLVER_KEY", raising=False)
  with pytest.raises(UserError, match="SOLVER_KEY"):
    client_of(spec("http://127.0.0.1:1/v1", api_key_env="SOLVER_KEY"))


@pytest.mark.parametrize("key", [f"{CANARY}\n", f"{CANARY}\r\nX: y", f"{CANARY} ", f"é{CANARY}"])
def test_a_key_that_no_header_may_carry_is_refused_without_showing_it(monkeypatch, key):
  monkeypatch.setenv("SOLVER_KEY", key)
  with pytest.raises(UserError, match="SOLVER_KEY") as caught:
    client_of(spec("http://127.0.0.1:1/v1", api_key_env="SOLVER_KEY"))
  assert CANARY not in str(caught.value)


@pytest.mark.parametrize(("changes", "named"), [
    ({"base_url": "127.0.0.1:8000/v1"}, "127.0.0.1:8000/v1"),
    ({"base_url": "http://"}, "base_url"),
    ({"base_url": "http://host:99999/v1"}, "99999"),
    ({"limits": {}}, "concurrent"),
    ({"limits": {"concurrent": 0}}, "concurrent"),
    ({"sampling": {"stream": True}}, "stream"),
    ({"sampling": {"messages": []}}, "messages"),
])
def test_settings_that_cannot_work_are_refused_by_name(changes, named):
  with pytest.raises(UserError, match=named):
    client_of(spec(**{"base_url": "http://host/v1", **changes}))


async def test_no_more_than_the_allowed_calls_of_a_worker_are_in_flight(endpoint):

  async def slow(request):
    await asyncio.sleep(0.01)
    return await reply(completion())(request)

  endpoint.script = [slow]
  limited = spec(endpoint.base_url, limits=Limits(concurrent=3))
  async with client_of(limited) as pool_client:
    records = await asyncio.gather(*(pool_client.call(0, MESSAGES) for _ in range(20)))
  assert {record.outcome for record in records} == {"answered"}
  assert (endpoint.hits, endpoint.most_in_flight) == (20, 3)


async def test_the_limit_is_each_workers_own(endpoint):
  together = asyncio.Barrier(2)

  async def meet(request):
    await together.wait()
    return await reply(completion())(request)

  endpoint.script = [meet]
  alone = [spec(endpoint.base_url, name=name, limits=Limits(concurrent=1)) for name in "ab"]
  async with client_of(*alone) as pool_client:
    records = await asyncio.gather(*(pool_client.call(i, MESSAGES) for i in (0, 1)))
  assert [record.worker for record in records] == ["a", "b"]
  assert endpoint.most_in_flight == 2


async def test_a_call_that_waits_to_retry_leaves_its_place(endpoint):
  endpoint.script = [reply({}, 429, {"Retry-After": "1000"}), reply(completion())]
  limited = spec(endpoint.base_url, limits=Limits(concurrent=1))
  async with client_of(limited, longest_wait=1000) as pool_client:
    waiting = asyncio.create_task(pool_client.call(0, MESSAGES))
    while endpoint.hits == 0:
      await asyncio.sleep(0.001)
    record = await asyncio.wait_for(pool_client.call(0, MESSAGES), 5)
    waiting.cancel()
  assert record.outcome == "answered"


async def test_cancelling_a_call_closes_its_connection(endpoint):
  endpoint.script = [hang]
  async with client_of(spec(endpoint.base_url)) as pool_client:
    task = asyncio.create_task(pool_client.call(0, MESSAGES))
    while endpoint.in_flight == 0:
      await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
      await task
    await asyncio.wait_for(endpoint.disconnected.wait(), 5)
  assert endpoint.hits == 1


async def test_workers_of_one_endpoint_share_one_session(endpoint, monkeypatch):
  opened = []
  original = aiohttp.ClientSession.__init__

  def counting(self, *args, **kwargs):
    opened.append(self)
    original(self, *args, **kwargs)

  monkeypatch.setattr(aiohttp.ClientSession, "__init__", counting)
  specs = [spec(endpoint.base_url, model="a"), spec(endpoint.base_url, model="b"),
           spec("http://127.0.0.1:1/v1")]
  async with client_of(*specs) as pool_client:
    for worker in (0, 1):
      await pool_client.call(worker, MESSAGES)
  assert [body["model"] for body in endpoint.bodies] == ["a", "b"]
  assert len(opened) == 2
  assert all(session.closed for session in opened)
