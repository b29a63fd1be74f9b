"""Journals that cannot be read or written, and calls that are given up."""

import asyncio
import contextlib
import os
import resource
import shutil
import sqlite3
from pathlib import Path

import pytest

from conductor_jax.errors import UserError
from conductor_jax.workers.budget import Spending
from conductor_jax.workers.journal import Attempt, Journal
from conductor_jax.workers.pool import Limits
from tests.workers.endpoint import DEAD, MESSAGES, client_of, completion, hang, reply, spec

# Of MESSAGES and 100 tokens of an answer: in tokens, and in dollars.
TOKENS_AT_MOST = 64 + 16 + 14 + 100
COST_AT_MOST = 94 * 2e-6 + 100 * 10e-6


@pytest.fixture
def path(tmp_path):
  return tmp_path / "journal.sqlite"


def query(path, statement):
  with contextlib.closing(sqlite3.connect(path)) as connection:
    return connection.execute(statement).fetchall()


async def until_rows(path, count, outcome):
  """Waits until so many attempts are written with an outcome."""
  async with asyncio.timeout(10):
    while True:
      with contextlib.suppress(sqlite3.OperationalError):  # the file or its table are not there yet
        found, = query(path, f"SELECT count(*) FROM attempts WHERE outcome IS {outcome}")
        if found == (count,):
          return
      await asyncio.sleep(0.005)


async def call(path, worker, *, mode="record", seed=None, **changes):
  async with Journal(path, mode) as journal:
    async with client_of(worker, journal=journal, **changes) as client:
      return await client.call(0, MESSAGES, seed=seed)


def make_text(path):
  path.write_text("These are the minutes of a meeting. " * 100)


def make_empty_text(path):
  path.write_text("minutes")


def make_folder(path):
  path.mkdir()


def make_other_version(path):
  with contextlib.closing(sqlite3.connect(path)) as connection:
    connection.execute("PRAGMA user_version = 7")


def make_other_database(path):
  with contextlib.closing(sqlite3.connect(path)) as connection:
    connection.execute("CREATE TABLE runs (name)")


@pytest.mark.parametrize("mode", ["record", "replay", "replay-or-record"])
@pytest.mark.parametrize(
    "make", [make_text, make_empty_text, make_folder, make_other_version, make_other_database])
def test_a_file_that_is_no_journal_is_named_and_left_as_it_is(path, make, mode):
  make(path)
  before = path.read_bytes() if path.is_file() else None
  with pytest.raises(UserError) as caught:
    Journal(path, mode)
  message = str(caught.value)
  assert str(path) in message and "--config.pool.journal.path" in message
  assert "\n" not in message
  assert (path.read_bytes() if path.is_file() else None) == before
  assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_format_that_is_not_known_is_named(path):
  make_other_version(path)
  with pytest.raises(UserError, match="its format is 7, and 1 is known"):
    Journal(path)


def test_there_must_be_a_journal_to_replay(path):
  with pytest.raises(UserError) as caught:
    Journal(path, "replay")
  message = str(caught.value)
  assert f"there is no journal {path} to replay" in message and "\n" not in message
  assert "--config.pool.journal.mode" in message
  assert not path.exists()


async def test_a_client_that_asks_nothing_leaves_no_file(endpoint, path):
  async with Journal(path) as journal:
    async with client_of(spec(endpoint.base_url), journal=journal):
      pass
  assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("folder", ["/proc", "/no/such/folder", __file__])
async def test_nothing_is_sent_if_the_file_cannot_be_made(endpoint, folder):
  path = Path(folder) / "journal.sqlite"
  async with Journal(path) as journal:
    async with client_of(spec(endpoint.base_url), journal=journal) as client:
      for _ in range(2):
        with pytest.raises(UserError) as caught:
          await client.call(0, MESSAGES)
        message = str(caught.value)
        assert str(path) in message and "--config.pool.journal.path" in message
        assert "\n" not in message
  assert endpoint.hits == 0


@contextlib.contextmanager
def no_file_above(size):
  """Lets the writes of this process fail that go beyond a size: with EFBIG, as with ENOSPC."""
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_an_answer_that_cannot_be_written_is_not_used(endpoint, path):
  endpoint.script = [
      reply(completion()), *[reply(completion("x" * 400_000))] * 3, reply(completion())]
  worker = spec(endpoint.base_url)
  async with Journal(path) as journal:
    async with client_of(worker, journal=journal) as client:
      await client.call(0, MESSAGES, seed=0)
      with no_file_above(200_000):
        results = await asyncio.gather(
            *(client.call(0, MESSAGES, seed=seed) for seed in (1, 2, 3)), return_exceptions=True)
      for fault in results:
        assert isinstance(fault, UserError)
        assert str(path) in str(fault) and "mend it and start again" in str(fault)
        assert "\n" not in str(fault)
      # No other one is paid for.
      with pytest.raises(UserError, match="mend it and start again"):
        await client.call(0, MESSAGES, seed=4)
      # What it cost is known all the same.
      assert client.budget.spending()["solver"].calls == 4
  assert query(path, "PRAGMA integrity_check") == [("ok",)]
  assert query(path, "SELECT seed FROM attempts") == [(0,)]
  assert (await call(path, worker, seed=0)).source == "journal"
  assert (await call(path, worker, seed=1)).source == "endpoint"
  assert endpoint.hits == 5


