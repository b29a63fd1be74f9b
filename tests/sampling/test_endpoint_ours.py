"""A server of ours that fails while it samples or is given weights: it comes back with them."""

import asyncio

import numpy as np
import pytest

from conductor_jax.errors import UserError
from tests.sampling.stand_in import GENERATE, arm, ask, asked, kill, until
from tests.sampling.tiny_policy import check, moved, open_sampler, params

PROMPT = [4, 5, 6]
SEEDS = np.arange(6, dtype=np.uint32)
TOKEN_SECONDS = 0.03
# The change of a step that the tolerance for rounding hides.
SMALL = 2e-4


def open_slow(root, **options):
  """A sampler with a server that takes its time for a token."""
  return open_sampler(root, own=True, FAKE_VLLM_TOKEN_SECONDS=str(TOKEN_SECONDS), **options)


async def sample_over_a_sync(sampler, target, disturb=None):
  """Completions that are begun before weights of version 2 are loaded; all are checked."""
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


async def test_a_sync_freezes_what_runs_and_lets_it_go_on_with_the_new_weights(tmp_path):
  async with open_slow(tmp_path) as sampler:
    url = sampler.server.url
    began = len(ask(url, "/requests"))
    completions = await sample_over_a_sync(sampler, moved(0.5))
    asked_since = ask(url, "/requests")[began:]
    routes = [each["route"] for each in asked_since]
    assert [route for route in routes if route != GENERATE] == [
        "/pause", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version", "/resume",
        "/weight_info"]
    queries = {each["route"]: each["query"] for each in asked_since}
    assert queries["/pause"] == {"mode": "keep"}
    assert queries["/reset_prefix_cache"] == {"reset_running_requests": "true"}
    # Six before, the probe, and six after: none is asked for twice.
    assert routes.count(GENERATE) == 6 + 1 + 6
    versions = [completion.weight_versions.tolist() for completion in completions]
    assert all(each == sorted(each) for each in versions)
    assert sum(set(each) == {1, 2} for each in versions) >= 4
    assert sampler.said == []
    assert [path.name for path in sampler.folder.glob("step-*")] == ["step-000002"]


@pytest.mark.parametrize("route, kind", [
    ("/pause", "die_after"), ("/collective_rpc", "hang"), ("/collective_rpc", "keep_old_weights"),
    ("/reset_prefix_cache", "reset_fails"), ("/weight_info", "wrong_version")])
async def test_it_is_started_again_with_the_new_weights_after_a_fault(tmp_path, route, kind):
  async with open_slow(tmp_path, sync_timeout=1.0) as sampler:
    arm(sampler.server.url, route, kind)
    await sample_over_a_sync(sampler, moved(SMALL))
    url = sampler.server.url
    assert ask(url, "/is_paused") == {"is_paused": False}
    assert ask(url, "/weight_info")["weight_version"].endswith("/step-000002")
    # A process that has never been given other weights.
    assert asked(url, "/collective_rpc") == 0
    assert len(sampler.said) == 1 and sampler.said[0].endswith(": it is started again")


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
