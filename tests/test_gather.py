import asyncio

import pytest

from conductor_jax.gather import gather_all


async def test_results_come_in_the_order_asked_for_whoever_is_done_first():
  async def after(turns, value):
    for _ in range(turns):
      await asyncio.sleep(0)
    return value

  assert await gather_all([after(3, "slow"), after(0, "fast")]) == ["slow", "fast"]
  assert await gather_all([]) == []


@pytest.mark.parametrize("how", ["fault", "cancelled"])
async def test_nothing_runs_on_after_a_fault_or_a_cancellation(how):
  ended = []

  async def waits():
    try:
      await asyncio.Event().wait()
    finally:
      await asyncio.sleep(0)  # the end is waited for too
      ended.append(True)

  async def fails():
    await asyncio.sleep(0)
    if how == "fault":
      raise KeyError("broken")
    await asyncio.Event().wait()

  gathering = asyncio.create_task(gather_all([waits(), fails(), waits()]))
  for _ in range(3):
    await asyncio.sleep(0)
  if how == "cancelled":
    gathering.cancel()
  with pytest.raises(KeyError if how == "fault" else asyncio.CancelledError):
    await gathering
  assert ended == [True, True]
