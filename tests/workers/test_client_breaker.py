"""An endpoint that is down is left alone: how many requests reach it all the same."""

import asyncio

import pytest

from conductor_jax.workers.pool import Limits
from tests.workers.endpoint import DEAD, MESSAGES, client_of, completion, hang, reply, reset, spec

DOWN = {"reset": reset, "HTTP 500": reply({}, 500), "HTTP 503": reply({}, 503),
        "no answer": reply(b"<html>")}


def guarded(*specs, **options):
  return client_of(*specs, **{"breaker_failures": 5, "breaker_cooldown": 0.01,
                              "longest_wait": 0.02, **options})


async def test_those_who_wait_for_their_pace_do_not_reach_an_endpoint_that_went_down(endpoint):
  endpoint.script = [reset]
  paced = spec(endpoint.base_url, limits=Limits(concurrent=64, requests_per_minute=6000))
  async with guarded(paced, max_attempts=1, breaker_cooldown=60.0, longest_wait=60.0) as client:
    calls = [asyncio.create_task(client.call(0, MESSAGES)) for _ in range(100)]
    await asyncio.sleep(0.5)  # in which 48 would be sent
    assert 5 <= endpoint.hits < 12  # one or another was on its way
    for each in calls:
      each.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_those_who_wait_for_their_pace_leave_the_places_to_other_workers(endpoint):
  slow = spec(endpoint.base_url, name="slow", limits=Limits(requests_per_minute=3))
  async with client_of(slow, spec(endpoint.base_url), max_in_flight=2) as client:
    calls = [asyncio.create_task(client.call(0, MESSAGES)) for _ in range(8)]
    await until(lambda: endpoint.hits == 1)
    records = await asyncio.gather(*(client.call(1, MESSAGES) for _ in range(8)))
    assert {record.outcome for record in records} == {"answered"}
    assert endpoint.hits == 9
    for each in calls:
      each.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def until(condition):
  async with asyncio.timeout(10):
    while not condition():
      await asyncio.sleep(0.001)


@pytest.mark.parametrize("fault", DOWN.values(), ids=DOWN.keys())
async def test_of_many_calls_few_reach_an_endpoint_that_is_down(endpoint, fault):
  endpoint.script = [fault]
  limited = spec(endpoint.base_url, limits=Limits(concurrent=4))
  async with guarded(limited, max_attempts=3) as pool_client:
    records = await asyncio.gather(*(pool_client.call(0, MESSAGES) for _ in range(300)))
  assert {record.outcome for record in records} == {"unavailable"}
  # Five open it, three more were under way, and each of the three chances that a call has left is
  # one probe, which all others wait for.
  assert 5 <= endpoint.hits <= 5 + 3 + 4
  assert sum(record.attempts for record in records) == endpoint.hits
  told = {record.error for record in records if record.attempts == 0}
  assert told == {f"{endpoint.base_url} is down: it failed again and again, and once more when it "
                  "was probed"}


async def test_refused_connections_open_it_for_all_workers_of_the_endpoint():
  specs = [spec(DEAD, name=name, limits=Limits(concurrent=2)) for name in "ab"]
  async with guarded(*specs) as pool_client:
    records = await asyncio.gather(*(pool_client.call(i % 2, MESSAGES) for i in range(100)))
  assert {record.outcome for record in records} == {"unavailable"}
  assert sum(record.attempts for record in records) <= 5 + 3 + 4


async def test_one_probe_goes_first_and_when_it_succeeds_all_go_through(endpoint):
  release = asyncio.Event()

  async def slow(request):
    await release.wait()
    return await reply(completion())(request)

  endpoint.script = [reply({}, 500)] * 5 + [slow, reply(completion())]
  async with guarded(spec(endpoint.base_url), max_attempts=1) as pool_client:
    for _ in range(5):
      assert (await pool_client.call(0, MESSAGES)).outcome == "unavailable"
    calls = [asyncio.create_task(pool_client.call(0, MESSAGES)) for _ in range(50)]
    await until(lambda: endpoint.hits == 6)
    await asyncio.sleep(0.1)  # ten times the wait for a probe
    assert endpoint.hits == 6
    release.set()
    records = await asyncio.gather(*calls)
  assert {record.outcome for record in records} == {"answered"}
  assert {record.attempts for record in records} == {1}
  assert endpoint.hits == 55


async def test_a_probe_that_fails_ends_one_chance_of_each_call_that_waited(endpoint):
  endpoint.script = [reply({}, 500)] * 6 + [reply(completion())]
  async with guarded(spec(endpoint.base_url), max_attempts=2) as pool_client:
    for _ in range(2):  # two attempts each
      await pool_client.call(0, MESSAGES)
    records = await asyncio.gather(*(pool_client.call(0, MESSAGES) for _ in range(20)))
  assert {record.outcome for record in records} == {"answered"}
  assert sorted(record.attempts for record in records)[:18] == [1] * 18
  assert sum(record.attempts for record in records) + 4 == endpoint.hits


async def test_the_wait_for_a_probe_doubles(endpoint):
  endpoint.script = [reply({}, 500)]
  arrivals = []
  loop = asyncio.get_running_loop()

  async def note(request):
    arrivals.append(loop.time())
    return await reply({}, 500)(request)

  endpoint.script = [note]
  async with guarded(spec(endpoint.base_url), max_attempts=5, breaker_failures=1,
                     breaker_cooldown=0.02, longest_wait=0.08, backoff=0.0) as pool_client:
    await pool_client.call(0, MESSAGES)
  waits = [later - first for first, later in zip(arrivals, arrivals[1:], strict=False)]
  assert len(waits) == 4
  assert all(wait >= least for wait, least in zip(waits, (0.02, 0.04, 0.08, 0.08), strict=True))


