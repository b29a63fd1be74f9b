"""What every sampler does: seeds, log-probabilities, ends, and new weights."""

from contextlib import asynccontextmanager

import numpy as np
import pytest
from flax import nnx

from conductor_jax.models.qwen2 import Qwen2
from conductor_jax.sampling.jax_sampler import JaxSampler
from tests.sampling.tiny_policy import (
    CONFIG,
    EOS,
    MAX_TOKENS,
    moved,
    open_sampler,
    params,
    trainer_logprobs,
)

GRAPH = nnx.split(nnx.eval_shape(
    lambda: Qwen2(CONFIG, compute_dtype="float32", remat="none", rngs=nnx.Rngs(0))))[0]
PROMPTS = [[4, 5, 6], [7, 8, 9, 10, 11, 12, 13], [14], [4, 5, 6, 7]]
SEEDS = np.arange(100, 112, dtype=np.uint32).reshape(4, 3)


@pytest.fixture(params=["jax", "vllm"])
def open_one(request, tmp_path, start_fake_vllm):
  """A context manager of a sampler that has loaded the tiny policy as version 1."""
  @asynccontextmanager
  async def of_jax():
    sampler = JaxSampler(
        GRAPH, max_tokens=MAX_TOKENS, max_prompt=16, eos=EOS, rows=2, copies=True)
    sampler.stage(params(), 1)
    await sampler.load()
    yield sampler

  @asynccontextmanager
  async def of_vllm():
    async with open_sampler(tmp_path, urls=[start_fake_vllm().url]) as sampler:
      yield sampler

  return {"jax": of_jax, "vllm": of_vllm}[request.param]


async def sample_all(sampler, temperature=1.0):
  return [await sampler.sample(prompt, seeds, temperature)
          for prompt, seeds in zip(PROMPTS, SEEDS, strict=True)]


def written(groups):
  return [[completion.tokens.tolist() for completion in group] for group in groups]


async def test_a_seed_fixes_its_completion_whatever_else_is_asked_for(open_one):
  async with open_one() as sampler:
    expected = written(await sample_all(sampler))
    assert written(await sample_all(sampler)) == expected
    backwards = [await sampler.sample(prompt, seeds[::-1], 1.0)
                 for prompt, seeds in zip(PROMPTS, SEEDS, strict=True)]
    assert written(backwards) == [group[::-1] for group in expected]
    texts = [tuple(tokens) for group in expected for tokens in group]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
async def test_logprobs_equal_the_trainers_at_the_sampling_temperature(open_one, temperature):
  async with open_one() as sampler:
    groups = await sample_all(sampler, temperature)
  for prompt, group in zip(PROMPTS, groups, strict=True):
    for completion in group:
      assert completion.logprobs.dtype == np.float32
      np.testing.assert_allclose(
          completion.logprobs, trainer_logprobs(params(), prompt, completion, temperature),
          rtol=0, atol=1e-4)
    if temperature == 0:
      assert group[0].tokens.tolist() == group[1].tokens.tolist() == group[2].tokens.tolist()


async def test_a_completion_ends_with_its_end_of_sequence_token_or_at_the_limit(open_one):
  async with open_one() as sampler:
    completions = await sampler.sample([4, 5, 6], np.arange(60, dtype=np.uint32), 1.0)
  reasons = [completion.finish_reason for completion in completions]
  assert reasons.count("stop") >= 2 and reasons.count("length") >= 2
  for completion in completions:
    tokens = completion.tokens.tolist()
    assert EOS not in tokens[:-1]
    assert len(completion.logprobs) == len(completion.weight_versions) == len(tokens)
    if completion.finish_reason == "stop":
      assert tokens[-1] == EOS
    else:
      assert len(tokens) == MAX_TOKENS and tokens[-1] != EOS


async def test_loaded_weights_write_every_later_token_under_their_version(open_one):
  other = moved(0.5)
  async with open_one() as sampler:
    before = await sample_all(sampler)
    sampler.stage(other, 6)
    assert written(await sample_all(sampler)) == written(before)
    await sampler.load()
    after = await sample_all(sampler)
    sampler.stage(params(), 7)
    await sampler.load()
    again = await sample_all(sampler)
  for version, groups in ((1, before), (6, after), (7, again)):
    for group in groups:
      for completion in group:
        assert completion.weight_versions.dtype == np.int32
        assert set(completion.weight_versions.tolist()) == {version}
  assert written(again) == written(before) != written(after)
  for prompt, group in zip(PROMPTS, after, strict=True):
    np.testing.assert_allclose(
        group[0].logprobs, trainer_logprobs(other, prompt, group[0]), rtol=0, atol=1e-4)


async def test_staged_parameters_may_be_given_away(open_one):
  async with open_one() as sampler:
    given = moved(0.5)
    sampler.stage(given, 2)
    for leaf in [given["embedding"], *given["layers"].values()]:
      leaf.delete()
    await sampler.load()
    [completion] = await sampler.sample([4, 5, 6], SEEDS[0, :1], 1.0)
  np.testing.assert_allclose(
      completion.logprobs, trainer_logprobs(moved(0.5), [4, 5, 6], completion), rtol=0, atol=1e-4)
