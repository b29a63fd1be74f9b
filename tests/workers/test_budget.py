import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_jax.errors import UserError
from conductor_jax.workers.budget import Allowance, Budget, BudgetError, Spending, allowances, told
from tests.workers.clock import run


def waiting_for(budget, worker="a", dollars=1.0, tokens=10):
  return asyncio.ensure_future(budget.reserve(worker, dollars, tokens))


async def settled(*tasks):
  """Which of them have ended once everything has happened that can."""
  for _ in range(10):
    await asyncio.sleep(0)
  return "".join("." if not task.done() else "!" if task.exception() else "x" for task in tasks)


async def test_without_limits_everything_has_room_and_is_counted():
  budget = Budget()
  assert not budget.bounds_answers("a")
  for _ in range(3):
    await budget.reserve("a", 1e9, 10**12)
  budget.settle("a", 1e9, 10**12, Spending(1, 30, 0.5))
  budget.settle("a", 1e9, 10**12, Spending(1, 0, 0.0, 40, 0.25, 1))
  budget.settle("a", 1e9, 10**12, Spending(1, 10, 0.125, estimated=1))
  assert budget.spending() == {"a": Spending(3, 40, 0.625, 40, 0.25, 1, 1)}


@pytest.mark.parametrize("allowance", [
    Allowance(dollars=3.0), Allowance(tokens=30), Allowance(calls=3)])
async def test_what_is_reserved_is_gone_for_the_others(allowance):
  budget = Budget(allowance)
  tasks = [waiting_for(budget) for _ in range(5)]
  assert await settled(*tasks) == "xxx.."
  budget.settle("a", 1.0, 10, Spending())  # it was not sent, and cost nothing
  assert await settled(*tasks) == "xxxx."
  for task in tasks:
    task.cancel()


@pytest.mark.parametrize(("allowance", "spent"), [
    (Allowance(dollars=3.0), Spending(1, 10, 1.0)),
    (Allowance(dollars=3.0), Spending(1, possible_tokens=10, possible_cost=1.0, possibly_billed=1)),
    (Allowance(tokens=30), Spending(1, 10, 1.0)),
    (Allowance(tokens=30), Spending(1, possible_tokens=10, possible_cost=1.0, possibly_billed=1)),
    (Allowance(calls=3), Spending(1, 1, 0.01))])
async def test_those_who_wait_are_turned_away_once_nothing_under_way_can_free_room(
    allowance, spent):
  budget = Budget(allowance)
  tasks = [waiting_for(budget) for _ in range(5)]
  for expected in ("xxx..", "xxx..", "xxx!!"):
    await settled(*tasks)
    budget.settle("a", 1.0, 10, spent)
    assert await settled(*tasks) == expected
  assert budget.spending()["a"].calls == 3
  with pytest.raises(BudgetError):
    await budget.reserve("a", 1.0, 10)


async def test_one_that_is_above_all_there_is_waits_for_those_under_way_and_is_turned_away():
  budget = Budget(Allowance(dollars=3.0))
  with pytest.raises(BudgetError):
    await budget.reserve("a", 3.5, 10)
  await budget.reserve("a", 1.0, 10)
  large = waiting_for(budget, dollars=2.5)
  assert await settled(large) == "."
  budget.settle("a", 1.0, 10, Spending(1, 10, 0.75))
  assert await settled(large) == "!"
  await budget.reserve("a", 2.25, 10)


async def test_who_waits_is_served_in_order_and_a_small_one_does_not_overtake():
  budget = Budget(Allowance(dollars=3.0))
  await budget.reserve("a", 2.0, 10)
  large, small = waiting_for(budget, dollars=2.5), waiting_for(budget, dollars=0.5)
  assert await settled(large, small) == ".."
  budget.settle("a", 2.0, 10, Spending(1, 10, 0.0))
  assert await settled(large, small) == "xx"
  late = waiting_for(budget, dollars=0.25)
  assert await settled(late) == "."
  late.cancel()


