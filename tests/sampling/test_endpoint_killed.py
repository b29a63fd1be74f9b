"""A server of ours that is killed, with SIGKILL: it comes back, and no completion is lost."""

import asyncio

import numpy as np
import pytest

from conductor_jax.errors import UserError
from tests.sampling.over_a_sync import (
    PROMPT,
    SEEDS,
    TOKEN_SECONDS,
    open_slow,
    sample_over_a_sync,
)
from tests.sampling.stand_in import GENERATE, arm, asked, kill, until
from tests.sampling.tiny_policy import check, moved, open_sampler, params


@pytest.mark.parametrize("route", ["/collective_rpc", "/resume"])
async def test_it_is_started_again_when_it_is_killed_in_a_sync(tmp_path, route):
  async with open_slow(tmp_path) as sampler:
    url = sampler.server.url
    arm(url, route, "hang")

    async def disturb():
      await until(lambda: asked(url, route))
      kill(tmp_path / "log")

    await sample_over_a_sync(sampler, moved(0.5), disturb)
    assert asked(sampler.server.url, "/collective_rpc") == 0


async def test_after_a_kill_only_the_missing_completions_are_asked_for_again(tmp_path):
  seeds = np.arange(40, dtype=np.uint32)
  async with open_slow(tmp_path) as sampler:
    expected = await sampler.sample(PROMPT, seeds, 1.0)
    lengths = [len(completion.tokens) for completion in expected]
    assert min(lengths) <= 3 and max(lengths) == 12
    began = asked(sampler.server.url, GENERATE)
    sampling = asyncio.create_task(sampler.sample(PROMPT, seeds, 1.0))
    await until(lambda: asked(sampler.server.url, GENERATE) == began + len(seeds))
    await asyncio.sleep(5 * TOKEN_SECONDS)
    kill(tmp_path / "log")
    completions = await sampling
    again = asked(sampler.server.url, GENERATE) - 1
  assert sum(length == 12 for length in lengths) <= again < len(seeds)
  assert [c.tokens.tolist() for c in completions] == [c.tokens.tolist() for c in expected]
  for completion in completions:
    check(completion, PROMPT, {1: params()})


async def test_it_is_started_again_though_the_sample_that_found_it_dead_is_called_off(tmp_path):
  async with open_sampler(tmp_path, own=True) as sampler:
    kill(tmp_path / "log")
    sampling = asyncio.create_task(sampler.sample(PROMPT, SEEDS, 1.0))
    await until(lambda: any(line.endswith("it is started again") for line in sampler.said))
    sampling.cancel()
    async with asyncio.timeout(30):
      completions = await sampler.sample(PROMPT, SEEDS, 1.0)
    for completion in completions:
      check(completion, PROMPT, {1: params()})
    assert sampling.cancelled()
    assert sum(line.endswith("it is started again") for line in sampler.said) == 1


async def test_one_that_cannot_be_started_again_is_an_error_with_the_reason(tmp_path):
  async with open_sampler(tmp_path, own=True, max_tokens=2) as sampler:
    sampler.server._environment["FAKE_VLLM_START"] = "die"
    kill(tmp_path / "log")
    with pytest.raises(UserError, match="no vLLM server is left .*armed to die at the start"):
      await sampler.sample(PROMPT, SEEDS, 1.0)
