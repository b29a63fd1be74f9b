"""Rollouts for the steps to come, collected while one trains.

How far they may lag behind is bounded as in AReaL (arXiv 2505.24298): so many groups are begun that
each can still be used in time, and one that comes too late is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar


class Collected(Protocol):
  """A group of rollouts, and the oldest version of the weights that wrote it."""

  oldest_version: int


Group = TypeVar("Group", bound=Collected)


@dataclass(frozen=True)
class Taken(Generic[Group]):
  """What a step trains on.

  Attributes:
    groups: in the order they were begun in.
    staleness: of each group, the updates made since the oldest weights that wrote it.
    dropped: groups that came too late for this step and any other.
  """

  groups: list[Group]
  staleness: list[int]
  dropped: int


@dataclass(frozen=True)
class _Begun:
  """A group that is being collected, or waits to be taken.

  Attributes:
    group: the task that collects it.
    version: of the newest weights when it was begun.
  """

  group: asyncio.Task
  version: int


class Pipeline(Generic[Group]):
  """Collects groups ahead of their use; everything but the constructor runs on one event loop.

  A group has a number, from 0 on, that says everything about it: which question, which seeds. The
  step that takes the batch `s` trains the weights of version `s`.

  Args:
    collect: number → a group, sampled with the weights that were loaded last.
    load: makes the sampler take the weights that were staged last.
    groups: taken by a step.
    steps: how many there are.
    max_staleness: versions that a group's weights may be older than those that it trains. 0
      collects nothing while a step trains.
    extra: groups that may be begun in place of late ones, which are still taken if they come in
      time.
  """

  def __init__(
      self, collect: Callable[[int], Awaitable[Group]], load: Callable[[], Awaitable[None]], *,
      groups: int, steps: int, max_staleness: int, extra: int = 0):
    self._collect, self._load = collect, load
    self._groups, self._steps = groups, steps
    self._max_staleness, self._extra = max_staleness, extra
    self._version = self._taken = 0
    self._next = 0
    self._again: deque[int] = deque()
    self._begun: dict[int, _Begun] = {}
    self._fault: BaseException | None = None
    self._changed = asyncio.Event()
    self._closed = False

  async def start(self, step: int, record: Mapping[str, Any]) -> None:
    """Begins before `step`, whose weights are loaded.

    Args:
      step: the next one.
      record: from `record`; empty at the very beginning. Groups that it lists as begun are
        collected anew, with newer weights.
    """
    self._version = self._taken = step
    self._next = record.get("next", 0)
    self._again.extend(record.get("begun", ()))
    self._begin()

  async def advance(self, version: int) -> None:
    """Loads the weights staged last, which are of this version, and begins what they allow."""
    try:
      await self._load()
    except Exception as fault:  # raised where it is waited for, in `take`
      self._fault = fault
    else:
      self._version = version
      self._begin()
    self._changed.set()

  async def take(self, step: int) -> Taken[Group]:
    """Waits for the batch of a step: of the groups that are done, those begun first.

    Raises:
      Whatever `load` raised, or `collect` where its group is needed for the batch.
    """
    dropped = 0
    while True:
      self._changed.clear()
      if self._fault is not None:
        raise self._fault
      fresh, failed = [], []
      for number, begun in list(self._begun.items()):
        if not begun.group.done():
          continue
        if begun.group.exception() is not None:
          failed.append(begun.group)
        elif step - begun.group.result().oldest_version > self._max_staleness:
          del self._begun[number]
          dropped += 1
        else:
          fresh.append(number)
      if len(fresh) >= self._groups:
        break
      if failed:
        failed[0].result()  # raises the fault
      self._begin()
      await self._changed.wait()
    groups = [self._begun.pop(number).group.result() for number in fresh[:self._groups]]
    self._taken = step + 1
    self._begin()
    return Taken(groups, [step - group.oldest_version for group in groups], dropped)

  def record(self) -> dict[str, Any]:
    """What `start` needs to go on from here; JSON types."""
    return {"next": self._next, "begun": sorted([*self._begun, *self._again])}

  async def drain(self) -> None:
    """Waits until nothing that was begun is under way, however it ends."""
    await asyncio.gather(*(begun.group for begun in self._begun.values()), return_exceptions=True)

  async def close(self) -> None:
    """Ends what is being collected; nothing is begun after it."""
    self._closed = True
    for begun in self._begun.values():
      begun.group.cancel()
    await asyncio.gather(*(begun.group for begun in self._begun.values()), return_exceptions=True)
    self._begun.clear()

  def _begin(self) -> None:
    """Begins as many groups as can be taken before they are too old."""
    if self._closed:
      return
    # One that will be too old for the next step, as far as is known, holds nobody up.
    counted = [begun for begun in self._begun.values()
               if begun.version + self._max_staleness >= self._taken]
    late = sum(not begun.group.done() and begun.version < self._version for begun in counted)
    last = min(self._version + self._max_staleness + 1, self._steps)
    room = (last - self._taken) * self._groups - len(counted) + min(late, self._extra)
    for _ in range(room):
      number = self._number()
      group = asyncio.ensure_future(self._collect(number))
      group.add_done_callback(lambda _: self._changed.set())
      self._begun[number] = _Begun(group, self._version)

  def _number(self) -> int:
    if self._again:
      return self._again.popleft()
    self._next += 1
    return self._next - 1
