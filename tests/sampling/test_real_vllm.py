"""The real vLLM on a CPU, in float32: `pytest -m vllm`."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import aiohttp
import numpy as np
import psutil
import pytest

from tests.sampling.processes import living, wait_until

pytestmark = pytest.mark.vllm

GENERATE = "/inference/v1/generate"
SEEDS = range(100, 116)


def ask(server, route, body=None, method=None):
  data = None if body is None else json.dumps(body).encode()
  request = urllib.request.Request(
      server.url + route, data, {"Content-Type": "application/json"}, method=method)
  with urllib.request.urlopen(request, timeout=60) as response:
    return json.load(response)


async def sample(url, prompt, seeds, temperature):
  """One completion for each seed, all asked for at once."""
  async with aiohttp.ClientSession() as session:
    async def one(seed):
      body = {"token_ids": prompt, "sampling_params": {
          "n": 1, "seed": seed, "temperature": temperature, "max_tokens": 24, "logprobs": 0}}
      async with session.post(url + GENERATE, json=body) as response:
        [choice] = (await response.json())["choices"]
        return choice
    return await asyncio.gather(*map(one, seeds))


def sampled_logprobs(choice):
  return np.array([entry["logprob"] for entry in choice["logprobs"]["content"]])


@pytest.fixture(scope="module")
def prompt(small_model):
  return small_model.tokenizer("<|im_start|>user\nWhat is 1 plus 2?<|im_end|>\n").input_ids


def test_it_comes_up_with_the_weights_it_was_given(real_vllm, small_folder):
  assert ask(real_vllm, "/weight_info") == {"weight_version": "default"}
  [card] = ask(real_vllm, "/v1/models")["data"]
  assert (card["id"], card["root"]) == ("conductor", str(small_folder))
  assert ask(real_vllm, "/is_paused") == {"is_paused": False}


async def test_its_log_probabilities_are_the_trainers(real_vllm, small_model, prompt):
  params = small_model.params(0)
  choices = await sample(real_vllm.url, prompt, SEEDS, temperature=0.7)
  differences = np.concatenate([
      sampled_logprobs(choice)
      - small_model.logprobs(params, prompt, choice["token_ids"], temperature=0.7)
      for choice in choices])
  assert len(differences) > 200
  assert np.mean(np.abs(differences)) <= 0.002
  assert np.max(np.abs(differences)) <= 0.02
  assert len({tuple(choice["token_ids"]) for choice in choices}) == len(SEEDS)


async def test_a_seed_fixes_its_completion_whatever_else_is_in_the_batch(real_vllm, prompt):
  together = await sample(real_vllm.url, prompt, SEEDS, temperature=1.0)
  for seed, choice in list(zip(SEEDS, together, strict=True))[:3]:
    [alone] = await sample(real_vllm.url, prompt, [seed], temperature=1.0)
    assert alone["token_ids"] == choice["token_ids"]


async def test_the_log_probabilities_of_a_prompt_are_the_trainers_at_temperature_1(
    real_vllm, small_model, prompt):
  answer = ask(real_vllm, GENERATE, {"token_ids": prompt, "sampling_params": {
      "max_tokens": 1, "temperature": 0.7, "seed": 1, "prompt_logprobs": 0}})
  got = [entry[str(token)]["logprob"]
         for token, entry in zip(prompt[1:], answer["prompt_logprobs"][1:], strict=True)]
  expected = small_model.logprobs(small_model.params(0), prompt[:1], prompt[1:], 1.0)
  assert np.mean(np.abs(np.array(got) - expected)) <= 0.002


TRAINER = """
import json, sys, time, urllib.request
from pathlib import Path
import anyio
from conductor_jax.sampling.vllm_server import VllmServer
options = json.loads(sys.argv[1])
server = VllmServer(say=lambda line: None, remove=[Path(options["remove"])], **{
    **options["server"], "python": Path(options["server"]["python"]),
    "log": Path(options["server"]["log"])})
anyio.run(server.start, Path(options["model"]))
print(server.url, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("paused", [False, True])
def test_a_killed_trainer_leaves_nothing_of_it(real_options, small_folder, tmp_path, paused):
  weights = tmp_path / "weights"
  weights.mkdir()
  plain = {name: value for name, value in real_options.items() if name != "say"}
  options = {"server": {**plain, "python": str(plain["python"]), "log": str(tmp_path / "log")},
             "remove": str(weights), "model": str(small_folder)}
  trainer = subprocess.Popen(
      [sys.executable, "-c", TRAINER, json.dumps(options)], stdout=subprocess.PIPE, text=True,
      env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
  family = []
  try:
    url = trainer.stdout.readline().strip()
    assert url.startswith("http"), (tmp_path / "log").read_text()[-2000:]
    family = psutil.Process(trainer.pid).children(recursive=True)
    assert any("EngineCore" in " ".join(process.cmdline()) for process in family)
    shared_memory = {
        Path(mapping.path) for process in family for mapping in process.memory_maps()
        if mapping.path.startswith("/dev/shm/")}
    assert shared_memory
    if paused:
      request = urllib.request.Request(url + "/pause?mode=keep", method="POST")
      assert json.load(urllib.request.urlopen(request, timeout=60)) == {"status": "paused"}
    trainer.kill()
    wait_until(lambda: not living(family), "no process is left")
  finally:
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    for process in living(family):
      process.kill()
  assert not weights.exists()
  # vLLM keeps hundreds of MiB in it, which nobody else would give back.
  assert [path for path in shared_memory if path.exists()] == []


async def test_a_server_whose_engine_was_killed_is_started_again_with_another_folder(
    real_vllm, small_model, prompt, tmp_path):
  params = small_model.params(1)
  small_model.export(tmp_path / "step-1", params)
  [engine] = [process for process in psutil.Process().children(recursive=True)
              if "EngineCore" in " ".join(process.cmdline())]
  engine.kill()
  # The server itself lives on and notices.
  wait_until(lambda: not real_vllm.alive(), "the server is known to be dead")
  await real_vllm.start(tmp_path / "step-1")
  assert real_vllm.alive()
  choices = await sample(real_vllm.url, prompt, SEEDS[:4], temperature=0.7)
  for choice in choices:
    expected = small_model.logprobs(params, prompt, choice["token_ids"], temperature=0.7)
    assert np.mean(np.abs(sampled_logprobs(choice) - expected)) <= 0.002
