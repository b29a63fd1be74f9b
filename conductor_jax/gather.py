"""Waiting for several things at once."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any


async def gather_all(awaitables: Iterable[Awaitable[Any]]) -> list[Any]:
  """What they return, in order; after a fault of one, or Ctrl-C, none of them runs on.

  `asyncio.gather` would leave the others to themselves: calls unobserved, and paid for.
  """
  pending = [asyncio.ensure_future(each) for each in awaitables]
  try:
    return await asyncio.gather(*pending)
  finally:
    under_way = [each for each in pending if not each.done()]
    if under_way:
      for each in under_way:
        each.cancel()
      await asyncio.gather(*under_way, return_exceptions=True)
