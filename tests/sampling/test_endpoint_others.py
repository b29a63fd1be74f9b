"""Servers that are not ours fail: they are tried once more, left out, and taken in again."""

import asyncio

import numpy as np
import pytest

from conductor_jax.errors import UserError
from tests.sampling.stand_in import GENERATE, until
from tests.sampling.tiny_policy import check, moved, open_sampler, params

PROMPT = [4, 5, 6]
SEEDS = np.arange(6, dtype=np.uint32)
# The change of a step that the tolerance for rounding hides.
SMALL = 2e-4


async def sample_and_check(sampler, weights):
  """Versions that wrote the completions of a prompt, which are checked."""
  completions = await sampler.sample(PROMPT, SEEDS, 1.0)
  for completion in completions:
    check(completion, PROMPT, weights)
  return {version for each in completions for version in each.weight_versions.tolist()}


@pytest.mark.parametrize("route, kind", [
    ("/pause", "status"), ("/pause", "drop"), ("/collective_rpc", "hang"),
    ("/collective_rpc", "status"), ("/collective_rpc", "truncate"),
    ("/collective_rpc", "keep_old_weights"), ("/reset_prefix_cache", "reset_fails"),
    ("/update_weight_version", "garbage"), ("/resume", "drop"), ("/weight_info", "wrong_version"),
    (GENERATE, "status")])
async def test_a_fault_in_a_sync_is_tried_once_more(tmp_path, fake_vllm, route, kind):
  async with open_sampler(tmp_path, urls=[fake_vllm.url], sync_timeout=1.0) as sampler:
    fake_vllm.arm(route, kind)
    sampler.stage(moved(SMALL), 2)
    await sampler.load()
    assert fake_vllm.ask("/is_paused") == {"is_paused": False}
    assert await sample_and_check(sampler, {2: moved(SMALL)}) == {2}
    assert len(sampler.said) == 1 and sampler.said[0].endswith(": once more from the start")


async def test_completions_over_a_failed_sync_are_of_confirmed_weights_alone(
    tmp_path, start_fake_vllm):
  server = start_fake_vllm(FAKE_VLLM_TOKEN_SECONDS="0.03")
  async with open_sampler(tmp_path, urls=[server.url]) as sampler:
    sampling = asyncio.create_task(sample_and_check(sampler, {1: params(), 2: moved(0.5)}))
    await until(lambda: len(server.requests(GENERATE)) > len(SEEDS))
    # It goes on under the name of the new weights with the old ones, until the probe is answered.
    server.arm("/collective_rpc", "keep_old_weights")
    sampler.stage(moved(0.5), 2)
    await sampler.load()
    assert await sampling >= {2}
    assert "its log-probabilities are off by" in sampler.said[0]


async def test_one_that_keeps_old_weights_is_left_out_and_not_paused(tmp_path, start_fake_vllm):
  good, bad = start_fake_vllm(), start_fake_vllm()
  async with open_sampler(tmp_path, urls=[good.url, bad.url], look_again=60) as sampler:
    bad.arm("/collective_rpc", "keep_old_weights", times=None)
    sampler.stage(moved(SMALL), 2)
    await sampler.load()
    assert bad.ask("/is_paused") == {"is_paused": False}
    assert "bit for bit those of earlier weights" in sampler.said[-1]
    assert sampler.said[-1].endswith("it is left out")
    told = len(bad.requests(GENERATE))
    for _ in range(3):
      assert await sample_and_check(sampler, {2: moved(SMALL)}) == {2}
    assert len(bad.requests(GENERATE)) == told


async def test_one_that_fails_between_pause_and_resume_is_left_out_and_not_paused(
    tmp_path, start_fake_vllm):
  good, bad = start_fake_vllm(), start_fake_vllm()
  async with open_sampler(tmp_path, urls=[good.url, bad.url], look_again=60) as sampler:
    bad.arm("/collective_rpc", "status", status=500, times=None)
    sampler.stage(moved(0.5), 2)
    await sampler.load()
    assert sampler.said[-1].endswith("answered 500: armed fault 500: it is left out")
    assert bad.ask("/is_paused") == {"is_paused": False}
    assert await sample_and_check(sampler, {2: moved(0.5)}) == {2}


