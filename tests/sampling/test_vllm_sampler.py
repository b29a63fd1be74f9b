"""Sampling from stand-in servers: what is asked of which, and what faults of one request cost."""

import asyncio
import time

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from conductor_jax.errors import UserError
from conductor_jax.sampling import vllm_sampler
from tests.sampling.stand_in import GENERATE, until
from tests.sampling.tiny_policy import EOS, MAX_TOKENS, check, moved, open_sampler, params

PROMPT = [4, 5, 6]
SEEDS = np.arange(6, dtype=np.uint32)


def samples(server):
  """The bodies of the completions that a server was asked for, without probes."""
  return [each["body"] for each in server.requests(GENERATE)
          if "prompt_logprobs" not in each["body"]["sampling_params"]]


async def test_each_completion_is_a_request_of_the_policys_own_distribution(tmp_path, fake_vllm):
  async with open_sampler(tmp_path, urls=[fake_vllm.url]) as sampler:
    await sampler.sample(np.array(PROMPT), SEEDS[4:], 0.7)
  assert samples(fake_vllm) == [
      {"model": "conductor", "token_ids": PROMPT, "sampling_params": {
          "n": 1, "seed": seed, "temperature": 0.7, "max_tokens": MAX_TOKENS, "logprobs": 0,
          "top_p": 1.0, "top_k": -1, "ignore_eos": True, "stop_token_ids": [EOS],
          "detokenize": False}} for seed in (4, 5)]


async def test_a_prompts_completions_go_to_one_server_and_prompts_to_the_idler_one(
    tmp_path, start_fake_vllm):
  servers = [start_fake_vllm(FAKE_VLLM_TOKEN_SECONDS="0.02") for _ in range(2)]
  prompts = [[4 + i, 5] for i in range(6)]
  async with open_sampler(tmp_path, urls=[server.url for server in servers]) as sampler:
    await asyncio.gather(*(sampler.sample(prompt, SEEDS, 1.0) for prompt in prompts))
  seen = [[tuple(body["token_ids"]) for body in samples(server)] for server in servers]
  assert [len(each) for each in seen] == [18, 18]
  assert not set(seen[0]) & set(seen[1])


@pytest.mark.parametrize("kind", ["status", "truncate", "garbage", "drop", "hang"])
async def test_a_fault_of_a_request_costs_that_completion_alone(tmp_path, fake_vllm, kind):
  async with open_sampler(tmp_path, urls=[fake_vllm.url], request_timeout=1.0) as sampler:
    expected = await sampler.sample(PROMPT, SEEDS, 1.0)
    syncs = len(fake_vllm.requests("/pause"))
    fake_vllm.arm(GENERATE, kind, times=2, after=1, status=500)
    completions = await sampler.sample(PROMPT, SEEDS, 1.0)
    # Twice six, and the two again.
    assert len(samples(fake_vllm)) == 2 * len(SEEDS) + 2
    assert len(fake_vllm.requests("/pause")) == syncs
  for completion, same in zip(completions, expected, strict=True):
    assert completion.tokens.tolist() == same.tokens.tolist()
    check(completion, PROMPT, {1: params()})


async def test_requests_that_are_refused_while_the_server_is_paused_wait(tmp_path, fake_vllm):
  async with open_sampler(tmp_path, urls=[fake_vllm.url]) as sampler:
    asked = len(fake_vllm.requests())
    fake_vllm.arm(GENERATE, "status", status=503, times=2 * len(SEEDS))
    completions = await sampler.sample(PROMPT, SEEDS, 1.0)
    # They alone are asked for again: the server is neither probed nor given its weights.
    assert {each["route"] for each in fake_vllm.requests()[asked:]} == {GENERATE}
    assert len(fake_vllm.requests()) == asked + 3 * len(SEEDS)
  for completion in completions:
    check(completion, PROMPT, {1: params()})


async def test_a_server_that_somebody_has_paused_is_resumed_with_the_current_weights(
    tmp_path, fake_vllm):
  async with open_sampler(
      tmp_path, urls=[fake_vllm.url], request_timeout=0.5, sync_timeout=1.0) as sampler:
    fake_vllm.ask("/pause?mode=keep", {})
    for completion in await sampler.sample(PROMPT, SEEDS, 1.0):
      check(completion, PROMPT, {1: params()})


