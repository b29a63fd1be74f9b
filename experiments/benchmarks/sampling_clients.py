"""The two clients that the benchmark of sampling compares."""

import asyncio

import aiohttp
import numpy as np

from conductor_jax.sampling.vllm_sampler import VllmSampler


async def bare_client(
    url: str, prompts: list[list[int]], seeds: np.ndarray, max_tokens: int, eos: int) -> int:
  """Asks for every completion, looks into none of them, and returns how many tokens they have."""
  async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
    async def complete(prompt: list[int], seed: int) -> int:
      body = {"model": "conductor", "token_ids": prompt, "sampling_params": {
          "n": 1, "seed": seed, "temperature": 1.0, "max_tokens": max_tokens, "logprobs": 0,
          "ignore_eos": True, "stop_token_ids": [eos], "detokenize": False}}
      async with session.post(url + "/inference/v1/generate", json=body) as response:
        response.raise_for_status()
        return len((await response.json())["choices"][0]["token_ids"])

    return sum(await asyncio.gather(*(
        complete(prompt, seed) for prompt, row in zip(prompts, seeds.tolist(), strict=True)
        for seed in row)))


async def sampler_client(
    sampler: VllmSampler, prompts: list[list[int]], seeds: np.ndarray) -> int:
  """The same, by the sampler."""
  groups = await asyncio.gather(*(
      sampler.sample(prompt, row, 1.0) for prompt, row in zip(prompts, seeds, strict=True)))
  return sum(len(completion.tokens) for group in groups for completion in group)
