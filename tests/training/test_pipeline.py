"""The pipeline: what is begun when, and how old what a step trains on may be."""

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest

from conductor_jax.training.pipeline import Pipeline


@dataclass(frozen=True)
class Sampled:
  number: int
  oldest_version: int


class Rollouts:
  """Groups that end when they are told to; they are written by the weights they begin with."""

  def __init__(self, *, groups=2, steps=100, max_staleness=0, extra=0):
    self.loaded = self.staged = 0
    self.ends: dict[int, asyncio.Event] = {}
    self.begun: list[int] = []
    self.faults: dict[int, Exception] = {}
    self.load_fault: Exception | None = None
    self.loading = asyncio.Event()
    self.loading.set()
    self.pipeline = Pipeline(
        self.collect, self.load, groups=groups, steps=steps, max_staleness=max_staleness,
        extra=extra)

  async def collect(self, number):
    self.begun.append(number)
    version = self.loaded
    await self.ends.setdefault(number, asyncio.Event()).wait()
    if number in self.faults:
      raise self.faults[number]
    return Sampled(number, version)

  async def load(self):
    await self.loading.wait()
    if self.load_fault is not None:
      raise self.load_fault
    self.loaded = self.staged

  def end(self, *numbers):
    for number in numbers:
      self.ends.setdefault(number, asyncio.Event()).set()

  async def advance(self, version):
    self.staged = version
    await self.pipeline.advance(version)
    await settle()

  async def take(self, step):
    taken = await asyncio.wait_for(self.pipeline.take(step), 5)
    await settle()
    return taken


async def settle():
  for _ in range(5):
    await asyncio.sleep(0)


async def started(*, step=0, record=None, **options):
  rollouts = Rollouts(**options)
  rollouts.loaded = rollouts.staged = step
  await rollouts.pipeline.start(step, record or {})
  await settle()
  return rollouts


def numbers(taken):
  return [group.number for group in taken.groups]


async def test_on_policy_nothing_is_begun_before_the_weights_of_its_step_are_loaded():
  rollouts = await started(max_staleness=0)
  for step in range(3):
    assert rollouts.begun == list(range(2 * step + 2))
    rollouts.end(2 * step + 1, 2 * step)
    taken = await rollouts.take(step)
    assert (numbers(taken), taken.staleness, taken.dropped) == (
        [2 * step, 2 * step + 1], [0, 0], 0)
    assert len(rollouts.begun) == 2 * step + 2
    await rollouts.advance(step + 1)


async def test_a_batch_ahead_is_begun_for_every_version_that_rollouts_may_lag_behind():
  for staleness in (1, 2, 3):
    rollouts = await started(max_staleness=staleness)
    assert rollouts.begun == list(range(2 * (staleness + 1)))
    rollouts.end(*range(100))
    await settle()
    await rollouts.take(0)
    assert len(rollouts.begun) == 2 * (staleness + 1)
    await rollouts.advance(1)
    assert len(rollouts.begun) == 2 * (staleness + 2)


async def test_groups_are_taken_in_the_order_they_were_begun_in_as_soon_as_enough_are_done():
  rollouts = await started(max_staleness=1)
  waiting = asyncio.create_task(rollouts.take(0))
  rollouts.end(3)
  await settle()
  assert not waiting.done()
  rollouts.end(1)
  assert numbers(await waiting) == [1, 3]
  await rollouts.advance(1)
  rollouts.end(0, 2, 4, 5)
  await settle()
  taken = await rollouts.take(1)
  assert (numbers(taken), taken.staleness) == ([0, 2], [1, 1])


async def test_a_group_that_comes_too_late_is_dropped_and_counted():
  rollouts = await started(max_staleness=1)
  rollouts.end(1, 2)
  await rollouts.take(0)
  await rollouts.advance(1)
  rollouts.end(3, 4)
  await settle()
  assert numbers(await rollouts.take(1)) == [3, 4]
  await rollouts.advance(2)
  rollouts.end(0)  # written by the weights of version 0
  rollouts.end(*range(5, 20))
  await settle()
  taken = await rollouts.take(2)
  assert taken.dropped == 1 and 0 not in numbers(taken)
  assert max(taken.staleness) <= 1


async def test_groups_that_never_end_do_not_keep_others_from_being_begun():
  rollouts = await started(max_staleness=1)
  for step in range(5):
    # Two of every four are never done.
    rollouts.end(*(number for number in range(400) if number % 4 < 2))
    taken = await rollouts.take(step)
    assert max(taken.staleness) <= 1
    await rollouts.advance(step + 1)


async def test_extra_groups_take_the_place_of_late_ones_and_of_no_others():
  rollouts = await started(max_staleness=1, extra=1)
  assert rollouts.begun == [0, 1, 2, 3]
  rollouts.end(1, 2)
  await rollouts.take(0)
  await rollouts.advance(1)
  # 0 and 3 are late; one of them is made up for.
  assert rollouts.begun == [0, 1, 2, 3, 4, 5, 6]
  rollouts.end(0, 3)
  await settle()
  taken = await rollouts.take(1)
  assert (numbers(taken), taken.staleness) == ([0, 3], [1, 1])
  punctual = await started(max_staleness=1, extra=1)
  punctual.end(*range(4))
  await punctual.take(0)
  await punctual.advance(1)
  assert punctual.begun == [0, 1, 2, 3, 4, 5]