async def test_a_probe_that_is_cancelled_hands_over_to_another_call(endpoint):
  endpoint.script = [reply({}, 500)] * 5 + [hang, reply(completion())]
  async with guarded(spec(endpoint.base_url), max_attempts=1) as pool_client:
    for _ in range(5):
      await pool_client.call(0, MESSAGES)
    probe = asyncio.create_task(pool_client.call(0, MESSAGES))
    await until(lambda: endpoint.hits == 6)
    others = [asyncio.create_task(pool_client.call(0, MESSAGES)) for _ in range(10)]
    await asyncio.sleep(0.01)
    probe.cancel()
    records = await asyncio.wait_for(asyncio.gather(*others), 5)
  assert {record.outcome for record in records} == {"answered"}
  assert endpoint.hits == 16


@pytest.mark.parametrize("limits", [
    {"max_in_flight": 1}, {"limits": Limits(concurrent=1)}], ids=["of all", "of the worker"])
async def test_a_probe_that_is_cancelled_while_it_waits_for_a_place_hands_over(endpoint, limits):
  """The only place is held by a call of another endpoint, or of before it went down."""
  worker = {"limits": limits.pop("limits")} if "limits" in limits else {}
  endpoint.script = [hang, reply(completion())]
  specs = [spec(endpoint.base_url, **worker),
           spec(endpoint.base_url.replace("127.0.0.1", "localhost"), name="other"),
           spec(endpoint.base_url, name="same")]
  async with guarded(*specs, max_attempts=1, **limits) as pool_client:
    breaker = pool_client._asked[0][0].breaker
    holder = asyncio.create_task(pool_client.call(0 if worker else 1, MESSAGES))
    await until(lambda: endpoint.hits == 1)
    for _ in range(5):
      breaker.report("yes", False)
    probe = asyncio.create_task(pool_client.call(0, MESSAGES))
    await until(lambda: breaker._probe is not None)
    other = asyncio.create_task(pool_client.call(2, MESSAGES))
    await asyncio.sleep(0.01)
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    holder.cancel()
    record = await asyncio.wait_for(other, 5)
  assert (record.outcome, endpoint.hits) == ("answered", 2)


@pytest.mark.parametrize("status", [400, 404, 409, 429])
async def test_an_endpoint_that_answers_with_a_refusal_is_not_down(endpoint, status):
  endpoint.script = [reply({}, status)]
  async with guarded(spec(endpoint.base_url), max_attempts=1) as pool_client:
    records = [await pool_client.call(0, MESSAGES) for _ in range(20)]
  assert {record.attempts for record in records} == {1}
  assert endpoint.hits == 20


async def test_calls_under_way_are_not_cut_when_it_opens(endpoint):
  release = asyncio.Event()

  async def slow(request):
    await release.wait()
    return await reply(completion())(request)

  endpoint.script = [slow] * 10 + [reply({}, 500)] * 5 + [reply(completion())]
  async with guarded(spec(endpoint.base_url), max_attempts=1,
                     breaker_cooldown=60.0, longest_wait=60.0) as pool_client:
    early = [asyncio.create_task(pool_client.call(0, MESSAGES)) for _ in range(10)]
    await until(lambda: endpoint.hits == 10)
    for _ in range(5):
      await pool_client.call(0, MESSAGES)
    late = asyncio.create_task(pool_client.call(0, MESSAGES))
    await asyncio.sleep(0.02)
    assert endpoint.hits == 15 and not late.done()
    release.set()
    records = await asyncio.gather(*early)
    assert {record.outcome for record in records} == {"answered"}
    # Their success is a sign of life, which it need not be probed for.
    assert (await asyncio.wait_for(late, 5)).outcome == "answered"
  assert endpoint.hits == 16


async def test_a_deadline_holds_while_an_endpoint_is_down(endpoint):
  endpoint.script = [reply({}, 500)]
  async with guarded(spec(endpoint.base_url), max_attempts=1,
                     breaker_cooldown=60.0, longest_wait=60.0) as pool_client:
    for _ in range(5):
      await pool_client.call(0, MESSAGES)
    deadline = asyncio.get_running_loop().time() + 0.05
    record = await asyncio.wait_for(pool_client.call(0, MESSAGES, deadline=deadline), 5)
  assert (record.outcome, record.attempts) == ("unavailable", 0)
  assert record.error == "the workflow's deadline passed"
  assert endpoint.hits == 5


async def test_an_endpoint_that_is_down_takes_no_place_from_another(endpoint):
  dead, alive = spec(DEAD, name="dead"), spec(endpoint.base_url, name="alive")
  async with guarded(dead, alive, max_in_flight=2, max_attempts=1,
                     breaker_cooldown=60.0, longest_wait=60.0) as pool_client:
    down = [asyncio.create_task(pool_client.call(0, MESSAGES)) for _ in range(20)]
    await until(lambda: sum(task.done() for task in down) >= 5)
    records = await asyncio.wait_for(
        asyncio.gather(*(pool_client.call(1, MESSAGES) for _ in range(20))), 5)
    for task in down:
      task.cancel()
  assert {record.outcome for record in records} == {"answered"}
  assert endpoint.hits == 20
