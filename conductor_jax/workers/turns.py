"""Who may ask next: places that groups take in turns, a pace, and a breaker for what is down."""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Literal

# Of a rate that is allowed. Requests spread evenly still arrive a little early or late, and an
# endpoint counts them over windows of its own.
_SHARE = 0.97


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


class Pace:
  """Spreads an amount evenly over time: a virtual schedule, as in the generic cell rate algorithm.

  Args:
    per_minute: the amount that is allowed; 97 % of it are used.
  """

  def __init__(self, per_minute: float):
    self._seconds = 60 / (per_minute * _SHARE)
    self._next = 0.0

  async def take(self, amount: float) -> None:
    """Waits for this amount's place in the schedule, which it has from the moment of asking."""
    now = asyncio.get_running_loop().time()
    start = max(self._next, now)
    self._next = start + amount * self._seconds
    if start > now:
      await asyncio.sleep(start - now)

  def give_back(self, amount: float) -> None:
    """Corrects an amount that was taken and not used; below 0, one that was more than taken."""
    self._next -= amount * self._seconds


class Breaker:
  """Keeps calls away from an endpoint that is down.

  It opens after so many attempts in a row have failed, and lets one through after a while, the
  probe. If that succeeds, all go through again; if it fails, the next one waits twice as long.

  Args:
    failures: attempts in a row.
    cooldown: seconds until the first probe.
    longest: seconds that bound the wait for any probe.
  """

  def __init__(self, *, failures: int, cooldown: float, longest: float):
    self._most, self._first, self._longest = failures, cooldown, longest
    self._failures = 0
    self._cooldown = cooldown
    self._until: float | None = None
    self._probe: asyncio.Future | None = None

  @property
  def open(self) -> bool:
    """Whether calls are kept away."""
    return self._until is not None

  async def admit(self) -> Literal["yes", "probe", "no"]:
    """Waits while the endpoint is taken to be down.

    Returns:
      "yes" or "probe" for a call that may ask and must report what came of it, "no" after another
      one's probe has failed.
    """
    while self._until is not None:
      wait = self._until - asyncio.get_running_loop().time()
      if self._probe is not None:
        if await asyncio.shield(self._probe) is False:
          return "no"
      elif wait > 0:
        await asyncio.sleep(wait)
      else:
        self._probe = asyncio.get_running_loop().create_future()
        return "probe"
    return "yes"

  def report(self, admitted: Literal["yes", "probe"], up: bool | None) -> None:
    """Tells what came of an attempt.

    Args:
      admitted: what `admit` returned.
      up: whether the endpoint works; None if the attempt was given up.
    """
    if up:
      self._failures, self._cooldown, self._until = 0, self._first, None
      self._end_probe(True)
    elif admitted == "probe":
      if up is False:
        self._cooldown = min(2 * self._cooldown, self._longest)
        self._open()
      self._end_probe(up)
    elif up is False and self._until is None:
      self._failures += 1
      if self._failures >= self._most:
        self._open()

  def _open(self) -> None:
    self._until = asyncio.get_running_loop().time() + self._cooldown

  def _end_probe(self, up: bool | None) -> None:
    if self._probe is not None:
      self._probe.set_result(up)
      self._probe = None
