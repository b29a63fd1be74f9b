import asyncio

import aiohttp
import pytest
from aiohttp import web

from conductor_jax.errors import UserError
from conductor_jax.workers.call import Usage
from conductor_jax.workers.client import wait_before
from conductor_jax.workers.pool import Limits
from tests.workers.endpoint import (
    DEAD,
    MESSAGES,
    call,
    client_of,
    completion,
    hang,
    reply,
    reset,
    spec,
)


async def test_an_answer_is_recorded_with_its_request_usage_and_cost(endpoint):
  record = await call(endpoint, seed=7, sampling={"temperature": 0.2, "max_tokens": 64})
  sent = {"model": "m", "temperature": 0.2, "max_tokens": 64, "messages": MESSAGES, "seed": 7}
  assert endpoint.bodies == [sent]
  assert record.request == sent
  assert (record.worker, record.response, record.outcome) == ("solver", "four", "answered")
  assert record.usage == Usage(1000, 500, pytest.approx(1000 * 2e-6 + 500 * 10e-6))
  assert (record.attempts, record.possibly_billed, record.error) == (1, 0, None)
  assert (record.source, record.fallback, record.reasoning) == ("endpoint", None, "")
  assert record.latency > 0


async def test_no_seed_and_no_key_are_sent_unless_given(endpoint):
  await call(endpoint)
  assert "seed" not in endpoint.bodies[0]
  assert "Authorization" not in endpoint.headers[0]


async def test_cached_and_reasoning_tokens_are_counted_and_cost_what_they_cost(endpoint):
  usage = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500,
           "prompt_tokens_details": {"cached_tokens": 400},
           "completion_tokens_details": {"reasoning_tokens": 300}}
  endpoint.script = [reply(completion(usage=usage))]
  record = await call(endpoint, price_cached=0.5, price_reasoning=20.0)
  # 600 * 2 + 400 * 0.5 + 200 * 10 + 300 * 20 dollars per million tokens.
  assert record.usage == Usage(1000, 500, pytest.approx(9400e-6), 400, 300)


@pytest.mark.parametrize(("attempt", "asked", "jitter", "seconds"), [
    (2, None, 0.5, 0.25), (3, None, 0.5, 0.5), (4, None, 1.0, 2.0), (9, None, 0.5, 30.0),
    (900, None, 1.0, 60.0), (2, 7.0, 0.0, 7.0), (2, 1e9, 0.0, 60.0), (2, float("inf"), 0.5, 60.0)])
def test_waits_double_with_full_jitter_unless_the_endpoint_asks(attempt, asked, jitter, seconds):
  assert wait_before(attempt, asked, jitter, backoff=0.5, longest=60.0) == seconds


@pytest.mark.parametrize(("changes", "named"), [
    ({"base_url": "127.0.0.1:8000/v1"}, "127.0.0.1:8000/v1"),
    ({"base_url": "http://"}, "base_url"),
    ({"base_url": "http://host:99999/v1"}, "99999"),
    ({"sampling": {"stream": True}}, "stream"),
    ({"sampling": {"messages": []}}, "messages"),
    ({"sampling": {"n": 2}}, "sampling may not set n"),
])
def test_settings_that_cannot_work_are_refused_by_name(changes, named):
  with pytest.raises(UserError, match=named):
    client_of(spec(**{"base_url": "http://host/v1", **changes}))


def test_a_client_that_may_not_ask_even_once_is_refused():
  with pytest.raises(UserError, match="max_attempts must be at least 1, got 0"):
    client_of(spec(DEAD), max_attempts=0)


async def test_no_more_than_the_allowed_calls_of_a_worker_are_in_flight(endpoint):
  endpoint.script = [reply(completion(), seconds=0.01)]
  async with client_of(spec(endpoint.base_url, limits=Limits(concurrent=3))) as pool_client:
    records = await asyncio.gather(*(pool_client.call(0, MESSAGES) for _ in range(20)))
    assert pool_client.activity.in_flight == 0
    assert pool_client.activity.calls == {"solver": 20}
    assert pool_client.activity.cost == pytest.approx(20 * 0.007)
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


