"""The embedded sampler: what it draws, and that nothing but the seed decides it."""

import asyncio
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from conductor_jax.models.padding import pad_right
from conductor_jax.sampling.jax_sampler import JaxSampler
from conductor_jax.training.logprobs import token_statistics

EOS, MAX_TOKENS, MAX_PROMPT = 3, 8, 12
PROMPTS = [[4, 5, 6], [7, 8, 9, 10, 11, 12, 13], [14], [4, 5, 6, 7]]
SEEDS = np.arange(100, 112, dtype=np.uint32).reshape(4, 3)


def make_sampler(tiny_model, rows=4, **options):
  graph, params = tiny_model()
  options = {"max_tokens": MAX_TOKENS, "max_prompt": MAX_PROMPT} | options
  sampler = JaxSampler(graph, eos=EOS, rows=rows, **options)
  give(sampler, params, 5)
  return sampler


def give(sampler, params, version):
  sampler.stage(params, version)
  asyncio.run(sampler.load())


def sample(sampler, prompts, seeds, temperature):
  """Asks for all prompts at once."""
  async def groups():
    return await asyncio.gather(*(
        sampler.sample(prompt, row, temperature)
        for prompt, row in zip(prompts, seeds, strict=True)))

  return asyncio.run(groups())


@pytest.fixture(scope="module")
def sampler(tiny_model):
  return make_sampler(tiny_model)


@pytest.fixture(scope="module")
def groups(sampler):
  """Every prompt three times at temperature 1."""
  return sample(sampler, PROMPTS, SEEDS, 1.0)


@partial(jax.jit, static_argnames="graph")
def trainer(graph, params, prompt_tokens, prompt_mask, tokens, temperature):
  """The trainer's log-probabilities of the tokens, and the logits they come from."""
  model = nnx.merge(graph, params)
  hidden = model.hidden_states(prompt_tokens, prompt_mask, tokens)
  head = model.output_head()
  statistics = token_statistics(hidden, head, tokens, temperature=temperature, chunk=16)
  return statistics.logprobs, hidden @ head


def seen_by_trainer(tiny_model, groups, temperature):
  prompts, prompt_mask = pad_right(PROMPTS, MAX_PROMPT, EOS)
  tokens, mask = pad_right([c.tokens for group in groups for c in group], MAX_TOKENS, 0)
  shape = (4, 3, MAX_TOKENS)
  logprobs, logits = trainer(
      *tiny_model(), prompts, prompt_mask, tokens.reshape(shape), temperature)
  return logprobs, logits, tokens.reshape(shape), mask.reshape(shape)


def written(groups):
  return [[completion.tokens.tolist() for completion in group] for group in groups]


def test_a_seed_fixes_its_completion_whatever_else_is_in_the_batch(sampler, groups):
  expected = written(groups)
  assert written(sample(sampler, PROMPTS, SEEDS, 1.0)) == expected
  for row in range(4):
    assert written(sample(sampler, [PROMPTS[row]], SEEDS[row:row + 1], 1.0)) == [expected[row]]
  order = [2, 0, 3, 1]
  assert written(sample(sampler, [PROMPTS[r] for r in order], SEEDS[order], 1.0)) == [
      expected[r] for r in order]
  backwards = sample(sampler, PROMPTS, SEEDS[:, ::-1], 1.0)
  assert written(backwards) == [group[::-1] for group in expected]


def test_logprobs_are_the_same_to_the_last_bit_whatever_else_is_in_the_batch(tiny_model):
  sampler = make_sampler(tiny_model, max_prompt=96)
  prompts = [[*range(4, 14)] * times for times in (1, 3, 5, 9)]
  expected = sample(sampler, prompts, SEEDS, 1.0)
  for order in ([3, 1], [1, 1, 0], [2]):
    groups = sample(sampler, [prompts[row] for row in order], SEEDS[order], 1.0)
    for row, group in zip(order, groups, strict=True):
      for completion, first in zip(group, expected[row], strict=True):
        np.testing.assert_array_equal(completion.logprobs, first.logprobs)


def test_more_prompts_than_rows_are_worked_off_in_turns_with_the_same_result(
    tiny_model, sampler, groups):
  assert written(sample(make_sampler(tiny_model, rows=3), PROMPTS, SEEDS, 1.0)) == written(groups)
  five = sample(sampler, [*PROMPTS, PROMPTS[1]], np.concatenate([SEEDS, SEEDS[1:2]]), 1.0)
  assert written(five) == [*written(groups), written(groups)[1]]


def test_different_seeds_and_prompts_write_different_completions(groups):
  texts = [tuple(tokens) for group in written(groups) for tokens in group]
  assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_equal_the_trainers_at_the_sampling_temperature(
    tiny_model, sampler, temperature):
  groups = sample(sampler, PROMPTS, SEEDS, temperature)
  logprobs, _, _, mask = seen_by_trainer(tiny_model, groups, temperature)
  sampled = np.concatenate([c.logprobs for group in groups for c in group])
  assert sampled.dtype == np.float32
  np.testing.assert_allclose(sampled, np.asarray(logprobs)[mask], rtol=0, atol=1e-4)


def test_a_completion_ends_with_its_end_of_sequence_token_or_at_the_limit(groups):
  completions = [completion for group in groups for completion in group]
  reasons = [completion.finish_reason for completion in completions]
  assert reasons.count("stop") >= 2 and reasons.count("length") >= 2
  for completion in completions:
    tokens = completion.tokens.tolist()
    assert EOS not in tokens[:-1]
    assert len(completion.logprobs) == len(tokens)
    if completion.finish_reason == "stop":
      assert tokens[-1] == EOS
    else:
      assert len(tokens) == MAX_TOKENS and tokens[-1] != EOS


