"""Two rounds: which rollouts have a second one, what it reads, and what both are worth."""

import json
from dataclasses import replace

import numpy as np
import pytest

from conductor_jax.errors import OutOfBudget
from conductor_jax.rewards import RewardValues
from conductor_jax.rollouts import Recursion, RolloutGroup, later_seed
from conductor_jax.workers.budget import Allowance, Budget
from conductor_jax.workers.call import Usage
from conductor_jax.workers.offer import Offer
from conductor_jax.workflows.workflow import ParseFailure, Step, Workflow
from tests.small_conductor import (
    ALL,
    DEAD,
    FOUR,
    KEEP,
    REFUSES,
    SEED,
    TOKENIZER,
    Scripted,
    lists,
    rounds,
    serve_conductor,
    task,
)

JUNK = "I give up."
WRONG, RIGHT = lists(SEED), lists(FOUR)
# A second plan whose one step sees the answer before.
SEES = lists(FOUR, first='"all"')


@pytest.fixture
async def server():
  async with serve_conductor() as served:
    yield served


async def roll_out(
    conductor, *texts: tuple[str, str], offer: Offer = ALL, seeds=None, recursive=True, **changes
) -> RolloutGroup:
  """A group that writes the first text of each pair, and in the second round the other."""
  seeds = np.arange(1, len(texts) + 1, dtype=np.uint32) if seeds is None else seeds
  return await conductor(rounds(seeds, *texts), **changes).roll_out(
      task(), seeds, offer, recursive=recursive)


def prompt(rollout) -> str:
  return TOKENIZER.decode(rollout.turn.prompt_tokens)


async def test_without_recursion_there_is_one_round(server):
  conductor, workers = server
  group = await roll_out(conductor, (WRONG, RIGHT), recursive=False)
  assert [len(each) for each in group.rounds] == [1] and workers.requests == {"seed": 1}


async def test_every_plan_that_ran_is_followed_by_a_second_round_and_no_other(server):
  conductor, _ = server
  texts = [(RIGHT, KEEP), (JUNK, RIGHT), (lists(DEAD), RIGHT), (WRONG, RIGHT),
           (lists(REFUSES), RIGHT)]
  group = await roll_out(conductor, *texts)
  first, second = group.rounds
  assert [rollout.text for rollout in first] == [text for text, _ in texts]
  assert [rollout.text for rollout in second] == [KEEP, RIGHT, RIGHT]
  assert [rollout.turn.before.text for rollout in second] == [RIGHT, WRONG, lists(REFUSES)]
  assert all(rollout.turn.before is None for rollout in first)
  # What has none keeps its own reward: 0 for no plan, none for an endpoint that is down.
  assert [first[1].reward, first[2].reward] == [0.0, None]


async def test_a_group_of_which_nothing_ran_has_an_empty_second_round(server):
  conductor, workers = server
  group = await roll_out(conductor, (JUNK, RIGHT), (lists(DEAD), RIGHT))
  assert [len(each) for each in group.rounds] == [2, 0] and not workers.requests
  assert group.oldest_version == 3


class TestRewards:
  # Worth 0.5 and then 1; 1 and then 0.5; 1 and then 0; 1 and then 1.
  TEXTS = ((WRONG, RIGHT), (RIGHT, WRONG), (RIGHT, JUNK), (RIGHT, KEEP))

  @pytest.mark.parametrize(("recursion", "expected"), [
      # 0.75 · own + 0.25 · second
      (Recursion(), [0.625, 0.875, 0.75, 1.0]),
      (Recursion(discount=0.5), [0.75, 0.75, 0.5, 1.0]),
      (Recursion(first_reward="own"), [0.5, 1.0, 1.0, 1.0]),
      (Recursion(first_reward="final"), [1.0, 0.5, 0.0, 1.0])])
  async def test_of_the_first_round_by_hand(self, server, recursion, expected):
    conductor, _ = server
    first, second = (await roll_out(conductor, *self.TEXTS, recursion=recursion)).rounds
    assert [rollout.reward for rollout in first] == expected
    # Its parts are of its own answer, and the second round's rewards are their own.
    assert [rollout.parts.total for rollout in first] == [0.5, 1.0, 1.0, 1.0]
    assert [rollout.right for rollout in first] == [False, True, True, True]
    assert [rollout.reward for rollout in second] == [1.0, 0.5, 0.0, 1.0]

  @pytest.mark.parametrize(("kind", "expected"), [
      ("discounted", None), ("final", None), ("own", 0.5)])
  async def test_a_rejected_second_round_rejects_a_first_one_that_needs_it(
      self, server, kind, expected):
    conductor, _ = server
    (rejected, other), (later, _) = (await roll_out(
        conductor, (WRONG, lists(DEAD)), (RIGHT, KEEP),
        recursion=Recursion(first_reward=kind))).rounds
    assert (later.reward, later.parts) == (None, None) and later.transcript.unavailable
    assert rejected.reward == expected and rejected.parts.total == 0.5
    assert other.reward == 1.0

  async def test_effort_is_taken_from_the_round_that_makes_it(self, server):
    conductor, _ = server
    # A call costs $1.2.
    (first,), (second,) = (await roll_out(
        conductor, (WRONG, lists(FOUR, FOUR)), reward_values=RewardValues(per_dollar=0.125))).rounds
    assert first.parts.total == pytest.approx(0.5 - 0.15)
    assert second.reward == pytest.approx(1.0 - 0.3)
    assert first.reward == pytest.approx(0.75 * 0.35 + 0.25 * 0.7)

  async def test_keeping_an_answer_costs_nothing_more(self, server):
    conductor, _ = server
    (first,), (second,) = (await roll_out(
        conductor, (RIGHT, KEEP), reward_values=RewardValues(per_dollar=0.125))).rounds
    assert (first.parts.total, second.reward) == (pytest.approx(0.85), 1.0)


