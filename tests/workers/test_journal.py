"""What stands in a journal, and what is taken from it."""

import asyncio
import contextlib
import json
import sqlite3
from dataclasses import replace

import pytest

from conductor_jax.errors import UserError
from conductor_jax.workers.budget import Allowance, Budget, Spending
from conductor_jax.workers.journal import Attempt, Journal
from tests.workers.endpoint import (
    DEAD,
    MESSAGES,
    Endpoint,
    client_of,
    completion,
    reply,
    reset,
    serve,
    spec,
)

# Of MESSAGES: 14 bytes, and room for the template of one message.
PROMPT_AT_MOST = 64 + 16 + 14


@contextlib.asynccontextmanager
async def recording(path, *specs, mode="record", **changes):
  """A client that writes a journal."""
  async with Journal(path, mode) as journal:
    async with client_of(*specs, journal=journal, **changes) as client:
      yield client


async def call(path, worker, *, mode="record", seed=None, messages=MESSAGES, **changes):
  """One call in a run of its own."""
  async with recording(path, worker, mode=mode, **changes) as client:
    return await client.call(0, messages, seed=seed)


def rows(path):
  with contextlib.closing(sqlite3.connect(path)) as connection:
    connection.row_factory = sqlite3.Row
    return connection.execute("SELECT * FROM attempts ORDER BY id").fetchall()


def column(path, name):
  return [row[name] for row in rows(path)]


def numbered(endpoint):
  """Lets an endpoint answer "answer 1", "answer 2", ..."""
  endpoint.script = [reply(completion(f"answer {number}")) for number in range(1, 10)]


@pytest.fixture
def path(tmp_path):
  return tmp_path / "journal.sqlite"


async def test_an_attempt_is_a_row_with_what_was_sent_what_came_and_what_it_cost(endpoint, path):
  usage = {"prompt_tokens": 1000, "completion_tokens": 500,
           "prompt_tokens_details": {"cached_tokens": 400},
           "completion_tokens_details": {"reasoning_tokens": 300}}
  endpoint.script = [reply(completion(usage=usage))]
  record = await call(path, spec(endpoint.base_url, price_cached=1.0), seed=7)
  (row,) = rows(path)
  assert json.loads(row["request"]) == endpoint.bodies[0] == record.request
  assert json.loads(row["response"]) == completion(usage=usage)
  assert (row["worker"], row["seed"], row["outcome"], row["status"], row["error"]) == (
      "solver", 7, "answered", 200, None)
  assert (row["prompt_tokens"], row["completion_tokens"], row["cached_tokens"],
          row["reasoning_tokens"], row["estimated"]) == (1000, 500, 400, 300, 0)
  assert row["cost"] == record.usage.cost == pytest.approx(600 * 2e-6 + 400 * 1e-6 + 500 * 10e-6)
  assert (row["possible_tokens"], row["possible_cost"]) == (0, 0.0)
  assert 0 < row["seconds"] <= record.latency * 1.5 + 0.01
  assert 1.7e9 < row["began"] < 1e10
  assert len(row["key"]) == 16


async def test_every_attempt_has_a_row_and_those_that_may_have_been_billed_their_worst_case(
    endpoint, path):
  endpoint.script = [reply({}, 429), reply(b"out of order", 500), reset, reply(completion())]
  worker = spec(endpoint.base_url, sampling={"max_tokens": 100})
  record = await call(path, worker, max_attempts=4)
  assert column(path, "outcome") == ["failed", "failed", "failed", "answered"]
  assert column(path, "status") == [429, 500, None, 200]
  assert column(path, "response")[:3] == [b"{}", b"out of order", None]
  assert column(path, "error")[1] == "HTTP 500: out of order"
  assert len(set(column(path, "key"))) == 1
  worst = PROMPT_AT_MOST * 2e-6 + 100 * 10e-6
  assert column(path, "possible_tokens") == [0, PROMPT_AT_MOST + 100, PROMPT_AT_MOST + 100, 0]
  assert column(path, "possible_cost") == pytest.approx([0, worst, worst, 0])
  assert record.usage.possible_cost == pytest.approx(2 * worst)
  assert (record.attempts, record.possibly_billed, endpoint.hits) == (4, 2, 4)


async def test_no_connection_costs_nothing(path):
  await call(path, spec(DEAD), max_attempts=2)
  assert column(path, "outcome") == ["failed"] * 2
  assert column(path, "possible_cost") == [0.0, 0.0]


@pytest.mark.parametrize(("behaviour", "outcome"), [
    (reply(completion(finish_reason="length")), "truncated"),
    (reply({"error": "too long"}, 400), "refused"), (reply({}, 401), "failed")])
