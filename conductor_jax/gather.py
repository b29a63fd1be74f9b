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
    for each in pending:
      each.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