class TestKeeping:

  async def test_empty_lists_keep_answer_and_grade_and_call_nobody(self, server):
    conductor, workers = server
    (_, _), second = (await roll_out(conductor, (RIGHT, KEEP), (WRONG, KEEP))).rounds
    assert workers.requests == {"four": 1, "seed": 1}
    right, wrong = second
    assert right.workflow == wrong.workflow == Workflow(())
    assert (right.transcript.answer, right.right, right.reward) == ("4", True, 1.0)
    assert (wrong.transcript.answer, wrong.right, wrong.reward) == (
        wrong.turn.before.transcript.answer, False, 0.5)
    assert right.grade is right.turn.before.grade
    assert right.transcript.calls == () and right.transcript.usage == Usage()

  async def test_an_answer_that_there_is_none_of_can_be_kept_and_is_wrong(self, server):
    conductor, _ = server
    (first,), (second,) = (await roll_out(conductor, (lists(REFUSES), KEEP))).rounds
    assert (first.transcript.answer, second.transcript.answer) == (None, None)
    assert (second.reward, second.right, first.reward) == (0.5, False, 0.5)
    assert second.turn.previous == "" and "Answer so far: (no answer)\n" in prompt(second)

  async def test_json_of_a_second_round_holds_the_answer_before(self, server):
    conductor, _ = server
    _, (second,) = (await roll_out(conductor, (RIGHT, KEEP))).rounds
    row = json.loads(json.dumps(second.to_json()))
    assert (row["previous_answer"], row["answer"], row["plan"], row["calls"]) == ("4", "4", [], [])
    _, (second,) = (await roll_out(conductor, (RIGHT, SEES))).rounds
    assert second.to_json()["plan"] == [
        {"worker": FOUR, "subtask": "Solve it.", "sees": (), "sees_previous": True}]


class TestPrompt:

  async def test_the_second_one_shows_the_answer_of_its_own_first_plan(self, server):
    conductor, _ = server
    first, second = (await roll_out(conductor, (RIGHT, KEEP), (WRONG, KEEP))).rounds
    for rollout, later in zip(first, second, strict=True):
      assert "Answer so far" not in prompt(rollout)
      assert (f"\nQuestion: What is t?\n\nAnswer so far: {rollout.transcript.answer}\n\nAvailable "
              "models: Model 0, Model 1, Model 2, Model 3<|im_end|>") in prompt(later)
    assert first[0].transcript.answer != first[1].transcript.answer

  async def test_both_rounds_are_offered_the_same_workers(self, server):
    conductor, workers = server
    offer = Offer((FOUR, REFUSES), True)
    (first,), (second,) = (await roll_out(conductor, (lists(0), lists(1)), offer=offer)).rounds
    assert first.turn.offer == second.turn.offer == offer
    assert "models: Model 0, Model 1<|im_end|>" in prompt(second)
    assert second.workflow.steps[0].worker == REFUSES
    (first,), (second,) = (await roll_out(conductor, (lists(0), lists(3)), offer=offer)).rounds
    assert isinstance(second.plan, ParseFailure) and second.reward == 0.0

  async def test_there_is_none_where_not_even_a_short_answer_fits_into_the_prompt(self, server):
    conductor, _ = server
    (first,), _ = (await roll_out(conductor, (RIGHT, KEEP))).rounds
    length, seeds = len(first.turn.prompt_tokens), np.array([1], np.uint32)
    for limit, count in ((length, 0), (4000, 1)):
      sampler = Scripted(RIGHT)
      group = await conductor(sampler, max_prompt=limit).roll_out(
          first.task, seeds, ALL, recursive=True)
      assert [len(each) for each in group.rounds] == [1, count]
      assert len(sampler.calls) == 1 + count and group.rounds[0][0].reward == 1.0

  async def test_a_long_answer_loses_its_beginning_where_the_prompt_would_be_too_long(self, server):
    conductor, _ = server

    (first,), _ = (await roll_out(conductor, (RIGHT, KEEP))).rounds
    first = replace(first, transcript=replace(first.transcript, answer="x" * 3000 + " so 4"))
    sampler = Scripted(KEEP)
    for limit in (2000, 2001, 2400):
      small = conductor(sampler, max_prompt=limit)
      turn = small.turn(first.task, ALL, first)
      (second,) = await small.write_and_run(turn, np.array([1], np.uint32))
      assert limit - 26 <= len(turn.prompt_tokens) <= limit
      assert turn.prompt_tokens.tolist() == sampler.calls[-1][0]
      assert "characters left out]\nx" in prompt(second) and "xxx so 4\n\n" in prompt(second)


