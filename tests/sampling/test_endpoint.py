"""A server that fails while it is given weights: it has them in the end, or is left out."""

import asyncio
import json
import os
import signal
import urllib.request

import numpy as np
import pytest

from conductor_jax.errors import UserError
from tests.sampling.tiny_policy import check, moved, open_sampler, params

PROMPT = [4, 5, 6]
SEEDS = np.arange(6, dtype=np.uint32)
# A step that a probe in bfloat16 would not see by itself, and float32's tolerance does not either.
SMALL = 2e-4
TOKEN_SECONDS = 0.03
GENERATE = "/inference/v1/generate"

# Of a sync: where it fails, and how. All but the last strike once.
FAULTS = [
    ("/pause", "status"), ("/pause", "drop"), ("/pause", "die_after"),
    ("/collective_rpc", "hang"), ("/collective_rpc", "status"), ("/collective_rpc", "truncate"),
    ("/collective_rpc", "die"), ("/collective_rpc", "keep_old_weights"),
    ("/reset_prefix_cache", "reset_fails"), ("/update_weight_version", "garbage"),
    ("/resume", "hang"), ("/weight_info", "wrong_version"), (GENERATE, "status"),
]


def ask(url, route, body=None):
  data = None if body is None else json.dumps(body).encode()
  request = urllib.request.Request(url + route, data, {"Content-Type": "application/json"})
  with urllib.request.urlopen(request, timeout=20) as response:
    return json.load(response)


def arm(url, route, kind, **options):
  ask(url, "/faults", {"route": route, "kind": kind, **options})


def asked(url, route):
  return sum(each["route"] == route for each in ask(url, "/requests"))


async def until(condition):
  async with asyncio.timeout(20):
    while not condition():
      await asyncio.sleep(0.01)


def kill(root):
  """Kills the server of ours with SIGKILL; its log names the process."""
  [*_, pid] = [line.split()[1] for line in (root / "log").read_text().splitlines()
               if line.startswith("server ")]
  os.kill(int(pid), signal.SIGKILL)


async def sample_over_a_sync(sampler, target, disturb=None):
  """Completions that are begun before weights of version 2 are loaded, and some after that."""
  url = sampler.server.url if sampler.server else None
  before = asyncio.create_task(sampler.sample(PROMPT, SEEDS, 1.0))
  if url:
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
  return await before, after


async def test_a_sync_freezes_what_runs_and_lets_it_go_on_with_the_new_weights(tmp_path):
  async with open_sampler(tmp_path, own=True, FAKE_VLLM_TOKEN_SECONDS=str(TOKEN_SECONDS)) as sampler:
    url = sampler.server.url
    began = len(ask(url, "/requests"))
    before, _ = await sample_over_a_sync(sampler, moved(0.5))
    routes = [each["route"] for each in ask(url, "/requests")[began:]]
    sync = [route for route in routes if route != GENERATE]
    assert sync == ["/pause", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version",
                    "/resume", "/weight_info"]
    queries = {each["route"]: each["query"] for each in ask(url, "/requests")[began:]}
    assert queries["/pause"] == {"mode": "keep"}
    assert queries["/reset_prefix_cache"] == {"reset_running_requests": "true"}
    # Six before, the probe, and six after: none is asked for twice.
    assert routes.count(GENERATE) == 6 + 1 + 6
    versions = [completion.weight_versions.tolist() for completion in before]
    assert all(each == sorted(each) for each in versions)
    assert sum(set(each) == {1, 2} for each in versions) >= 4
    assert sampler.said == []
    assert [path.name for path in sampler.folder.glob("step-*")] == ["step-000002"]


@pytest.mark.parametrize("route, kind", FAULTS)
async def test_a_server_of_ours_has_the_weights_after_a_fault(tmp_path, route, kind):
  async with open_sampler(
      tmp_path, own=True, sync_timeout=1.0, FAKE_VLLM_TOKEN_SECONDS=str(TOKEN_SECONDS)) as sampler:
    first = sampler.server.url
    after = len(SEEDS) if route == GENERATE else 0
    arm(first, route, kind, after=after)
    await sample_over_a_sync(sampler, moved(SMALL))
    url = sampler.server.url
    assert ask(url, "/is_paused") == {"is_paused": False}
    assert ask(url, "/weight_info")["weight_version"].endswith("/step-000002")
    # A new process: that of the fault counts its requests no more.
    assert asked(url, "/collective_rpc") == 0
    assert len(sampler.said) == 1 and sampler.said[0].endswith(": it is started again")


@pytest.mark.parametrize("route", ["/collective_rpc", "/update_weight_version", "/resume"])
async def test_a_server_of_ours_that_is_killed_in_a_sync_is_started_again(tmp_path, route):
  async with open_sampler(
      tmp_path, own=True, FAKE_VLLM_TOKEN_SECONDS=str(TOKEN_SECONDS)) as sampler:
    url = sampler.server.url
    arm(url, route, "hang")

    async def disturb():
      await until(lambda: asked(url, route))
      kill(tmp_path)

    await sample_over_a_sync(sampler, moved(0.5), disturb)
    assert asked(sampler.server.url, "/collective_rpc") == 0


