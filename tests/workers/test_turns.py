import asyncio
import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_jax.workers.turns import FairSemaphore, Pace, Stagger
from tests.workers.clock import now, run, settle

# Of 97 per minute, 97 % are used: one every 60 / 97 / 0.97 seconds.
STEP = 60 / (97 * 0.97)


async def served(places, waiting):
  """The order in which waiting groups get the only place, one after the other."""
  order = []

  async def hold(group):
    await places.acquire(group)
    order.append(group)
    await settle()
    places.release()

  await places.acquire("first")
  tasks = []
  for group in waiting:
    tasks.append(asyncio.create_task(hold(group)))
    await settle()
  places.release()
  await asyncio.gather(*tasks)
  return "".join(order)


@pytest.mark.parametrize(("waiting", "order"), [
    ("aaaa", "aaaa"), ("aaaab", "abaaa"), ("aaabbbc", "abcabab"), ("aabbbbbb", "ababbbbb")])
def test_groups_take_turns_whatever_the_length_of_their_queues(waiting, order):
  assert run(served(FairSemaphore(1), waiting)) == order


def test_those_of_a_group_are_served_in_the_order_they_came():

  async def main():
    places, order = FairSemaphore(2), []

    async def hold(number):
      await places.acquire("group")
      order.append(number)
      await asyncio.sleep(1)
      places.release()

    await asyncio.gather(*map(hold, range(9)))
    return order, now()

  assert run(main()) == (list(range(9)), 5)


def test_one_who_is_given_a_place_in_the_moment_it_goes_away_passes_it_on():

  async def main():
    places = FairSemaphore(1)
    await places.acquire("a")
    leaving = asyncio.create_task(places.acquire("a"))
    staying = asyncio.create_task(places.acquire("b"))
    await settle()
    places.release()
    leaving.cancel()
    await staying
    places.release()
    await places.acquire("c")  # would wait for ever if the place were lost
    assert leaving.cancelled()

  run(main())


@settings(max_examples=60, deadline=None)
@given(places=st.integers(1, 4), calls=st.lists(st.tuples(
    st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 4), st.none() | st.integers(0, 6)),
    max_size=25))
def test_no_place_is_lost_or_given_twice_however_many_go_away(places, calls):
  """Each call: its group, when it comes, how long it holds a place, and when it goes away."""

  async def main():
    semaphore, held, most = FairSemaphore(places), 0, 0

    async def one(group, begins, holds):
      nonlocal held, most
      await asyncio.sleep(begins)
      await semaphore.acquire(group)
      held += 1
      most = max(most, held)
      try:
        await asyncio.sleep(holds)
      finally:
        held -= 1
        semaphore.release()

    tasks = []
    for group, begins, holds, leaves in calls:
      task = asyncio.create_task(one(group, begins, holds))
      if leaves is not None:
        asyncio.get_running_loop().call_later(leaves, task.cancel)
      tasks.append(task)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert held == 0 and most <= places
    for _ in range(places):
      await semaphore.acquire("end")
    beyond = asyncio.create_task(semaphore.acquire("end"))
    await settle()
    assert not beyond.done()
    beyond.cancel()

  run(main())


def test_each_of_many_groups_gets_its_share_while_all_wait():

  async def main():
    places, got, generator = FairSemaphore(8), defaultdict(int), random.Random(0)

    async def caller(group, calls):
      async def one():
        await places.acquire(group)
        got[group] += 1
        await asyncio.sleep(generator.uniform(0.9, 1.1))
        places.release()
      await asyncio.gather(*(one() for _ in range(calls)))

    tasks = [asyncio.create_task(caller(group, 1000 if group == 0 else 100)) for group in range(10)]
    await asyncio.sleep(50)
    counts = dict(got)
    for task in tasks:
      task.cancel()
    return counts

  counts = run(main())
  assert sum(counts.values()) == pytest.approx(8 * 50, abs=10)
  # The places that are free at the beginning go to the group that comes first.
  assert max(counts.values()) - min(counts.values()) <= 9


