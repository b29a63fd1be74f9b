"""Completions that are begun before new weights are loaded, of a server of ours."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from conductor_jax.sampling.sampler import Completion
from tests.sampling.stand_in import GENERATE, asked, until
from tests.sampling.tiny_policy import check, open_sampler, params

PROMPT = [4, 5, 6]
SEEDS = np.arange(6, dtype=np.uint32)
TOKEN_SECONDS = 0.03


def open_slow(root, **options):
  """A sampler with a server that takes its time for a token."""
  return open_sampler(root, own=True, FAKE_VLLM_TOKEN_SECONDS=str(TOKEN_SECONDS), **options)


async def sample_over_a_sync(
    sampler, target: dict, disturb: Callable[[], Awaitable[None]] | None = None
) -> list[Completion]:
  """Completions that are begun before weights of version 2 are loaded; all are checked.

  Args:
    sampler: from `open_slow`.
    target: the weights.
    disturb: awaited while they are loaded.
  """
  url = sampler.server.url
  before = asyncio.create_task(sampler.sample(PROMPT, SEEDS, 1.0))
  await until(lambda: asked(url, GENERATE) > len(SEEDS))
  await asyncio.sleep(3 * TOKEN_SECONDS)
  sampler.stage(target, 2)
  loading = asyncio.create_task(sampler.load())
  if disturb:
    await disturb()
  await loading
  after = await sampler.sample(PROMPT, SEEDS, 1.0)
  for completion in [*await before, *after]:
    check(completion, PROMPT, {1: params(), 2: target})
  assert all(set(completion.weight_versions.tolist()) == {2} for completion in after)
  return await before