async def test_all_workers_together_keep_to_the_bound_of_the_client(endpoint):
  endpoint.script = [reply(completion(), seconds=0.01)]
  specs = [spec(endpoint.base_url, name=name) for name in "abc"]
  async with client_of(*specs, max_in_flight=4) as pool_client:
    records = await asyncio.gather(*(pool_client.call(i % 3, MESSAGES) for i in range(30)))
  assert {record.outcome for record in records} == {"answered"}
  assert (endpoint.hits, endpoint.most_in_flight) == (30, 4)


async def test_a_group_of_few_calls_does_not_wait_behind_one_of_many(endpoint):
  endpoint.script = [reply(completion(), seconds=0.001)]
  async with client_of(spec(endpoint.base_url, limits=Limits(concurrent=1))) as pool_client:
    many = [asyncio.create_task(pool_client.call(0, MESSAGES, group="many")) for _ in range(50)]
    while endpoint.hits == 0:
      await asyncio.sleep(0)
    await pool_client.call(0, MESSAGES, group="few")
    # The one in flight and at most one that had the turn were asked before, and one may be under
    # way by now.
    assert endpoint.hits <= 4
    await asyncio.gather(*many)
  assert endpoint.hits == 51


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


async def test_cancelling_a_call_closes_its_connection_and_counts_it_as_possibly_billed(endpoint):
  endpoint.script = [hang]
  async with client_of(spec(endpoint.base_url)) as pool_client:
    task = asyncio.create_task(pool_client.call(0, MESSAGES))
    while endpoint.in_flight == 0:
      await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
      await task
    await asyncio.wait_for(endpoint.disconnected.wait(), 5)
    spent = pool_client.budget.spending()["solver"]
    assert (spent.calls, spent.possibly_billed, spent.cost) == (1, 1, 0)
    assert pool_client.activity.in_flight == 0
  assert endpoint.hits == 1


async def test_a_deadline_ends_a_call_closes_its_connection_and_counts_every_attempt(endpoint):
  endpoint.script = [reset, hang]
  limited = {"sampling": {"max_tokens": 100}}
  record = await call(endpoint, deadline=0.3, **limited)
  await asyncio.wait_for(endpoint.disconnected.wait(), 5)
  assert (record.outcome, record.error) == ("unavailable", "the workflow's deadline passed")
  assert (record.attempts, record.possibly_billed, endpoint.hits) == (2, 2, 2)
  assert record.usage.cost == 0
  # 14 bytes of question and 80 for the chat's template at $2, and 100 tokens at $10, twice.
  assert record.usage.possible_cost == pytest.approx(2 * (94 * 2e-6 + 100 * 10e-6))


async def test_a_deadline_that_has_passed_sends_nothing(endpoint):
  record = await call(endpoint, deadline=-1.0)
  assert (record.outcome, record.attempts, record.possibly_billed) == ("unavailable", 0, 0)
  assert (record.usage, record.latency, endpoint.hits) == (Usage(), 0.0, 0)


async def test_workers_of_one_endpoint_share_one_session(endpoint, monkeypatch):
  opened = []
  original = aiohttp.ClientSession.__init__

  def counting(self, *args, **kwargs):
    opened.append(self)
    original(self, *args, **kwargs)

  monkeypatch.setattr(aiohttp.ClientSession, "__init__", counting)
  specs = [spec(endpoint.base_url, name="a", model="m1"),
           spec(endpoint.base_url, name="b", model="m2"), spec(DEAD, name="c")]
  async with client_of(*specs) as pool_client:
    for worker in (0, 1):
      await pool_client.call(worker, MESSAGES)
  assert [body["model"] for body in endpoint.bodies] == ["m1", "m2"]
  assert len(opened) == 2
  assert all(session.closed for session in opened)


async def test_calls_one_after_the_other_use_one_connection(endpoint):
  peers = set()

  async def note(request):
    peers.add(request.transport.get_extra_info("peername"))
    return web.json_response(completion())

  endpoint.script = [note]
  async with client_of(spec(endpoint.base_url)) as pool_client:
    for _ in range(20):
      await pool_client.call(0, MESSAGES)
  assert (endpoint.hits, len(peers)) == (20, 1)
