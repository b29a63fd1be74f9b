import asyncio
import contextlib
import json
import math
import random
import sqlite3

import pytest
from aiohttp import web

from conductor_jax.errors import UserError
from conductor_jax.workers.budget import Allowance, Budget, told
from conductor_jax.workers.call import Usage
from conductor_jax.workers.journal import Journal
from tests.workers.endpoint import (
    DEAD,
    MESSAGES,
    Endpoint,
    client_of,
    completion,
    hang,
    reply,
    reset,
    serve,
    spec,
)

# What one request may take at most: 14 bytes of question and 80 for the chat's template at $2 per
# million, 100 tokens of answer at $10.
TOKENS = 94 + 100
WORST = 94 * 2e-6 + 100 * 10e-6
LIMITED = {"sampling": {"max_tokens": 100}}


def billing(prompt=94, completion_tokens=100):
  return completion(usage={"prompt_tokens": prompt, "completion_tokens": completion_tokens})


class Ledger(Endpoint):
  """An endpoint that bills at random, and knows what it has billed and may still have to bill.

  Attributes:
    billed: dollars.
    highest: of what it had billed and could still bill for what it was working on.
  """

  def __init__(self):
    super().__init__(self.answer)
    self.billed = self.highest = 0.0
    self.random = random.Random(0)

  async def answer(self, request):
    self.highest = max(self.highest, self.billed + self.in_flight * WORST)
    await asyncio.sleep(self.random.uniform(0, 0.01))
    tokens = self.random.randrange(1, 101)
    self.billed += 94 * 2e-6 + tokens * 10e-6
    return web.json_response(billing(completion_tokens=tokens))


async def ask(budget, endpoint, calls, **options):
  async with client_of(spec(endpoint.base_url, **LIMITED), budget=budget, **options) as pool_client:
    return await asyncio.gather(*(
        pool_client.call(0, MESSAGES, seed=i) for i in range(calls)))


@pytest.mark.parametrize("allowance", [
    Allowance(dollars=10.5 * WORST), Allowance(tokens=10.5 * TOKENS), Allowance(calls=10)])
async def test_of_100_calls_at_once_10_that_fit_are_made(endpoint, allowance):
  endpoint.script = [reply(billing(), seconds=0.01)]
  budget = Budget(allowance)
  records = await ask(budget, endpoint, 100)
  assert (endpoint.hits, endpoint.most_in_flight) == (10, 10)
  outcomes = [record.outcome for record in records]
  assert (outcomes.count("answered"), outcomes.count("over_budget")) == (10, 90)
  assert all(record.attempts == 0 and record.usage == Usage()
             for record in records if record.outcome == "over_budget")
  spent = budget.spending()["solver"]
  assert (spent.calls, spent.tokens, spent.cost) == (10, 10 * TOKENS, pytest.approx(10 * WORST))


async def test_what_is_billed_and_under_way_is_never_above_the_limit_and_all_that_fits_is_used():
  limit = 10.5 * WORST
  async with serve(Ledger()) as ledger:
    budget = Budget(Allowance(dollars=limit))
    records = await ask(budget, ledger, 100)
    assert 9 * WORST < ledger.highest <= limit
    assert limit - WORST < ledger.billed <= limit
    assert budget.spending()["solver"].cost == pytest.approx(ledger.billed)
    assert sum(record.usage.cost for record in records) == pytest.approx(ledger.billed)
    outcomes = [record.outcome for record in records]
    assert outcomes.count("answered") == ledger.hits > 10
    assert outcomes.count("over_budget") == 100 - ledger.hits
    # Nothing reaches the endpoint when it is spent.
    hits = ledger.hits
    later = await ask(budget, ledger, 50)
    assert {record.outcome for record in later} == {"over_budget"} and ledger.hits == hits


async def test_the_error_names_the_limit_and_the_run_says_what_it_spent(endpoint):
  endpoint.script = [reply(billing())]
  budget = Budget(Allowance(calls=1))
  first, second = await ask(budget, endpoint, 2)
  assert (first.outcome, second.outcome) == ("answered", "over_budget")
  assert second.error == (
      "the budget of the run, 1 calls, has no room for a call of 'solver' of at most $0.00119 and "
      "194 tokens")
  assert told(budget.spending()) == "solver $0.001188 for 194 tokens in 1 calls"


@pytest.mark.parametrize("fault", [reset, hang, reply({}, 500)], ids=["reset", "hang", "500"])
async def test_attempts_that_were_possibly_billed_count_at_their_worst_case(endpoint, fault):
  endpoint.script = [fault]
  budget = Budget(Allowance(dollars=10.5 * WORST))
  records = await ask(budget, endpoint, 20, max_attempts=5, request_timeout=0.2,
                      breaker_failures=1000)
  assert endpoint.hits == 10
  spent = budget.spending()["solver"]
  assert (spent.calls, spent.possibly_billed, spent.cost) == (10, 10, 0)
  assert (spent.possible_tokens, spent.possible_cost) == (10 * TOKENS, pytest.approx(10 * WORST))
  assert {record.outcome for record in records} == {"over_budget"}
  assert sum(record.attempts for record in records) == 10
  assert sum(record.possibly_billed for record in records) == 10
  assert sum(r.usage.possible_cost for r in records) == pytest.approx(10 * WORST)
  assert told(budget.spending()) == "solver $0 (and possibly $0.01188) for 0 tokens in 10 calls"