async def test_after_a_kill_only_the_missing_completions_are_asked_for_again(tmp_path):
  seeds = np.arange(40, dtype=np.uint32)
  async with open_sampler(tmp_path, own=True) as sampler:
    expected = await sampler.sample(PROMPT, seeds, 1.0)
  (tmp_path / "log").unlink()
  lengths = [len(completion.tokens) for completion in expected]
  assert min(lengths) <= 3 and max(lengths) == 12
  async with open_sampler(tmp_path, own=True, FAKE_VLLM_TOKEN_SECONDS="0.15") as sampler:
    sampling = asyncio.create_task(sampler.sample(PROMPT, seeds, 1.0))
    await until(lambda: asked(sampler.server.url, GENERATE) == 1 + len(seeds))
    # Time for five tokens or so of the twelve.
    await asyncio.sleep(0.8)
    kill(tmp_path)
    completions = await sampling
    again = asked(sampler.server.url, GENERATE) - 1
  assert sum(length == 12 for length in lengths) <= again < len(seeds)
  assert [c.tokens.tolist() for c in completions] == [c.tokens.tolist() for c in expected]
  for completion in completions:
    check(completion, PROMPT, {1: params()})


async def test_a_server_of_ours_that_keeps_failing_is_an_error_with_the_reason(tmp_path):
  async with open_sampler(tmp_path, own=True, max_tokens=2) as sampler:
    sampler.server._environment["FAKE_VLLM_START"] = "die"
    kill(tmp_path)
    with pytest.raises(UserError, match=r"no vLLM server is left .*armed to die at the start"):
      await sampler.sample(PROMPT, SEEDS, 1.0)


@pytest.mark.parametrize("route, kind", [
    (route, kind) for route, kind in FAULTS if kind not in ("die", "die_after")])
async def test_anothers_server_is_tried_once_more(tmp_path, start_fake_vllm, route, kind):
  server = start_fake_vllm(FAKE_VLLM_TOKEN_SECONDS=str(TOKEN_SECONDS))
  async with open_sampler(tmp_path, urls=[server.url], sync_timeout=1.0) as sampler:
    sampling = asyncio.create_task(sampler.sample(PROMPT, SEEDS, 1.0))
    await until(lambda: len(server.requests(GENERATE)) > len(SEEDS))
    server.arm(route, kind)
    sampler.stage(moved(SMALL), 2)
    await sampler.load()
    assert server.ask("/is_paused") == {"is_paused": False}
    for completion in [*await sampling, *await sampler.sample(PROMPT, SEEDS, 1.0)]:
      check(completion, PROMPT, {1: params(), 2: moved(SMALL)})
    assert len(sampler.said) == 1 and sampler.said[0].endswith(": once more from the start")


async def test_anothers_server_that_keeps_old_weights_is_left_out_and_not_paused(
    tmp_path, start_fake_vllm):
  good, bad = start_fake_vllm(), start_fake_vllm()
  async with open_sampler(
      tmp_path, urls=[good.url, bad.url], look_again=60, sync_timeout=1.0) as sampler:
    bad.arm("/collective_rpc", "keep_old_weights", times=None)
    sampler.stage(moved(SMALL), 2)
    await sampler.load()
    assert bad.ask("/is_paused") == {"is_paused": False}
    assert "bit for bit those of earlier weights" in sampler.said[-1]
    assert sampler.said[-1].endswith("it is left out")
    told = len(bad.requests(GENERATE))
    for _ in range(3):
      for completion in await sampler.sample(PROMPT, SEEDS, 1.0):
        check(completion, PROMPT, {2: moved(SMALL)})
    assert len(bad.requests(GENERATE)) == told


async def test_a_sync_that_is_called_off_leaves_anothers_server_running(
    tmp_path, start_fake_vllm):
  server = start_fake_vllm()
  async with open_sampler(tmp_path, urls=[server.url]) as sampler:
    server.arm("/collective_rpc", "hang")
    sampler.stage(moved(0.5), 2)
    loading = asyncio.create_task(sampler.load())
    await until(lambda: len(server.requests("/collective_rpc")) == 2)
    loading.cancel()
  assert server.ask("/is_paused") == {"is_paused": False}


async def test_a_server_gives_its_memory_back_and_wakes_with_the_next_weights(
    tmp_path, start_fake_vllm):
  server = start_fake_vllm("--enable-sleep-mode")
  async with open_sampler(tmp_path, urls=[server.url]) as sampler:
    await sampler.sleep()
    assert server.ask("/is_sleeping") == {"is_sleeping": True}
    waiting = asyncio.create_task(sampler.sample(PROMPT, SEEDS, 1.0))
    sampler.stage(moved(0.5), 2)
    began = len(server.requests())
    await sampler.load()
    routes = [(each["route"], each["query"].get("tags")) for each in server.requests()[began:]
              if each["route"] != GENERATE]
    assert routes == [
        ("/wake_up", "weights"), ("/collective_rpc", None), ("/wake_up", "kv_cache"),
        ("/reset_prefix_cache", None), ("/update_weight_version", None), ("/resume", None),
        ("/weight_info", None)]
    for completion in await waiting:
      assert set(completion.weight_versions.tolist()) == {2}
      check(completion, PROMPT, {2: moved(0.5)})


