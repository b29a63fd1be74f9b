"""A run that is killed, with SIGKILL, 20 times: it never pays again for an answer that it had."""

import asyncio
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import sys

from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.journal import Journal
from tests.workers.endpoint import DEAD, Endpoint, completion, reply, serve
from tests.workers.killed_calls import AT_ONCE, messages, pool

KILLS = 20
# So much text that pages move from the write-ahead log into the file now and then, too.
LENGTH = 40_000


class Counting(Endpoint):
  """Answers with the request's seed, after a while that depends on it."""

  def __init__(self):
    super().__init__()
    self.asked = collections.Counter()

  def behaviour(self, body):
    seed = body["seed"]
    self.asked[seed] += 1
    # Some attempts are written as under way before they end, most are not.
    seconds = 0.15 if seed % 12 == 0 else 0.004 * (seed % 3)
    return reply(completion(f"answer {seed} ".ljust(LENGTH, ".")), seconds=seconds)


@contextlib.asynccontextmanager
async def forking():
  """A process that forks the callers."""
  process = await asyncio.create_subprocess_exec(
      sys.executable, "-m", "tests.workers.killed_calls", stdin=asyncio.subprocess.PIPE,
      stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
  try:
    yield process
  finally:
    process.stdin.close()
    await process.wait()


async def check_replay(folder, copy, seeds):
  """Looks into a copy of the journal: the next process is to mend the journal itself."""
  shutil.rmtree(copy, ignore_errors=True)
  shutil.copytree(folder, copy)
  journal = copy / "journal.sqlite"
  async with Journal(journal, "replay") as recorded, PoolClient(
      pool(DEAD), request_timeout=5, max_attempts=1, journal=recorded) as client:
    for seed in seeds:
      record = await client.call(0, messages(seed), seed=seed)
      assert (record.outcome, record.source, record.attempts) == ("answered", "journal", 0)
      assert record.response == f"answer {seed} ".ljust(LENGTH, ".")
  with contextlib.closing(sqlite3.connect(journal)) as connection:
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return connection.execute("SELECT seed, outcome FROM attempts").fetchall()


async def test_no_answer_is_lost_or_paid_twice_whenever_the_process_is_killed(tmp_path):
  generator = random.Random(0)
  folder, returned = tmp_path / "run", tmp_path / "returned"
  folder.mkdir()
  returned.touch()
  known, paid = set(), {}
  async with serve(Counting()) as endpoint, forking() as process:
    arguments = {"journal": str(folder / "journal.sqlite"), "base_url": endpoint.base_url,
                 "returned": str(returned)}
    for _ in range(KILLS):
      process.stdin.write(json.dumps(arguments).encode() + b"\n")
      pid = int(await process.stdout.readline())
      goal = endpoint.hits + generator.randrange(1, 40)
      async with asyncio.timeout(30):
        while endpoint.hits < goal:
          await asyncio.sleep(0.001)
      await asyncio.sleep(generator.uniform(0, 0.02))
      os.kill(pid, signal.SIGKILL)
      assert await process.stdout.readline() == b"gone\n"
      for line in returned.read_text().splitlines():
        seed, outcome, response = line.split(maxsplit=2)
        assert (outcome, response.split(".")[0].strip()) == ("answered", f"answer {seed}")
        if int(seed) not in known:
          known.add(int(seed))
          paid[int(seed)] = endpoint.asked[int(seed)]
      hits = endpoint.hits
      written = await check_replay(folder, tmp_path / "copy", sorted(known))
      assert endpoint.hits == hits
  assert len(known) > 5 * KILLS
  # What had been returned was not asked for again.
  assert {seed: endpoint.asked[seed] for seed in known} == paid
  # Nor was any answer written twice; only requests that a kill cut off were made again.
  answered = collections.Counter(seed for seed, outcome in written if outcome == "answered")
  assert set(answered.values()) == {1} and known <= set(answered)
  cut_off = endpoint.hits - len(answered)
  assert 0 < cut_off <= KILLS * AT_ONCE
  # Of those, the ones that had lasted are in the journal, as possibly billed.
  under_way = sum(outcome is None for _, outcome in written)
  assert 0 < under_way <= cut_off