async def test_no_group_is_begun_that_no_step_would_take():
  rollouts = await started(max_staleness=5, steps=3)
  assert rollouts.begun == list(range(6))
  rollouts.end(*range(6))
  for step in range(3):
    await rollouts.take(step)
    await rollouts.advance(step + 1)
  assert len(rollouts.begun) == 6 and rollouts.pipeline.record()["begun"] == []


async def test_a_resumed_pipeline_collects_anew_what_was_under_way_and_goes_on_after_it():
  rollouts = await started(max_staleness=1)
  rollouts.end(1, 2)
  await rollouts.take(0)
  await rollouts.advance(1)
  record = rollouts.pipeline.record()
  assert record == {"next": 6, "begun": [0, 3, 4, 5]}
  await rollouts.pipeline.close()
  resumed = await started(step=1, record=record, max_staleness=1)
  assert resumed.begun == [0, 3, 4, 5]
  assert resumed.pipeline.record() == record
  resumed.end(*range(9))
  await settle()
  taken = await resumed.take(1)
  # The weights that wrote them are those of the resumed run, not older ones.
  assert (numbers(taken), taken.staleness) == ([0, 3], [0, 0])
  await resumed.advance(2)
  assert resumed.begun == [0, 3, 4, 5, 6, 7]


async def test_a_record_of_more_groups_than_may_be_begun_loses_none():
  resumed = await started(step=4, record={"next": 9, "begun": [3, 5, 6]}, max_staleness=0)
  assert resumed.begun == [3, 5]
  assert resumed.pipeline.record() == {"next": 9, "begun": [3, 5, 6]}


async def test_the_next_step_may_go_on_while_weights_are_loaded():
  rollouts = await started(max_staleness=1)
  rollouts.end(0, 1, 2, 3)
  await settle()
  await rollouts.take(0)
  rollouts.loading.clear()
  rollouts.staged = 1
  advancing = asyncio.create_task(rollouts.pipeline.advance(1))
  taken = await rollouts.take(1)
  assert numbers(taken) == [2, 3]
  assert rollouts.begun == [0, 1, 2, 3]  # none with weights that are being replaced
  rollouts.loading.set()
  await advancing
  await settle()
  assert rollouts.begun == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_fault_of_a_group_or_of_loading_is_raised_where_the_batch_is_waited_for(waits):
  for kind in ("group", "load"):
    rollouts = await started(max_staleness=0)
    rollouts.end(0, 1)
    await rollouts.take(0)
    if kind == "load":
      rollouts.load_fault = OSError("broken")
    else:
      rollouts.faults[3] = OSError("broken")
    if not waits:
      await rollouts.advance(1)
      rollouts.end(3)
      await settle()
    taking = asyncio.create_task(rollouts.take(1))
    await settle()
    if waits:
      assert not taking.done()
      await rollouts.advance(1)
      rollouts.end(3)
    with pytest.raises(OSError, match="broken"):
      await taking


async def test_a_fault_of_a_group_that_a_batch_does_not_need_waits_for_one_that_does():
  rollouts = await started(max_staleness=1)
  rollouts.faults[2] = OSError("broken")
  rollouts.end(2)
  await settle()
  rollouts.end(0, 1)
  assert numbers(await rollouts.take(0)) == [0, 1]
  await rollouts.advance(1)
  with pytest.raises(OSError, match="broken"):
    await rollouts.take(1)


async def test_nothing_is_begun_after_the_end():
  rollouts = await started(max_staleness=0)
  rollouts.end(0, 1)
  await rollouts.take(0)
  rollouts.loading.clear()
  rollouts.staged = 1
  loading = asyncio.create_task(rollouts.pipeline.advance(1))
  await settle()
  await rollouts.pipeline.close()
  rollouts.loading.set()
  await loading
  await settle()
  assert rollouts.begun == [0, 1]


async def test_draining_waits_for_what_is_under_way_and_leaves_it_in_the_record():
  rollouts = await started(max_staleness=0)
  rollouts.faults[1] = OSError("broken")
  draining = asyncio.create_task(rollouts.pipeline.drain())
  rollouts.end(0)
  await settle()
  assert not draining.done()
  rollouts.end(1)
  await draining
  assert rollouts.pipeline.record()["begun"] == [0, 1]


async def test_closing_ends_what_is_being_collected():
  rollouts = await started(max_staleness=2)
  collecting = [task for task in asyncio.all_tasks() if "Rollouts.collect" in repr(task)]
  assert len(collecting) == 6
  await rollouts.pipeline.close()
  assert all(task.cancelled() for task in collecting)
  assert rollouts.pipeline.record()["begun"] == []


async def test_the_bound_holds_whatever_the_order_in_which_groups_end_and_weights_arrive():
  generator = np.random.default_rng(0)
  for staleness, extra in ((0, 0), (1, 0), (1, 2), (3, 1)):
    rollouts = await started(max_staleness=staleness, extra=extra, groups=3, steps=60)
    seen = []
    for step in range(60):
      if step == 30:
        # Killed, and resumed from its record.
        record = rollouts.pipeline.record()
        await rollouts.pipeline.close()
        resumed = await started(
            step=step, record=record, max_staleness=staleness, extra=extra, groups=3, steps=60)
        resumed.begun[:0] = rollouts.begun
        rollouts = resumed
      taking = asyncio.create_task(rollouts.take(step))
      while not taking.done():
        running = [number for number, event in rollouts.ends.items() if not event.is_set()]
        if running:
          rollouts.end(int(generator.choice(running)))
        await settle()
      taken = await taking
      assert max(taken.staleness) <= staleness
      seen += numbers(taken)
      await rollouts.advance(step + 1)
    assert len(seen) == len(set(seen)) == 180
