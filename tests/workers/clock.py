"""Time that passes as soon as nobody has anything to do: hours of waiting, to the last digit."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Selector(selectors.DefaultSelector):
  """Jumps to the next timer in place of waiting for it."""

  seconds = 1000.0

  def select(self, timeout=None):
    events = super().select(0)
    if not events and timeout is None:
      raise RuntimeError("everybody waits for somebody else")
    self.seconds += timeout if not events else 0
    return events


class _Loop(asyncio.SelectorEventLoop):

  def __init__(self):
    self._clock = _Selector()
    super().__init__(self._clock)

  def time(self):
    return self._clock.seconds


def run(main: Coroutine[Any, Any, Any]) -> Any:
  """Runs a coroutine whose event loop's time begins at 1000 seconds.

  Raises:
    RuntimeError: nothing is left that could ever happen.
  """
  with asyncio.Runner(loop_factory=_Loop) as runner:
    return runner.run(main)


def now() -> float:
  """Seconds since `run` began."""
  return asyncio.get_running_loop().time() - _Selector.seconds


async def settle() -> None:
  """Lets everything happen that can happen at once."""
  for _ in range(10):
    await asyncio.sleep(0)
