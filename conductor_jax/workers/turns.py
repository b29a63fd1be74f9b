"""Who may ask next: places that groups take in turns, and a pace."""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Hashable

# Of a rate that is allowed. Requests spread evenly still arrive a little early or late, and an
# endpoint counts them over windows of its own.
_SHARE = 0.97
# Seconds by which a timer may be late and its rate be made up for. More of them, after the event
# loop was held up, would be a burst.
_LATE = 0.02


class FairSemaphore:
  """So many places; groups that wait take turns, whatever the length of their queues.

  Args:
    places: how many.
  """

  def __init__(self, places: int):
    self._free = places
    self._waiting: dict[Hashable, deque[asyncio.Future]] = {}

  async def acquire(self, group: Hashable) -> None:
    """Waits for a place. Within a group it is first come, first served."""
    if self._free and not self._waiting:
      self._free -= 1
      return
    turn = asyncio.get_running_loop().create_future()
    self._waiting.setdefault(group, deque()).append(turn)
    try:
      await turn
    except asyncio.CancelledError:
      if not turn.cancelled():
        self.release()  # it got the place in the same moment
      raise

  def release(self) -> None:
    """Gives a place to the group whose turn it is."""
    while self._waiting:
      group, queue = next(iter(self._waiting.items()))
      turn = queue.popleft()
      del self._waiting[group]
      if queue:
        self._waiting[group] = queue  # behind the others
      if not turn.done():
        turn.set_result(None)
        return
    self._free += 1


class Stagger:
  """Lets a few begin in each turn of the event loop, those with the highest rank first.

  What is written in a turn leaves at its end, so that the first of many requests that are made at
  once would leave with the last.

  Args:
    width: how many begin in a turn.
  """

  def __init__(self, width: int):
    self._width = self._room = width
    self._waiting: list[tuple[int, int, asyncio.Future]] = []
    self._number = itertools.count()
    self._scheduled = False

  async def enter(self, rank: int) -> None:
    """Waits for a turn with room."""
    loop = asyncio.get_running_loop()
    if not self._scheduled:
      self._scheduled = True
      loop.call_soon(self._turn)
    if self._room and not self._waiting:
      self._room -= 1
      return
    waiting = loop.create_future()
    heapq.heappush(self._waiting, (-rank, next(self._number), waiting))
    await waiting

  def _turn(self) -> None:
    self._room = self._width
    while self._room and self._waiting:
      _, _, waiting = heapq.heappop(self._waiting)
      if not waiting.done():
        waiting.set_result(None)
        self._room -= 1
    self._scheduled = self._room < self._width
    if self._scheduled:
      asyncio.get_running_loop().call_soon(self._turn)


class Pace:
  """Spreads an amount evenly over time, first come, first served: a generic cell rate algorithm.

  Args:
    per_minute: the amount that is allowed; 97 % of it are used.
  """

  def __init__(self, per_minute: float):
    self._seconds = 60 / (per_minute * _SHARE)
    self._next = 0.0
    self._waiting: deque[tuple[asyncio.Future, float]] = deque()
    self._timer: asyncio.TimerHandle | None = None

  async def take(self, amount: float) -> None:
    """Waits until this amount may be taken."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    if not self._waiting and self._next <= now:
      self._next = now + amount * self._seconds
      return
    turn = loop.create_future()
    self._waiting.append((turn, amount))
    if len(self._waiting) == 1:
      self._set_timer()
    try:
      await turn
    except asyncio.CancelledError:
      if not turn.cancelled():
        self.give_back(amount)  # it was its turn in the same moment
      raise

  def give_back(self, amount: float) -> None:
    """Corrects an amount that was taken and not used; below 0, one that was more than taken."""
    self._next -= amount * self._seconds
    if self._waiting:
      self._set_timer()

  def _set_timer(self) -> None:
    if self._timer is not None:
      self._timer.cancel()
    self._timer = asyncio.get_running_loop().call_at(self._next, self._serve)

  def _serve(self) -> None:
    now = asyncio.get_running_loop().time()
    while self._waiting and self._next <= now:
      turn, amount = self._waiting.popleft()
      if not turn.done():
        turn.set_result(None)
        self._next = max(self._next, now - _LATE) + amount * self._seconds
    if self._waiting:
      self._set_timer()
