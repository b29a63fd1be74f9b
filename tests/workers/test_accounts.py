"""Ten thousand calls of an endpoint that fails at random: its books and ours agree to the last."""

import asyncio
import contextlib
import json
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from conductor_jax.workers.budget import Spending
from conductor_jax.workers.journal import Journal
from conductor_jax.workers.pool import Limits
from tests.workers.endpoint import DEAD, MESSAGES, client_of, spec

CALLS, REFUSED, ATTEMPTS = 10_000, 50, 3
# What one request may take at most: 14 bytes of question and 80 for the chat's template at $2 per
# million, 500 tokens of answer at $10.
TOKENS = 94 + 500
WORST = 94 * 2e-6 + 500 * 10e-6


@contextlib.contextmanager
def fault_server(seed, faults):
  """The base_url of a server, and a function that ends it and returns its ledger."""
  path = Path(__file__).with_name("fault_server.py")
  with subprocess.Popen(
      [sys.executable, path, str(seed), str(faults)], stdin=subprocess.PIPE,
      stdout=subprocess.PIPE, text=True) as process:
    try:
      port = int(process.stdout.readline())
      yield f"http://127.0.0.1:{port}/v1", lambda: json.loads(process.communicate()[0])
    finally:
      process.kill()


async def ask(base_url, journal):
  bounds = {"sampling": {"max_tokens": 500}, "limits": Limits(concurrent=600)}
  async with Journal(journal) as written, client_of(
      spec(base_url, **bounds), spec(DEAD, name="gone", **bounds), request_timeout=3.0,
      max_attempts=ATTEMPTS, breaker_failures=10**6, journal=written) as client:
    records = await asyncio.gather(
        *(client.call(0, MESSAGES, seed=i, group=i // 8) for i in range(CALLS)),
        *(client.call(1, MESSAGES, seed=i) for i in range(REFUSED)))
    return records[:CALLS], records[CALLS:], client.budget.spending()


async def test_every_call_is_accounted_for_exactly_once(tmp_path):
  with fault_server(seed=5, faults=0.2) as (base_url, close):
    records, refused, spending = await ask(base_url, tmp_path / "journal.sqlite")
    ledger = close()
  requests = ledger["requests"]
  made = sum(requests.values())
  broken = requests["reset"] + requests["500"] + requests["stall"] + requests["half"]
  cost = ledger["prompt_tokens"] * 2e-6 + ledger["completion_tokens"] * 10e-6
  assert made > CALLS and min(requests.values()) > 300

  assert Counter(record.outcome for record in records) == {
      "answered": requests["whole"], "unavailable": CALLS - requests["whole"]}
  assert {r.attempts for r in records if r.outcome == "unavailable"} == {ATTEMPTS}
  assert sum(record.attempts for record in records) == made
  assert sum(record.possibly_billed for record in records) == broken
  assert sum(r.usage.prompt_tokens for r in records) == ledger["prompt_tokens"]
  assert sum(r.usage.completion_tokens for r in records) == ledger["completion_tokens"]
  assert sum(r.usage.cost for r in records) == pytest.approx(cost)
  assert sum(r.usage.possible_cost for r in records) == pytest.approx(broken * WORST)
  assert not any(record.usage.estimated for record in records)
  assert {(r.outcome, r.attempts, r.possibly_billed) for r in refused} == {
      ("unavailable", ATTEMPTS, 0)}

  tokens = ledger["prompt_tokens"] + ledger["completion_tokens"]
  assert spending == {
      "solver": Spending(made, tokens, pytest.approx(cost), broken * TOKENS,
                         pytest.approx(broken * WORST), broken),
      "gone": Spending(REFUSED * ATTEMPTS)}

  with contextlib.closing(sqlite3.connect(tmp_path / "journal.sqlite")) as journal:
    rows = journal.execute("""
        SELECT worker, outcome, status, count(*), sum(prompt_tokens), sum(completion_tokens),
               sum(cost), sum(possible_tokens), sum(possible_cost), count(DISTINCT key)
        FROM attempts GROUP BY worker, outcome, status""").fetchall()
  found = {(worker, outcome, status): sums for worker, outcome, status, *sums in rows}
  lost = requests["reset"] + requests["stall"]
  assert {key: sums[0] for key, sums in found.items()} == {
      ("solver", "answered", 200): requests["whole"], ("solver", "failed", 200): requests["half"],
      ("solver", "failed", 429): requests["429"], ("solver", "failed", 500): requests["500"],
      ("solver", "failed", None): lost, ("gone", "failed", None): REFUSED * ATTEMPTS}
  assert found["solver", "answered", 200] == [
      requests["whole"], ledger["prompt_tokens"], ledger["completion_tokens"],
      pytest.approx(cost), 0, 0, requests["whole"]]
  for status, number in ((200, requests["half"]), (500, requests["500"]), (None, lost), (429, 0)):
    _, prompt, completion, paid, possible_tokens, possible_cost, _ = found[
        "solver", "failed", status]
    assert (prompt, completion, paid, possible_tokens) == (0, 0, 0, number * TOKENS)
    assert possible_cost == pytest.approx(number * WORST)
  assert found["gone", "failed", None][3:6] == [0, 0, 0]