async def test_an_outcome_is_that_of_the_attempt(endpoint, path, behaviour, outcome):
  endpoint.script = [behaviour]
  await call(path, spec(endpoint.base_url))
  assert column(path, "outcome") == [outcome]


async def test_tokens_that_are_not_reported_are_estimated_and_marked(endpoint, path):
  endpoint.script = [reply(completion("x" * 40, usage=None))]
  record = await call(path, spec(endpoint.base_url))
  (row,) = rows(path)
  prompt = -(-len(row["request"]) // 4)
  assert (row["estimated"], row["prompt_tokens"], row["completion_tokens"]) == (1, prompt, 10)
  assert row["cost"] == record.usage.cost == pytest.approx(prompt * 2e-6 + 10 * 10e-6)


OTHER_CALLS = {
    "max_tokens": {"sampling": {"max_tokens": 99, "temperature": 0.5}},
    "temperature": {"sampling": {"max_tokens": 100, "temperature": 0.6}},
    "top_p": {"sampling": {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9}},
    "stop": {"sampling": {"max_tokens": 100, "temperature": 0.5, "stop": ["\n"]}},
    "reasoning_effort": {
        "sampling": {"max_tokens": 100, "temperature": 0.5, "reasoning_effort": "low"}},
    "model": {"model": "m2"},
    "name": {"name": "other"},
    "stream": {"stream": True},
}


@pytest.mark.parametrize("changes", OTHER_CALLS.values(), ids=OTHER_CALLS.keys())
async def test_another_model_worker_or_sampling_parameter_is_another_call(
    endpoint, path, changes):
  sampling = {"max_tokens": 100, "temperature": 0.5}
  numbered(endpoint)
  await call(path, spec(endpoint.base_url, sampling=sampling), seed=1)
  worker = spec(endpoint.base_url, **{"sampling": sampling, **changes})
  record = await call(path, worker, seed=1, mode="replay-or-record")
  assert (record.response, endpoint.hits, len(set(column(path, "key")))) == ("answer 2", 2, 2)


@pytest.mark.parametrize("family", ["openai", "gemini"])  # Google's endpoint takes no seed
async def test_calls_with_different_seeds_are_different_calls(endpoint, path, family):
  numbered(endpoint)
  worker = spec(endpoint.base_url, dialect=family)
  for seed in (1, 2, None):
    await call(path, worker, seed=seed)
  assert column(path, "seed") == [1, 2, None]
  assert len(set(column(path, "key"))) == 3
  assert ("seed" in endpoint.bodies[0]) is (family == "openai")
  answers = [(await call(path, worker, mode="replay", seed=seed)).response for seed in (2, None, 1)]
  assert (answers, endpoint.hits) == (["answer 2", "answer 3", "answer 1"], 3)


async def test_a_different_conversation_is_a_different_call(endpoint, path):
  await call(path, spec(endpoint.base_url))
  with pytest.raises(UserError):
    await call(path, spec(endpoint.base_url), mode="replay", messages=[*MESSAGES, *MESSAGES])


async def test_another_address_price_or_limit_is_the_same_call(endpoint, path):
  numbered(endpoint)
  await call(path, spec(endpoint.base_url))
  async with serve(Endpoint()) as moved:
    worker = spec(moved.base_url, price_in=0.5, price_out=0.5, context_length=9000)
    record = await call(path, worker)
  assert (record.response, record.source, moved.hits) == ("answer 1", "journal", 0)
  # It was paid for at the price of its day.
  assert record.usage.cost == pytest.approx(1000 * 2e-6 + 500 * 10e-6)


async def test_record_pays_for_every_call_and_uses_what_an_earlier_run_got_once(endpoint, path):
  numbered(endpoint)
  worker = spec(endpoint.base_url)
  async with recording(path, worker) as client:
    first = [(await client.call(0, MESSAGES)).response for _ in range(2)]
  assert (first, endpoint.hits) == (["answer 1", "answer 2"], 2)
  async with recording(path, worker) as client:
    again = [await client.call(0, MESSAGES) for _ in range(3)]
  assert [record.response for record in again] == ["answer 1", "answer 2", "answer 3"]
  assert [record.source for record in again] == ["journal", "journal", "endpoint"]
  assert [record.attempts for record in again] == [0, 0, 1]
  assert (endpoint.hits, len(rows(path))) == (3, 3)


async def test_record_asks_again_where_an_earlier_run_got_no_answer(endpoint, path):
  endpoint.script = [reply({}, 503), reply({}, 503), reply(completion())]
  assert (await call(path, spec(endpoint.base_url), max_attempts=2)).outcome == "unavailable"
  record = await call(path, spec(endpoint.base_url), max_attempts=2)
  assert (record.outcome, record.source, endpoint.hits) == ("answered", "endpoint", 3)


async def test_replay_or_record_pays_once_for_a_call(endpoint, path):
  numbered(endpoint)
  for _ in range(2):
    async with recording(path, spec(endpoint.base_url), mode="replay-or-record") as client:
      records = [await client.call(0, MESSAGES) for _ in range(3)]
      assert [record.response for record in records] == ["answer 1"] * 3
  assert (endpoint.hits, len(rows(path))) == (1, 1)


async def test_replay_takes_the_answers_of_identical_calls_in_turn(endpoint, path):
  numbered(endpoint)
  async with recording(path, spec(endpoint.base_url)) as client:
    for _ in range(2):
      await client.call(0, MESSAGES)
  async with recording(path, spec(endpoint.base_url), mode="replay") as client:
    answers = [(await client.call(0, MESSAGES)).response for _ in range(4)]
  assert answers == ["answer 1", "answer 2"] * 2
  assert (endpoint.hits, len(rows(path))) == (2, 2)


REPLAYED = {
    "answered": completion("<think>hm</think>four"),
    "truncated": completion("fo", finish_reason="length"),
    "reasoning": completion(message={"reasoning": "two and two"}),
    "usage": completion(usage={"prompt_tokens": 9, "completion_tokens": 8,
                               "prompt_tokens_details": {"cached_tokens": 7}}),
    "no usage": completion(usage=None),
    "no ASCII": completion("vier, çà, 四 \0"),
}


async def test_replay_or_record_finds_an_answer_in_the_turn_it_is_noted_in(path):
  async with Journal(path, "replay-or-record") as journal:
    attempt = Attempt(b"key", "solver", 7, 0.0, "{}", 0, 0.0, outcome="answered", response=b"4")
    assert journal.find(b"key") is None
    journal.begin(attempt)
    journal.end(attempt)
    assert journal.find(b"key") == attempt
    await journal.written()
    assert journal.find(b"key") == attempt


async def test_a_replayed_answer_has_the_usage_of_the_attempts_before_it_too(endpoint, path):
  billed = {"error": "overloaded", "usage": {"prompt_tokens": 100, "completion_tokens": 10}}
  endpoint.script = [reply({}, 500), reply(billed), reply(completion())]
  recorded = await call(path, spec(endpoint.base_url))
  assert recorded.attempts == 3 and recorded.usage.possible_cost > 0
  assert recorded.usage.prompt_tokens == 1100
  assert (await call(path, spec(endpoint.base_url), mode="replay")).usage == recorded.usage


async def test_replay_needs_no_key(endpoint, path, monkeypatch):
  monkeypatch.setenv("SOLVER_KEY", "sk-0123456789abcdef")
  worker = spec(endpoint.base_url, api_key_env="SOLVER_KEY")
  await call(path, worker)
  monkeypatch.delenv("SOLVER_KEY")
  assert (await call(path, worker, mode="replay")).source == "journal"
  with pytest.raises(UserError, match="SOLVER_KEY"):
    await call(path, worker)


@pytest.mark.parametrize("mode", ["record", "replay", "replay-or-record"])
@pytest.mark.parametrize("body", REPLAYED.values(), ids=REPLAYED.keys())
async def test_what_is_replayed_is_what_was_recorded(endpoint, path, body, mode):
  endpoint.script = [reply(body)]
  recorded = await call(path, spec(endpoint.base_url), seed=3)
  replayed = await call(path, spec(endpoint.base_url), mode=mode, seed=3)
  assert 0 < replayed.latency < 5
  assert replayed == replace(
      recorded, source="journal", attempts=0, latency=replayed.latency)
  assert endpoint.hits == 1


@pytest.mark.parametrize("mode", ["record", "replay", "replay-or-record"])
async def test_a_refusal_is_replayed(endpoint, path, mode):
  endpoint.script = [reply({"error": {"message": "no such tool"}}, 400)]
  recorded = await call(path, spec(endpoint.base_url))
  replayed = await call(path, spec(endpoint.base_url), mode=mode)
  assert (replayed.outcome, replayed.error) == ("refused", recorded.error)
  assert "no such tool" in replayed.error
  assert (replayed.source, replayed.attempts, endpoint.hits) == ("journal", 0, 1)


async def test_replay_knows_the_calls_that_were_unavailable(endpoint, path):
  endpoint.script = [reply(b"out of order", 500)]
  recorded = await call(path, spec(endpoint.base_url), max_attempts=2)
  replayed = await call(path, spec(endpoint.base_url), mode="replay")
  assert (replayed.outcome, replayed.error) == ("unavailable", recorded.error)
  assert (replayed.source, replayed.attempts, endpoint.hits) == ("journal", 0, 2)


async def test_an_answer_after_failures_is_what_is_replayed(endpoint, path):
  endpoint.script = [reply({}, 500), reply(completion())]
  await call(path, spec(endpoint.base_url))
  async with recording(path, spec(endpoint.base_url), mode="replay") as client:
    answers = [(await client.call(0, MESSAGES)).response for _ in range(3)]
  assert answers == ["four"] * 3


async def test_a_call_that_replay_does_not_know_is_an_error_and_nothing_is_sent(endpoint, path):
  await call(path, spec(endpoint.base_url), seed=1)
  before = [tuple(row) for row in rows(path)]
  with pytest.raises(UserError) as caught:
    await call(path, spec(endpoint.base_url), mode="replay", seed=2)
  message = str(caught.value)
  assert str(path) in message and "\n" not in message
  assert "--config.pool.journal.mode=replay-or-record" in message
  assert endpoint.hits == 1
  assert [tuple(row) for row in rows(path)] == before


async def test_replay_needs_no_endpoint(endpoint, path):
  await call(path, spec(endpoint.base_url), seed=1)
  record = await call(path, spec(DEAD), mode="replay", seed=1)
  assert (record.response, record.attempts) == ("four", 0)


async def test_what_earlier_runs_spent_is_summed_by_worker(endpoint, path):
  endpoint.script = [
      reply(completion()), reply({}, 500), reply(completion("x" * 40, usage=None)),
      reply(completion())]
  workers = [spec(endpoint.base_url, name=name, sampling={"max_tokens": 100}) for name in "ab"]
  async with recording(path, *workers) as client:
    assert client._journal.spent() == {}
    for worker in (0, 1, 1):
      await client.call(worker, MESSAGES)
    spent = client.budget.spending()
  async with Journal(path) as journal:
    assert journal.spent() == {
        name: replace(total, cost=pytest.approx(total.cost),
                      possible_cost=pytest.approx(total.possible_cost))
        for name, total in spent.items()}
  assert spent["a"] == Spending(1, 1500, pytest.approx(0.007))
  assert (spent["b"].calls, spent["b"].estimated, spent["b"].possibly_billed) == (3, 1, 1)
  assert spent["b"].possible_tokens == PROMPT_AT_MOST + 100


async def test_a_replayed_answer_is_not_paid_for_again(endpoint, path):
  worker = spec(endpoint.base_url, sampling={"max_tokens": 500})
  async with Journal(path) as journal:
    budget = Budget(Allowance(calls=2), spent=journal.spent())
    async with client_of(worker, journal=journal, budget=budget) as client:
      await client.call(0, MESSAGES, seed=1)
  async with Journal(path) as journal:
    budget = Budget(Allowance(calls=2), spent=journal.spent())
    async with client_of(worker, journal=journal, budget=budget) as client:
      records = [await client.call(0, MESSAGES, seed=seed) for seed in (1, 2, 3)]
      assert client.activity.cost == pytest.approx(0.007)
  assert [record.source for record in records] == ["journal", "endpoint", "endpoint"]
  assert [record.outcome for record in records] == ["answered", "answered", "over_budget"]
  assert budget.spending() == {"solver": Spending(2, 3000, pytest.approx(0.014))}
  assert endpoint.hits == 2


async def test_calls_that_run_at_the_same_time_have_a_row_each(endpoint, path):
  async with recording(path, spec(endpoint.base_url)) as client:
    records = await asyncio.gather(*(client.call(0, MESSAGES, seed=i) for i in range(400)))
    # Each answer is written before it is used, so all are in the file while the client is open.
    assert sorted(column(path, "seed")) == list(range(400))
  assert {record.outcome for record in records} == {"answered"}
  assert column(path, "outcome") == ["answered"] * 400
  assert sum(column(path, "cost")) == pytest.approx(400 * 0.007)


async def test_two_runs_that_write_one_journal_keep_each_others_rows(endpoint, path):
  worker = spec(endpoint.base_url)
  await call(path, worker, seed=0)
  async with recording(path, worker) as one, recording(path, worker) as other:
    for seed in (1, 2, 3):
      await one.call(0, MESSAGES, seed=seed)
      await other.call(0, MESSAGES, seed=10 + seed)
  assert sorted(column(path, "seed")) == [0, 1, 2, 3, 11, 12, 13]