async def test_one_who_goes_away_lets_those_behind_it_through():
  budget = Budget(Allowance(dollars=3.0))
  await budget.reserve("a", 2.0, 10)
  large, small = waiting_for(budget, dollars=2.5), waiting_for(budget, dollars=1.0)
  assert await settled(large, small) == ".."
  large.cancel()
  await asyncio.gather(large, return_exceptions=True)
  assert await settled(small) == "x"


async def test_one_who_is_let_through_in_the_moment_it_goes_away_gives_its_room_back():
  budget = Budget(Allowance(dollars=1.0))
  await budget.reserve("a", 1.0, 10)
  leaving, staying = waiting_for(budget), waiting_for(budget)
  assert await settled(leaving, staying) == ".."
  budget.settle("a", 1.0, 10, Spending())
  leaving.cancel()
  await asyncio.gather(leaving, return_exceptions=True)
  assert leaving.cancelled() and await settled(staying) == "x"
  assert budget.spending()["a"] == Spending()


async def test_one_who_is_turned_away_in_the_moment_it_goes_away_gives_back_nothing():
  budget = Budget(Allowance(dollars=1.0))
  await budget.reserve("a", 1.0, 0)
  waiting = asyncio.create_task(budget.reserve("a", 1.0, 0))
  await asyncio.sleep(0)
  budget.settle("a", 1.0, 0, Spending(1, cost=1.0))
  waiting.cancel()
  with pytest.raises(asyncio.CancelledError):
    await waiting
  with pytest.raises(BudgetError):
    await budget.reserve("a", 0.5, 0)


async def test_a_worker_has_a_budget_of_its_own_within_the_runs():
  budget = Budget(Allowance(dollars=3.0), {"a": Allowance(calls=1)})
  assert budget.bounds_answers("a") and budget.bounds_answers("b")
  await budget.reserve("a", 1.0, 10)
  second, other = waiting_for(budget, "a"), waiting_for(budget, "b")
  assert await settled(second, other) == ".x"  # who waits for a's budget holds up no other worker
  budget.settle("a", 1.0, 10, Spending(1, 10, 1.0))
  assert await settled(second) == "!"
  third = waiting_for(budget, "b")
  assert await settled(third) == "x"
  with pytest.raises(BudgetError, match="the budget of worker 'a', 1 calls"):
    await budget.reserve("a", 0.0, 0)
  fourth = waiting_for(budget, "b")
  assert await settled(fourth) == "."
  fourth.cancel()


@pytest.mark.parametrize(("allowance", "bounds"), [
    (Allowance(dollars=1.0), True), (Allowance(tokens=1), True), (Allowance(calls=1), False),
    (Allowance(), False)])
def test_dollars_and_tokens_bound_answers_and_calls_do_not(allowance, bounds):
  assert Budget(allowance).bounds_answers("a") is bounds
  assert Budget(None, {"a": allowance}).bounds_answers("a") is bounds
  assert not Budget(None, {"a": allowance}).bounds_answers("b")


async def test_what_was_spent_before_counts():
  before = {"a": Spending(2, 20, 1.0, 5, 0.5, 1, 1), "gone": Spending(1, 10, 1.0)}
  budget = Budget(Allowance(dollars=3.0), {"a": Allowance(calls=3)}, before)
  assert budget.spending() == before
  with pytest.raises(BudgetError, match=r"the run, \$3,"):
    await budget.reserve("a", 0.625, 10)
  await budget.reserve("a", 0.5, 10)
  budget.settle("a", 0.5, 10, Spending(1, 10, 0.25))
  assert budget.spending()["a"] == Spending(3, 30, 1.25, 5, 0.5, 1, 1)
  with pytest.raises(BudgetError, match="worker 'a', 3 calls"):
    await budget.reserve("a", 0.125, 10)


@pytest.mark.parametrize(("allowance", "amount"), [
    (Allowance(dollars=1234.5), r"\$1,234.5"), (Allowance(tokens=1e6), "1,000,000 tokens"),
    (Allowance(calls=0), "0 calls")])