async def test_workers_are_shown_the_last_step_of_the_first_round_by_those_that_open_it(server):
  conductor, workers = server
  _, (opened, closed) = (await roll_out(
      conductor, (lists(SEED, FOUR), SEES), (lists(SEED, FOUR), RIGHT))).rounds
  assert opened.workflow.steps == (Step(FOUR, "Solve it.", (), True),)
  assert closed.workflow.steps == (Step(FOUR, "Solve it."),)
  question = "Question:\nWhat is t?\n\nSubtask:\nSolve it."
  shown = sorted(
      [message["content"] for message in body["messages"]] for body in workers.bodies[-2:])
  assert shown == [[question], [question, "4", "Subtask:\nSolve it."]]


class TestSeeds:

  async def test_of_a_second_round_follow_from_those_of_the_first(self, server):
    conductor, _ = server
    seeds = np.array([7, 2**32 - 1], np.uint32)
    sampler = rounds(seeds, (WRONG, WRONG), (WRONG, WRONG))
    group = await conductor(sampler, temperature=0.7).roll_out(task(), seeds, ALL, recursive=True)
    (_, first, _), *later = sampler.calls
    assert first is seeds
    assert [call[1].dtype for call in later] == [np.uint32] * 2
    assert sorted(int(call[1][0]) for call in later) == sorted(later_seed(seeds).tolist())
    assert {call[2] for call in sampler.calls} == {0.7}
    # A first and a second call of the same plan are two samples of the worker.
    answers = [rollout.transcript.answer for each in group.rounds for rollout in each]
    assert len(set(answers)) == 4

  async def test_a_rollout_does_not_depend_on_what_else_runs(self, server):
    conductor, _ = server
    seeds = np.array([10, 11, 12, 13], np.uint32)
    texts = [(WRONG, lists(SEED, SEED)), (JUNK, WRONG), (RIGHT, KEEP), (WRONG, WRONG)]

    def told(group) -> dict:
      first, second = group.rounds
      return {(later.turn.before.text, later.text): (
          later.turn.before.transcript.answer, later.transcript.answer) for later in second}

    together = told(await roll_out(conductor, *texts, seeds=seeds))
    assert len(together) == 3
    assert told(await roll_out(conductor, *texts[::-1], seeds=seeds[::-1])) == together
    alone = {}
    for i in (0, 2, 3):
      alone |= told(await roll_out(conductor, texts[i], seeds=seeds[i:i + 1]))
    assert alone == together

  def test_later_seeds_are_of_32_bits_and_each_of_its_own_alone(self):
    seeds = np.arange(200, dtype=np.uint32)
    later = later_seed(seeds)
    assert later.dtype == np.uint32 and len(set(later.tolist()) | set(range(200))) == 400
    assert int(later.max()).bit_length() == 32
    assert later_seed(seeds[7:8]).tolist() == [later[7]]


async def test_a_budget_that_is_spent_in_the_second_round_ends_the_group():
  async with serve_conductor(Budget(Allowance(calls=2))) as (conductor, workers):
    with pytest.raises(OutOfBudget, match="2 calls, has no room"):
      await roll_out(conductor, (WRONG, RIGHT), (WRONG, RIGHT))
    assert workers.requests == {"seed": 2}


async def test_the_weights_of_both_rounds_count_for_a_groups_age(server):
  conductor, _ = server

  class Older(Scripted):
    """Writes with weights 8, and then with weights 7."""

    async def sample(self, prompt, seeds, temperature):
      (written,) = await super().sample(prompt, seeds, temperature)
      versions = np.full_like(written.weight_versions, 9 - len(self.calls))
      return [replace(written, weight_versions=versions)]

  group = await conductor(Older(RIGHT)).roll_out(
      task(), np.array([1], np.uint32), ALL, recursive=True)
  assert [each[0].weight_versions[0] for each in group.rounds] == [8, 7]
  assert group.oldest_version == 7
