"""The two clients of the sampling benchmark, on a stand-in server."""

import numpy as np

from experiments.benchmarks.sampling_clients import bare_client, sampler_client
from tests.sampling.stand_in import GENERATE, ask
from tests.sampling.tiny_policy import EOS, MAX_TOKENS, open_sampler

PROMPTS = [[4, 5, 6], [7, 8], [9]]
SEEDS = np.arange(12, dtype=np.uint32).reshape(3, 4)


async def test_both_clients_ask_for_the_same_and_count_the_same_tokens(tmp_path):
  async with open_sampler(tmp_path, own=True) as sampler:
    url = sampler.server.url
    began = len(ask(url, "/requests"))
    tokens = await sampler_client(sampler, PROMPTS, SEEDS)
    assert 12 < tokens < 12 * MAX_TOKENS
    assert await bare_client(url, PROMPTS, SEEDS, MAX_TOKENS, EOS) == tokens
    bodies = [each["body"] for each in ask(url, "/requests")[began:] if each["route"] == GENERATE]
  asked = [{(tuple(body["token_ids"]), body["sampling_params"]["seed"]) for body in half}
           for half in (bodies[:12], bodies[12:])]
  assert len(bodies) == 24 and len(asked[0]) == 12 and asked[0] == asked[1]