async def test_the_error_says_what_is_short_and_for_what(allowance, amount):
  budget = Budget(allowance, spent={"a": Spending(20, 1_000_000, 1500.25)})
  with pytest.raises(BudgetError, match=(
      f"the budget of the run, {amount}, has no room for a call of 'c' of at most \\$0.0625 and "
      "5,000 tokens")):
    await budget.reserve("c", 0.0625, 5000)


def test_what_was_spent_on_what_is_said_in_a_line():
  spent = {"b": Spending(1200, 1_000_000, 12.5), "a": Spending(20, 1000, 1500.25, 9, 0.125, 1)}
  assert told(Budget(spent=spent).spending()) == (
      "a $1500 (and possibly $0.125) for 1,000 tokens in 20 calls, "
      "b $12.5 for 1,000,000 tokens in 1,200 calls")


def test_nothing_spent_is_said_in_a_word():
  assert told({}) == told({"a": Spending()}) == "nothing"


def test_the_limits_of_a_worker_are_gathered_and_an_unknown_one_is_named():
  limits = [("a", "dollars", 2.0), ("b", "calls", 5), ("a", "tokens", 7)]
  assert allowances(limits, "abc") == {"a": Allowance(2.0, 7, None), "b": Allowance(None, None, 5)}
  with pytest.raises(UserError, match="there is no worker 'd', only a, b"):
    allowances([("d", "calls", 1)], "ab")


_CALLS = st.lists(st.tuples(
    st.sampled_from("abc"), st.integers(0, 5), st.integers(1, 8), st.integers(0, 4),
    st.sampled_from(("billed", "possible", "worst", "none")), st.none() | st.integers(0, 6)),
    max_size=30)


@settings(max_examples=80, deadline=None)
@given(calls=_CALLS, limit=st.integers(0, 40), own=st.integers(0, 20),
       kind=st.sampled_from(("dollars", "tokens", "calls")))
def test_no_limit_is_passed_at_any_time_and_nobody_waits_for_ever(calls, limit, own, kind):
  """Each call: worker, when it comes, its worst case, how long it takes, how it ends, and when it
  goes away."""

  async def main():
    budget = Budget(Allowance(**{kind: limit}), {"a": Allowance(**{kind: own})})
    gone, under_way = {"a": 0, "b": 0, "c": 0}, {"a": 0, "b": 0, "c": 0}

    def check():
      assert sum(gone.values()) + sum(under_way.values()) <= limit
      assert gone["a"] + under_way["a"] <= own

    async def one(worker, begins, worst, takes, ends):
      amount = 1 if kind == "calls" else worst
      await asyncio.sleep(begins)
      await budget.reserve(worker, float(worst), worst)
      under_way[worker] += amount
      check()
      try:
        await asyncio.sleep(takes)
      except asyncio.CancelledError:
        ends = "possible"
        raise
      finally:
        under_way[worker] -= amount
        spent = {"billed": Spending(1, worst // 2, worst // 2), "worst": Spending(1, worst, worst),
                 "possible": Spending(1, 0, 0.0, worst, worst, 1), "none": Spending()}[ends]
        budget.settle(worker, float(worst), worst, spent)
        gone[worker] += {"dollars": spent.cost + spent.possible_cost,
                         "tokens": spent.tokens + spent.possible_tokens, "calls": spent.calls}[kind]
        check()

    tasks = []
    for *call, leaves in calls:
      tasks.append(asyncio.create_task(one(*call)))
      if leaves is not None:
        asyncio.get_running_loop().call_later(leaves, tasks[-1].cancel)
    for result in await asyncio.gather(*tasks, return_exceptions=True):
      assert result is None or isinstance(result, BudgetError | asyncio.CancelledError)
    # All that there is can be had: nothing has stayed reserved.
    rest = limit - sum(gone.values())
    if rest > 0:
      await budget.reserve("b", float(rest), int(rest))

  run(main())