@pytest.fixture
async def half_a_server(fake_vllm):
  """The URL of one that answers probes, and completions with nothing of use."""
  async def pass_on(request):
    body = await request.text()
    if request.path == GENERATE and "prompt_logprobs" not in body:
      return web.json_response({"choices": []})
    async with aiohttp.ClientSession() as session, session.request(
        request.method, fake_vllm.url + request.path_qs, data=body,
        headers={"Content-Type": "application/json"}) as response:
      return web.Response(status=response.status, body=await response.read(),
                          content_type="application/json")

  application = web.Application()
  application.router.add_route("*", "/{path:.*}", pass_on)
  async with TestServer(application) as server:
    yield str(server.make_url("")).rstrip("/")


async def test_a_completion_that_always_fails_is_an_error_with_the_last_reason(
    tmp_path, half_a_server, monkeypatch):
  monkeypatch.setattr(vllm_sampler, "_BACKOFF", 0.0)
  async with open_sampler(tmp_path, urls=[half_a_server]) as sampler:
    with pytest.raises(UserError, match=r"failed 6 times, at last because http.* answered without"):
      await sampler.sample(PROMPT, SEEDS[:1], 1.0)


@pytest.mark.parametrize("arguments, environment, message", [
    (["--served-model-name=other"], {}, "serves other: start it with --served-model-name=conduc"),
    ([], {"VLLM_SERVER_DEV_MODE": "0"}, "/pause answered 404: Not Found: a server must be vLLM 0"),
])
async def test_a_server_that_was_started_otherwise_is_refused_with_the_remedy(
    tmp_path, start_fake_vllm, arguments, environment, message):
  server = start_fake_vllm(*arguments, **environment)
  with pytest.raises(UserError, match=message):
    async with open_sampler(tmp_path, urls=[server.url]):
      pass
  assert list(tmp_path.iterdir()) == []


async def test_a_prompt_that_is_too_long_is_refused_in_the_servers_words(tmp_path, fake_vllm):
  async with open_sampler(tmp_path, urls=[fake_vllm.url]) as sampler:
    with pytest.raises(UserError, match=r"answered 400: .*longer than the maximum model length of"):
      await sampler.sample([4] * 65, SEEDS, 1.0)
    assert len(samples(fake_vllm)) <= len(SEEDS)
    assert len(await sampler.sample([4] * 50, SEEDS, 1.0)) == len(SEEDS)


async def test_new_weights_are_staged_in_another_thread_while_samples_are_taken(
    tmp_path, start_fake_vllm):
  server = start_fake_vllm(FAKE_VLLM_TOKEN_SECONDS="0.01")
  weights = {version: moved(version / 20) for version in range(2, 7)} | {1: params()}
  async with open_sampler(tmp_path, urls=[server.url], max_tokens=40) as sampler:
    sampling = [asyncio.create_task(sampler.sample([4 + i, 5], SEEDS, 1.0)) for i in range(6)]
    for version in range(2, 7):
      await asyncio.to_thread(sampler.stage, weights[version], version)
      await sampler.load()
    groups = await asyncio.gather(*sampling)
    last = await sampler.sample(PROMPT, SEEDS, 1.0)
    assert len(list(sampler.folder.glob("step-*"))) == 1
  seen = set()
  for i, group in enumerate(groups):
    for completion in group:
      check(completion, [4 + i, 5], weights)
      seen |= set(completion.weight_versions.tolist())
  assert len(seen) >= 3
  assert {version for each in last for version in each.weight_versions.tolist()} == {6}


async def test_nothing_blocks_the_event_loop(tmp_path, start_fake_vllm):
  server = start_fake_vllm(FAKE_VLLM_TOKEN_SECONDS="0.01")
  longest = 0.0

  async def watch():
    nonlocal longest
    while True:
      began = time.thread_time()
      await asyncio.sleep(0.01)
      longest = max(longest, time.thread_time() - began)

  async with open_sampler(tmp_path, urls=[server.url]) as sampler:
    watching = asyncio.create_task(watch())
    sampling = asyncio.create_task(sampler.sample(PROMPT, SEEDS, 1.0))
    await asyncio.to_thread(sampler.stage, moved(0.5), 2)
    await sampler.load()
    await sampling
    watching.cancel()
  # Of this thread's own time between two turns of the loop.
  assert longest < 0.1


async def test_a_sample_that_is_called_off_is_called_off_at_the_server(tmp_path, start_fake_vllm):
  server = start_fake_vllm(FAKE_VLLM_TOKEN_SECONDS="0.2")
  async with open_sampler(tmp_path, urls=[server.url]) as sampler:
    sampling = asyncio.create_task(sampler.sample(PROMPT, SEEDS, 1.0))
    await until(lambda: len(samples(server)) == len(SEEDS))
    assert len(sampler._endpoints[0]._requests) == len(SEEDS)
    sampling.cancel()
    with pytest.raises(asyncio.CancelledError):
      await sampling
    assert sampler._endpoints[0].work == 0