def test_few_begin_in_a_turn_of_the_loop_and_the_highest_rank_first():

  async def main():
    stagger, begun = Stagger(2), []

    async def one(name, rank):
      await stagger.enter(rank)
      begun.append((name, turn))

    turn, tasks = 0, []
    for name, rank in zip("abcdefg", (0, 0, 1, 0, 2, 1, 0), strict=True):
      tasks.append(asyncio.create_task(one(name, rank)))
    while not all(task.done() for task in tasks):
      await asyncio.sleep(0)
      turn += 1
    return begun

  begun = run(main())
  assert "".join(name for name, _ in begun) == "abecfdg"
  turns = [turn for _, turn in begun]
  assert all(turns.count(turn) <= 2 for turn in turns)


def test_one_who_goes_away_takes_no_turn_from_the_others():

  async def main():
    stagger = Stagger(1)
    tasks = [asyncio.create_task(stagger.enter(0)) for _ in range(5)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [task.cancelled() for task in tasks]

  assert run(main()) == [False, False, True, False, False]


async def starts(pace, amounts):
  """When each of several requests that come together may start."""

  async def one(amount):
    await pace.take(amount)
    return now()

  return await asyncio.gather(*map(one, amounts))


def test_requests_are_spread_evenly():
  assert run(starts(Pace(97), [1] * 5)) == pytest.approx([i * STEP for i in range(5)])


def test_amounts_take_time_in_proportion():
  assert run(starts(Pace(97), [3, 2, 1, 1])) == pytest.approx([0, 3 * STEP, 5 * STEP, 6 * STEP])


def test_time_in_which_nothing_is_taken_saves_up_nothing():

  async def main():
    pace = Pace(97)
    await pace.take(1)
    await asyncio.sleep(100)
    return await starts(pace, [1, 1, 1])

  assert run(main()) == pytest.approx([100, 100 + STEP, 100 + 2 * STEP])


def test_what_is_given_back_lets_the_next_start_sooner_also_one_that_waits_already():

  async def main():
    pace = Pace(97)
    await pace.take(100)
    waiting = asyncio.create_task(starts(pace, [1, 1]))
    await asyncio.sleep(1)
    pace.give_back(95)
    return await waiting

  assert run(main()) == pytest.approx([5 * STEP, 6 * STEP])


def test_more_than_was_taken_delays_the_next():

  async def main():
    pace = Pace(97)
    await pace.take(1)
    waiting = asyncio.create_task(starts(pace, [1]))
    await settle()
    pace.give_back(-9)
    return await waiting

  assert run(main()) == pytest.approx([10 * STEP])


def test_one_who_goes_away_leaves_its_time_to_the_others():

  async def main():
    pace = Pace(97)
    await pace.take(1)
    leaving = [asyncio.create_task(pace.take(100)) for _ in range(50)]
    staying = asyncio.create_task(starts(pace, [1, 1]))
    await settle()
    for task in leaving:
      task.cancel()
    return await staying

  assert run(main()) == pytest.approx([STEP, 2 * STEP])


@pytest.mark.parametrize("stall", [0.005, 5.0])
def test_a_loop_that_was_held_up_catches_up_a_little_and_never_in_a_burst(stall):

  async def main():
    pace = Pace(60_000 / 0.97)  # one in a millisecond
    asyncio.get_running_loop().call_later(0.0105, hold_up)
    return await starts(pace, [1] * 100)

  def hold_up():
    asyncio.get_running_loop()._clock.seconds += stall

  times = run(main())
  assert times[10] == pytest.approx(0.010) and times[11] == pytest.approx(0.0105 + stall)
  together = sum(time == times[11] for time in times)
  assert together == (5 if stall == 0.005 else 21)  # up to 20 ms are made up for
  for first, later in zip(times[11 + together:], times[12 + together:], strict=False):
    assert later - first == pytest.approx(0.001)