async def test_attempts_that_cannot_have_been_billed_cost_nothing_but_count_as_calls(endpoint):
  endpoint.script = [reply({}, 503)] * 10 + [reply(billing())]
  budget = Budget(Allowance(dollars=1.5 * WORST))
  record, = await ask(budget, endpoint, 1, max_attempts=11, breaker_failures=100)
  assert (record.outcome, record.attempts, endpoint.hits) == ("answered", 11, 11)
  spent = budget.spending()["solver"]
  assert (spent.calls, spent.cost, spent.possible_cost) == (11, pytest.approx(WORST), 0)


async def test_cancelled_calls_give_their_place_in_the_queue_away_and_count_what_was_sent(endpoint):
  endpoint.script = [hang] * 3 + [reply(billing())]
  budget = Budget(Allowance(dollars=4.5 * WORST))
  async with client_of(spec(endpoint.base_url, **LIMITED), budget=budget) as pool_client:
    hanging = [asyncio.create_task(pool_client.call(0, MESSAGES)) for _ in range(3)]
    while endpoint.hits < 3:
      await asyncio.sleep(0.001)
    assert (await pool_client.call(0, MESSAGES)).outcome == "answered"
    waiting = [asyncio.create_task(pool_client.call(0, MESSAGES)) for _ in range(20)]
    await asyncio.sleep(0.02)
    assert endpoint.hits == 4  # as long as three may still turn out cheaper, the others wait
    for task in waiting[:10] + hanging:
      task.cancel()
    records = await asyncio.gather(*waiting[10:])
  assert {record.outcome for record in records} == {"over_budget"}
  spent = budget.spending()["solver"]
  assert (endpoint.hits, spent.calls, spent.possibly_billed) == (4, 4, 3)
  assert spent.cost + spent.possible_cost == pytest.approx(4 * WORST)


async def test_a_usage_that_is_not_reported_is_estimated_and_marked(endpoint):
  endpoint.script = [reply(completion("x" * 41, usage=None)), reply(billing())]
  budget = Budget(Allowance(dollars=1.0))
  async with client_of(spec(endpoint.base_url, **LIMITED), budget=budget) as pool_client:
    estimated = await pool_client.call(0, MESSAGES)
    reported = await pool_client.call(0, MESSAGES)
  prompt = math.ceil(len(json.dumps(endpoint.bodies[0])) / 4)
  assert estimated.usage == Usage(
      prompt, 11, pytest.approx(prompt * 2e-6 + 11 * 10e-6), estimated=True)
  assert not reported.usage.estimated
  spent = budget.spending()["solver"]
  assert (spent.calls, spent.estimated, spent.tokens) == (2, 1, prompt + 11 + TOKENS)
  assert spent.cost == pytest.approx(estimated.usage.cost + reported.usage.cost)


async def test_a_worker_whose_budget_is_spent_leaves_the_others_theirs(endpoint):
  endpoint.script = [reply(billing())]
  budget = Budget(Allowance(calls=5), {"a": Allowance(calls=2)})
  specs = [spec(endpoint.base_url, name=name, model=name, **LIMITED) for name in "ab"]
  async with client_of(*specs, budget=budget) as pool_client:
    of_a = [(await pool_client.call(0, MESSAGES)).outcome for _ in range(4)]
    of_b = [(await pool_client.call(1, MESSAGES)).outcome for _ in range(4)]
  assert of_a == ["answered"] * 2 + ["over_budget"] * 2
  assert of_b == ["answered"] * 3 + ["over_budget"]
  assert [body["model"] for body in endpoint.bodies] == ["a", "a", "b", "b", "b"]


async def test_a_spent_budget_is_no_sign_of_life_of_an_endpoint_that_is_down(endpoint):
  endpoint.script = [reply({}, 500)]
  budget = Budget(workers={"a": Allowance(calls=0)})
  specs = [spec(endpoint.base_url, name=name, **LIMITED) for name in "ab"]
  async with client_of(*specs, budget=budget, max_attempts=1, breaker_failures=3,
                       breaker_cooldown=60.0, longest_wait=60.0) as pool_client:
    for _ in range(3):
      assert (await pool_client.call(0, MESSAGES)).outcome == "over_budget"
      assert (await pool_client.call(1, MESSAGES)).outcome == "unavailable"
    with pytest.raises(TimeoutError):
      await asyncio.wait_for(pool_client.call(1, MESSAGES), 0.05)
  assert endpoint.hits == 3


@pytest.mark.parametrize(("changes", "works"), [
    ({}, False), (LIMITED, True), ({"context_length": 1000}, True)])
def test_a_budget_wants_a_bound_on_answers(changes, works):
  budget = Budget(workers={"solver": Allowance(dollars=1.0)})
  client_of(spec(DEAD), spec(DEAD, name="other"))
  if works:
    client_of(spec(DEAD, **changes), spec(DEAD, name="other"), budget=budget)
  else:
    with pytest.raises(UserError, match="worker 'solver': nothing bounds the tokens of an answer"):
      client_of(spec(DEAD, **changes), budget=budget)


@pytest.mark.parametrize(("allowance", "noted"), [
    (Allowance(dollars=1.0), [(None, pytest.approx(WORST))]), (Allowance(calls=9), [])])
async def test_with_a_budget_of_money_a_request_is_in_the_journal_before_it_is_sent(
    endpoint, tmp_path, allowance, noted):
  path, seen = tmp_path / "journal.sqlite", []

  async def look(request):
    with contextlib.closing(sqlite3.connect(path)) as journal:
      seen.extend(journal.execute("SELECT outcome, possible_cost FROM attempts"))
    return web.json_response(billing())

  endpoint.script = [look]
  async with Journal(path) as journal, client_of(
      spec(endpoint.base_url, **LIMITED), journal=journal, budget=Budget(allowance)) as client:
    assert (await client.call(0, MESSAGES)).outcome == "answered"
  assert seen == noted