async def test_a_sync_that_is_called_off_leaves_it_running(tmp_path, fake_vllm):
  async with open_sampler(tmp_path, urls=[fake_vllm.url]) as sampler:
    fake_vllm.arm("/collective_rpc", "hang")
    sampler.stage(moved(0.5), 2)
    loading = asyncio.create_task(sampler.load())
    await until(lambda: len(fake_vllm.requests("/collective_rpc")) == 2)
    loading.cancel()
  assert fake_vllm.ask("/is_paused") == {"is_paused": False}


async def test_one_that_is_down_at_first_is_taken_in_when_it_answers(tmp_path, start_fake_vllm):
  up, down = start_fake_vllm(), start_fake_vllm()
  port = int(down.url.rpartition(":")[2])
  down.kill()
  async with open_sampler(tmp_path, urls=[down.url, up.url]) as sampler:
    assert sampler.said[-1].endswith("it is left out")
    sampler.stage(moved(0.5), 2)
    await sampler.load()
    assert await sample_and_check(sampler, {2: moved(0.5)}) == {2}
    back = start_fake_vllm(port=port)
    await until(lambda: sampler.said[-1] == f"{back.url} is back")
    # It began with the weights of its own folder.
    assert back.ask("/weight_info")["weight_version"].endswith("/step-000002")
    for _ in range(2):
      assert await sample_and_check(sampler, {2: moved(0.5)}) == {2}
    assert len(back.requests(GENERATE)) >= 1 + len(SEEDS)


async def test_one_that_dies_while_it_samples_leaves_its_work_to_another(
    tmp_path, start_fake_vllm):
  slow, other = start_fake_vllm(FAKE_VLLM_TOKEN_SECONDS="0.05"), start_fake_vllm()
  async with open_sampler(tmp_path, urls=[slow.url, other.url]) as sampler:
    sampling = asyncio.create_task(sample_and_check(sampler, {1: params()}))
    await until(lambda: len(slow.requests(GENERATE)) == 1 + len(SEEDS))
    slow.kill()
    assert await sampling == {1}
    assert len(other.requests(GENERATE)) == 1 + len(SEEDS)


async def test_one_that_came_back_with_old_weights_writes_nothing_that_is_kept(
    tmp_path, start_fake_vllm):
  server = start_fake_vllm()
  async with open_sampler(tmp_path, urls=[server.url], look_again=60) as sampler:
    sampler.stage(moved(0.5), 2)
    await sampler.load()
    server.kill()
    start_fake_vllm(port=int(server.url.rpartition(":")[2]))
    assert await sample_and_check(sampler, {2: moved(0.5)}) == {2}


async def test_when_all_are_down_an_error_names_each(tmp_path, start_fake_vllm):
  servers = [start_fake_vllm(), start_fake_vllm()]
  async with open_sampler(tmp_path, urls=[server.url for server in servers]) as sampler:
    for server in servers:
      server.kill()
    with pytest.raises(UserError, match="no vLLM server is left") as fault:
      await sampler.sample(PROMPT, SEEDS, 1.0)
    assert all(server.url in str(fault.value) for server in servers)
    assert "\n" not in str(fault.value)


async def test_a_server_gives_its_memory_back_and_wakes_with_the_next_weights(
    tmp_path, start_fake_vllm):
  server = start_fake_vllm("--enable-sleep-mode")
  async with open_sampler(tmp_path, urls=[server.url], share_device=True) as sampler:
    await sampler.rest()
    assert server.ask("/is_sleeping") == {"is_sleeping": True}
    waiting = asyncio.create_task(sample_and_check(sampler, {2: moved(0.5)}))
    sampler.stage(moved(0.5), 2)
    began = len(server.requests())
    await sampler.load()
    assert await waiting == {2}
    routes = [(each["route"], each["query"].get("tags")) for each in server.requests()[began:]
              if each["route"] != GENERATE]
    assert routes == [
        ("/wake_up", "weights"), ("/collective_rpc", None), ("/wake_up", "kv_cache"),
        ("/reset_prefix_cache", None), ("/update_weight_version", None), ("/resume", None),
        ("/weight_info", None)]


async def test_a_server_with_a_device_of_its_own_stays_awake(tmp_path, fake_vllm):
  async with open_sampler(tmp_path, urls=[fake_vllm.url]) as sampler:
    await sampler.rest()
    assert fake_vllm.ask("/is_sleeping") == {"is_sleeping": False}
    assert await sample_and_check(sampler, {1: params()}) == {1}
