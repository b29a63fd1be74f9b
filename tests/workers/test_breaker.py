import asyncio

import pytest

from conductor_jax.workers.breaker import Breaker
from tests.workers.clock import now, run, settle


def breaker(failures=3, cooldown=1.0, longest=60.0):
  return Breaker(failures=failures, cooldown=cooldown, longest=longest)


async def ask(guard, up):
  """Makes a request to an endpoint that is up or down, or gives it up."""
  admitted = await guard.admit()
  if admitted != "no":
    guard.report(admitted, up)
  return admitted, now()


def test_it_opens_after_failures_in_a_row_only():

  async def main():
    guard = breaker()
    for up in (False, False, True, False, False, None, None):
      assert await ask(guard, up) == ("yes", 0) and not guard.open
    await ask(guard, False)
    assert guard.open

  run(main())


def test_the_wait_for_a_probe_doubles_up_to_the_limit_and_starts_anew_after_a_success():

  async def main():
    guard = breaker(longest=5.0)
    for _ in range(3):
      await ask(guard, False)
    times = [await ask(guard, False) for _ in range(5)]
    assert times == [("probe", t) for t in (1, 3, 7, 12, 17)]
    assert await ask(guard, True) == ("probe", 22)
    assert not guard.open
    assert [await ask(guard, False) for _ in range(3)] == [("yes", 22)] * 3
    assert await ask(guard, False) == ("probe", 23)

  run(main())


@pytest.mark.parametrize(("up", "others"), [(True, "yes"), (False, "no")])
def test_one_goes_first_and_the_others_wait_for_what_comes_of_it(up, others):

  async def main():
    guard = breaker()
    for _ in range(3):
      await ask(guard, False)
    waiting = [asyncio.create_task(guard.admit()) for _ in range(20)]
    await asyncio.sleep(10)
    assert [task.result() for task in waiting if task.done()] == ["probe"]
    guard.report("probe", up)
    assert sorted(await asyncio.gather(*waiting)) == sorted(["probe"] + [others] * 19)

  run(main())


def test_a_probe_that_is_given_up_hands_over_to_one_other():

  async def main():
    guard = breaker()
    for _ in range(3):
      await ask(guard, False)
    waiting = [asyncio.create_task(guard.admit()) for _ in range(20)]
    await asyncio.sleep(10)
    guard.report("probe", None)
    await settle()
    assert [task.result() for task in waiting if task.done()] == ["probe"] * 2
    assert guard.open
    guard.report("probe", True)
    assert sorted(await asyncio.gather(*waiting)) == ["probe"] * 2 + ["yes"] * 18

  run(main())


def test_one_who_stops_waiting_for_a_probe_leaves_it_to_the_others():

  async def main():
    guard = breaker()
    for _ in range(3):
      await ask(guard, False)
    probe, leaving, staying = [asyncio.create_task(guard.admit()) for _ in range(3)]
    await asyncio.sleep(10)
    leaving.cancel()
    await settle()
    guard.report("probe", True)
    assert (await probe, await staying) == ("probe", "yes")

  run(main())


def test_a_success_of_one_that_was_under_way_closes_it_and_a_failure_does_not_delay_the_probe():

  async def main():
    guard = breaker()
    early = [await guard.admit() for _ in range(5)]
    for admitted in early[:3]:
      guard.report(admitted, False)
    guard.report(early[3], False)
    assert guard.open
    guard.report(early[4], True)
    assert not guard.open
    assert await ask(guard, True) == ("yes", 0)

  run(main())