async def test_what_sqlite_cannot_hold_is_an_error_and_not_a_hang(endpoint, path):
  async with asyncio.timeout(10):
    with pytest.raises(UserError, match="cannot be written .*too large"):
      await call(path, spec(endpoint.base_url), seed=2**70)
    assert (await call(path, spec(endpoint.base_url), seed=2**63 - 1)).outcome == "answered"
  assert query(path, "SELECT seed FROM attempts") == [(2**63 - 1,)]


async def test_an_attempt_that_lasts_is_written_while_it_is_under_way(endpoint, path, tmp_path):
  """What stands in the file then is what a process that is killed leaves behind."""
  endpoint.script = [reply(completion()), hang]
  worker = spec(endpoint.base_url, sampling={"max_tokens": 100})
  async with Journal(path) as journal:
    async with client_of(worker, journal=journal) as client:
      await client.call(0, MESSAGES, seed=0)
      calls = [asyncio.create_task(client.call(0, MESSAGES, seed=seed)) for seed in (1, 2)]
      await until_rows(path, 2, "NULL")
      copy = tmp_path / "left" / path.name
      shutil.copytree(path.parent, copy.parent, ignore=shutil.ignore_patterns("left"))
      for each in calls:
        each.cancel()
      await asyncio.wait(calls)
  endpoint.script = [reply(completion("later"))]
  async with Journal(copy) as journal:
    assert journal.spent() == {"solver": Spending(
        3, 1500, pytest.approx(0.007), 2 * TOKENS_AT_MOST, pytest.approx(2 * COST_AT_MOST), 2)}
  assert (await call(copy, worker, seed=1)).response == "later"
  with pytest.raises(UserError, match="holds no answer"):
    await call(copy, worker, mode="replay", seed=2)
  assert query(copy, "SELECT seed, outcome FROM attempts") == [
      (0, "answered"), (1, None), (2, None), (1, "answered")]


async def test_an_attempt_that_is_under_way_when_the_journal_is_closed_is_written(path):
  async with Journal(path) as journal:
    assert journal.find(b"key") is None
    journal.begin(Attempt(b"key", "solver", 7, 0.0, "{}", 10, 0.25))
  assert query(path, "SELECT seed, outcome, possible_cost FROM attempts") == [(7, None, 0.25)]


@pytest.mark.parametrize("seconds", ["at once", "after they are written as under way"])
async def test_calls_that_are_cancelled_have_been_given_up_and_possibly_billed(
    endpoint, path, seconds):
  endpoint.script = [hang]
  worker = spec(endpoint.base_url, sampling={"max_tokens": 100})
  async with Journal(path) as journal:
    async with client_of(worker, journal=journal) as client:
      calls = [asyncio.create_task(client.call(0, MESSAGES, seed=seed)) for seed in range(20)]
      if seconds == "at once":
        while endpoint.in_flight < 20:
          await asyncio.sleep(0.001)
      else:
        await until_rows(path, 20, "NULL")
      for each in calls:
        each.cancel()
      results = await asyncio.gather(*calls, return_exceptions=True)
      spent = client.budget.spending()["solver"]
  assert all(isinstance(result, asyncio.CancelledError) for result in results)
  found = query(path, "SELECT seed, outcome, response, possible_tokens, possible_cost FROM attempts"
                " ORDER BY seed")
  assert found == [(seed, "given up", None, TOKENS_AT_MOST, pytest.approx(COST_AT_MOST))
                   for seed in range(20)]
  assert (spent.calls, spent.possibly_billed) == (20, 20)
  assert spent.possible_cost == pytest.approx(20 * COST_AT_MOST)


async def test_a_call_that_was_given_up_at_its_deadline_is_replayed_as_unavailable(endpoint, path):
  endpoint.script = [hang]
  worker = spec(endpoint.base_url)
  async with Journal(path) as journal:
    async with client_of(worker, journal=journal) as client:
      record = await client.call(
          0, MESSAGES, deadline=asyncio.get_running_loop().time() + 0.1)
  assert (record.outcome, record.attempts, record.possibly_billed) == ("unavailable", 1, 1)
  replayed = await call(path, spec(DEAD), mode="replay")
  assert (replayed.outcome, replayed.attempts, endpoint.hits) == ("unavailable", 0, 1)


async def test_a_call_that_was_given_up_in_the_queue_is_no_request_and_is_replayed_as_unavailable(
    endpoint, path):
  endpoint.script = [hang]
  worker = spec(endpoint.base_url, limits=Limits(concurrent=1))
  async with Journal(path) as journal, client_of(worker, journal=journal) as client:
    deadline = asyncio.get_running_loop().time() + 0.1
    records = await asyncio.gather(*(
        client.call(0, MESSAGES, seed=seed, deadline=deadline) for seed in range(2)))
  assert [record.attempts for record in records] == [1, 0]
  assert query(path, "SELECT seed, outcome, possible_tokens > 0, error FROM attempts") == [
      (0, "given up", 1, "it was given up"),
      (1, "not sent", 0, "the workflow's deadline passed")]
  async with Journal(path) as journal:
    assert journal.spent()["solver"].calls == 1
  replayed = await call(path, spec(DEAD), mode="replay", seed=1)
  assert (replayed.outcome, replayed.error) == ("unavailable", "the workflow's deadline passed")
  assert endpoint.hits == 1


async def test_a_file_that_was_just_made_when_its_process_was_killed_is_used(endpoint, path):
  path.touch()
  assert (await call(path, spec(endpoint.base_url))).outcome == "answered"
  assert query(path, "SELECT count(*) FROM attempts") == [(1,)]
  assert os.listdir(path.parent) == [path.name]  # closed, it is one file