def test_temperature_zero_takes_the_most_likely_token_with_its_plain_log_probability(
    tiny_model, sampler):
  groups = sample(sampler, PROMPTS, SEEDS, 0.0)
  _, logits, tokens, mask = seen_by_trainer(tiny_model, groups, 1.0)
  assert (np.argmax(logits, axis=-1) == tokens)[mask].all()
  sampled = np.concatenate([c.logprobs for group in groups for c in group])
  np.testing.assert_allclose(
      sampled, np.asarray(jax.nn.log_softmax(logits).max(axis=-1))[mask], rtol=0, atol=1e-4)
  assert all(group[0] == group[1] == group[2] for group in written(groups))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_first_tokens_over_many_seeds_follow_the_softmax(tiny_model, temperature):
  one_token = make_sampler(tiny_model, rows=1, max_tokens=1)
  count = 4000
  [group] = sample(one_token, PROMPTS[:1], np.arange(count, dtype=np.uint32)[None], temperature)
  model = nnx.merge(*tiny_model())
  hidden, _ = model.prefill(jnp.array(PROMPTS[:1]), jnp.ones((1, 3), bool))
  expected = np.asarray(jax.nn.softmax(hidden[0] @ model.output_head() / temperature)) * count
  observed = np.bincount([completion.tokens[0] for completion in group], minlength=31)
  # Rare tokens are counted as one, for the statistic needs about five expected of each.
  common = expected >= 5
  observed = np.append(observed[common], observed[~common].sum())
  expected = np.append(expected[common], expected[~common].sum() + 1e-9)
  statistic = np.sum((observed - expected) ** 2 / expected)
  # The 99.9 % quantile for 31 degrees of freedom, more than there are here, is 61.1.
  assert statistic < 61.1
  assert common.sum() > 15
  assert {completion.finish_reason for completion in group} == {"stop", "length"}


def versions(groups):
  return {tuple(c.weight_versions.tolist()) for group in groups for c in group}


def test_new_weights_write_other_completions_under_their_version(tiny_model, groups):
  sampler = make_sampler(tiny_model)
  lengths = {len(c.tokens) for group in groups for c in group}
  assert versions(groups) == {(5,) * length for length in lengths}
  give(sampler, jax.tree.map(lambda leaf: leaf * 1.5, tiny_model()[1]), 6)
  after = sample(sampler, PROMPTS, SEEDS, 1.0)
  assert {version for each in versions(after) for version in each} == {6}
  assert written(after) != written(groups)
  give(sampler, tiny_model()[1], 7)
  assert written(sample(sampler, PROMPTS, SEEDS, 1.0)) == written(groups)


def test_staged_weights_are_not_used_before_they_are_loaded(tiny_model, groups):
  sampler = make_sampler(tiny_model)
  sampler.stage(jax.tree.map(lambda leaf: leaf * 1.5, tiny_model()[1]), 6)
  assert written(sample(sampler, PROMPTS, SEEDS, 1.0)) == written(groups)
  asyncio.run(sampler.load())
  assert written(sample(sampler, PROMPTS, SEEDS, 1.0)) != written(groups)


def test_copies_outlive_the_arrays_that_the_trainer_gives_away(tiny_model, groups):
  sampler = make_sampler(tiny_model, copies=True)
  params = jax.tree.map(jnp.copy, tiny_model()[1])
  give(sampler, params, 6)
  jax.tree.map(lambda leaf: leaf.delete(), params)
  assert written(sample(sampler, PROMPTS, SEEDS, 1.0)) == written(groups)


def test_prompts_with_other_seeds_or_temperatures_take_turns_of_their_own(tiny_model, groups):
  sampler = make_sampler(tiny_model)

  async def asked():
    return await asyncio.gather(
        sampler.sample(PROMPTS[0], SEEDS[0], 1.0), sampler.sample(PROMPTS[1], SEEDS[1, :1], 0.0),
        sampler.sample(PROMPTS[2], SEEDS[2], 1.0))

  one, greedy, two = asyncio.run(asked())
  assert written([one, two]) == [written(groups)[0], written(groups)[2]]
  assert len(greedy) == 1


def test_a_turn_that_fails_is_told_to_all_who_wait_for_it_and_the_next_one_goes_well(
    tiny_model, groups):
  sampler = make_sampler(tiny_model)

  async def asked():
    return await asyncio.gather(
        *(sampler.sample(prompt, SEEDS[0], 1.0) for prompt in (PROMPTS[0], ["x"])),
        return_exceptions=True)

  assert [type(each) for each in asyncio.run(asked())] == [ValueError, ValueError]
  assert written(sample(sampler, PROMPTS[:1], SEEDS[:1], 1.0)) == written(groups)[:1]


def test_a_prompt_nobody_waits_for_any_more_holds_up_no_other(tiny_model, groups):
  sampler = make_sampler(tiny_model)

  async def asked():
    given_up = asyncio.create_task(sampler.sample(PROMPTS[1], SEEDS[1], 1.0))
    kept = asyncio.create_task(sampler.sample(PROMPTS[0], SEEDS[0], 1.0))
    await asyncio.sleep(0)
    given_up.cancel()
    return await kept

  assert written([asyncio.run(asked())]) == written(groups)[:1]


def test_a_prompt_beyond_the_limit_is_refused_with_both_lengths(sampler):
  with pytest.raises(ValueError, match="13 tokens is longer than 12"):
    sample(sampler, [[4] * 3, [4] * 13], SEEDS[:2], 1.0)
  assert len(sample(sampler, [[4] * 12], SEEDS[:1], 1.0)[0]) == 3
