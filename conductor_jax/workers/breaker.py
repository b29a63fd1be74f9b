"""The circuit breaker of an endpoint."""

import asyncio
import contextlib
from typing import Literal


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
    self._up = asyncio.Event()
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
        with contextlib.suppress(TimeoutError):
          async with asyncio.timeout(wait):
            await self._up.wait()
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
      self._up.set()
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
    self._up.clear()
    self._until = asyncio.get_running_loop().time() + self._cooldown

  def _end_probe(self, up: bool | None) -> None:
    if self._probe is not None:
      self._probe.set_result(up)
      self._probe = None
