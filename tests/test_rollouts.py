"""One round: from prompts to rewards, on workers behind a real server."""

import json

import numpy as np
import pytest

from conductor_jax.errors import OutOfBudget, UserError
from conductor_jax.rewards import Reward, RewardValues
from conductor_jax.rollouts import Conductor, Rollout
from conductor_jax.sampling.sampler import Completion
from conductor_jax.workers.budget import Allowance, Budget
from conductor_jax.workers.offer import Offer
from conductor_jax.workflows.lists import ListFormat
from conductor_jax.workflows.prompts import PromptTemplate
from conductor_jax.workflows.workflow import PLAIN_SUBTASK, ParseFailure, Step
from tests.small_conductor import (
    ALL,
    DEAD,
    FOUR,
    REFUSES,
    SEED,
    TOKENIZER,
    Scripted,
    completion,
    lists,
    serve_conductor,
    task,
)


@pytest.fixture
async def server():
  async with serve_conductor() as served:
    yield served


async def run(
    conductor: Conductor, completions: list[Completion], seeds: list[int], offer: Offer = ALL,
    **fields) -> list[Rollout]:
  return await conductor.execute(
      conductor.turn(task(**fields), offer), completions, np.array(seeds, np.uint32))


async def one(
    conductor: Conductor, text: str, offer: Offer = ALL, *, seed: int = 1, **fields) -> Rollout:
  (rollout,) = await run(conductor, [completion(text)], [seed], offer, **fields)
  return rollout


async def test_sample_sends_the_templated_prompt_seeds_and_temperature(server):
  sampler = Scripted("x")
  conductor, _ = server
  sampled = conductor(sampler, access="positions", prefill="Plan:\n", temperature=0.7)
  seeds = np.array([1, 2], np.uint32)
  assert len(await sampled.sample(sampled.turn(task(name="b"), ALL), seeds)) == 2
  await sampled.sample(sampled.turn(task(name="a"), ALL), seeds[:1], temperature=0.0)
  (prompt, sent, temperature), (_, _, greedy) = sampler.calls
  system, user = PromptTemplate(ListFormat(3, "positions")).messages("What is b?", range(4))
  assert TOKENIZER.decode(prompt) == (
      f"<|im_start|>system\n{system['content']}<|im_end|>\n"
      f"<|im_start|>user\n{user['content']}<|im_end|>\n<|im_start|>assistant\nPlan:\n")
  assert sent is seeds and (temperature, greedy) == (0.7, 0.0)


async def test_a_rollout_keeps_the_tokens_it_was_given_and_the_prompt_that_was_sampled(server):
  conductor, _ = server
  sampler = Scripted(lists(FOUR))
  sampled = conductor(sampler)
  seeds = np.array([1], np.uint32)
  turn = sampled.turn(task(), ALL)
  (completion,) = await sampled.sample(turn, seeds)
  (rollout,) = await sampled.execute(turn, [completion], seeds)
  assert rollout.completion_tokens is completion.tokens
  assert rollout.sampler_logprobs is completion.logprobs
  assert rollout.completion_tokens[-1] == TOKENIZER.eos_token_id
  assert rollout.turn.prompt_tokens.dtype == np.int32
  assert rollout.turn.prompt_tokens.tolist() == sampler.calls[0][0]
  assert rollout.text == lists(FOUR)
  assert rollout.weight_versions is completion.weight_versions


async def test_a_group_is_as_old_as_the_oldest_weights_that_wrote_any_of_its_tokens(server):
  conductor, workers = server
  group = await conductor(Scripted(lists(FOUR))).roll_out(task(), np.array([1, 2], np.uint32), ALL)
  assert group.oldest_version == 3
  (first,) = group.rounds
  assert [rollout.reward for rollout in first] == [1.0, 1.0]
  assert group.seconds_sampling < group.seconds_executing and workers.requests.total() == 2


async def test_right_and_wrong_answers_get_one_and_a_half(server):
  conductor, _ = server
  assert (await one(conductor(), lists(FOUR))).reward == 1.0
  assert (await one(conductor(), lists(FOUR), reference="5")).reward == 0.5


async def test_no_worker_is_called_for_a_completion_that_does_not_parse(server):
  conductor, workers = server
  for text in ("I give up.", lists(4), lists(FOUR, FOUR, FOUR, FOUR), lists(FOUR)[:-1]):
    rollout = await one(conductor(), text)
    assert isinstance(rollout.plan, ParseFailure)
    assert (rollout.reward, rollout.transcript, rollout.grade) == (0.0, None, None)
  assert workers.requests.total() == 0


async def test_a_completion_cut_off_at_the_token_limit_is_parsed_like_any_other(server):
  conductor, _ = server
  (rollout,) = await run(conductor(), [completion(lists(FOUR), ended=False)], [1])
  assert (rollout.text, rollout.reward) == (lists(FOUR), 1.0)


async def test_an_endpoint_that_cannot_be_reached_rejects_the_rollout(server):
  conductor, _ = server
  for plan in (lists(DEAD), lists(FOUR, DEAD), lists(DEAD, FOUR), lists(DEAD, FOUR, access="[]")):
    rollout = await one(conductor(), plan)
    assert rollout.reward is None and rollout.grade is None and rollout.transcript.unavailable
    assert rollout.parts is None and not rollout.right


async def test_a_worker_that_refuses_is_the_plans_fault(server):
  conductor, _ = server
  rollout = await one(conductor(), lists(REFUSES, FOUR))
  assert [call.outcome for call in rollout.transcript.calls] == ["refused", "skipped"]
  assert rollout.reward == 0.5 and not rollout.grade.correct


async def test_a_grader_that_fails_rejects_the_rollout(server):
  conductor, _ = server
  rollout = await one(conductor(), lists(FOUR), reference="")
  assert (rollout.reward, rollout.grade, rollout.transcript.answer) == (None, None, "4")


async def test_another_fault_propagates_as_it_is(server):
  conductor, _ = server
  with pytest.raises(UserError, match="no grader for the kind 'riddle'"):
    await one(conductor(), lists(FOUR), kind="riddle")


async def test_answers_depend_on_a_rollouts_own_seed_alone(server):
  conductor, _ = server
  completions = [completion(lists(SEED, SEED)), completion("junk"), completion(lists(SEED))]
  seeds = np.array([10, 11, 12], np.uint32)

  async def answers(completions, seeds):
    rollouts = await run(conductor(), completions, seeds)
    return [rollout.transcript and rollout.transcript.answer for rollout in rollouts]

  together = await answers(completions, seeds)
  assert await answers(completions[::-1], seeds[::-1]) == together[::-1]
  assert await answers(completions[2:], seeds[2:]) == together[2:]
  assert together[1] is None
  (other,) = await answers(completions[:1], seeds[2:])
  assert len({together[0], together[2], other}) == 3


async def test_json_holds_the_whole_rollout(server):
  conductor, _ = server
  rollout = await one(conductor(), lists(REFUSES, FOUR, access="[]"))
  row = json.loads(json.dumps(rollout.to_json()))
  call = {"attempts": 1, "possibly_billed": 0, "source": "endpoint", "fallback": None,
          "reasoning": "", "cached_tokens": 0, "reasoning_tokens": 0, "possible_cost": 0.0,
          "estimated": False}
  assert row == {
      "task": {"id": "t", "question": "What is t?", "kind": "arithmetic", "reference": "4"},
      "offered": [0, 1, 2, 3],
      "previous_answer": None,
      "completion": lists(REFUSES, FOUR, access="[]"),
      "answer": "4",
      "reward": 1.0,
      "reward_parts": {"total": 1.0, "outcome": 1.0, "cost": 0.0, "tokens": 0.0, "latency": 0.0,
                       "steps": 0.0, "dependencies": 0.0, "efficiency": 0.0},
      "calls": [
          {**call, "worker": "refuses", "response": "", "outcome": "refused", "prompt_tokens": 0,
           "completion_tokens": 0, "cost": 0.0,
           "error": 'HTTP 400: {"error": {"message": "no"}}'},
          {**call, "worker": "four", "response": "4", "outcome": "answered", "prompt_tokens": 8,
           "completion_tokens": 2, "cost": pytest.approx(1.2), "error": None}],
      "plan": [
          {"worker": REFUSES, "subtask": "Solve it.", "sees": [], "sees_previous": False},
          {"worker": FOUR, "subtask": "Solve it.", "sees": [], "sees_previous": False}],
      "counterfactuals": [],
      "completion_tokens": rollout.completion_tokens.tolist(),
      "sampler_logprobs": rollout.sampler_logprobs.tolist(),
      "weight_versions": [3, 4],
  }
  # float32 -> JSON -> float32 loses nothing.
  assert np.array_equal(np.array(row["sampler_logprobs"], np.float32), rollout.sampler_logprobs)


async def test_json_of_an_unparsed_rollout_says_why(server):
  conductor, _ = server
  rollout = await one(conductor(), "I give up.")
  row = rollout.to_json()
  assert row["plan"] == rollout.plan.reason
  assert (row["answer"], row["calls"], row["reward"]) == (None, [], 0.0)


async def test_a_rejected_rollout_has_no_parts_in_json(server):
  conductor, _ = server
  row = json.loads(json.dumps((await one(conductor(), lists(DEAD))).to_json()))
  assert (row["reward"], row["reward_parts"]) == (None, None)


async def test_the_parts_of_a_reward_are_those_of_what_the_workers_took(server):
  conductor, _ = server
  values = RewardValues(per_dollar=0.125, per_thousand_tokens=10.0)
  rollout = await one(conductor(reward_values=values), lists(FOUR, FOUR))
  # Two calls of $1.2 and 10 tokens.
  assert rollout.parts == Reward(
      pytest.approx(0.5), 1.0, pytest.approx(-0.3), pytest.approx(-0.2), 0.0)
  assert rollout.reward == rollout.parts.total
  assert rollout.to_json()["reward_parts"] == {
      "total": rollout.reward, "outcome": 1.0, "cost": rollout.parts.cost,
      "tokens": rollout.parts.tokens, "latency": 0.0, "steps": 0.0, "dependencies": 0.0,
      "efficiency": 0.0}


async def test_a_spent_budget_ends_a_group(server):
  async with serve_conductor(Budget(Allowance(calls=1))) as (conductor, workers):
    with pytest.raises(OutOfBudget, match="1 calls, has no room"):
      await conductor(Scripted(lists(FOUR))).roll_out(task(), np.array([1, 2], np.uint32), ALL)
    assert workers.hits == 1


class TestPrefill:
  PREFILL = "Let me plan.\n"

  async def test_it_is_read_and_neither_sampled_nor_trained(self, server):
    conductor, _ = server
    sampler = Scripted("One is enough.\n" + lists(FOUR))
    group = await conductor(sampler, prefill=self.PREFILL).roll_out(
        task(), np.array([1], np.uint32), ALL)
    ((rollout,),) = group.rounds
    assert TOKENIZER.decode(rollout.turn.prompt_tokens).endswith("assistant\n" + self.PREFILL)
    assert rollout.text == "One is enough.\n" + lists(FOUR)
    assert TOKENIZER.decode(rollout.completion_tokens) == rollout.text + "<|im_end|>"

  async def test_spans_are_places_in_the_completion(self, server):
    conductor, _ = server
    text = "Well: " + lists(FOUR, SEED)
    rollout = await one(conductor(prefill=self.PREFILL), text)
    assert {key: text[start:end] for key, (start, end) in rollout.plan.spans.items()} == {
        (0, "worker"): "0", (0, "subtask"): "Solve it.", (0, "sees"): "[]",
        (1, "worker"): "1", (1, "subtask"): "Solve it.", (1, "sees"): '["all"]'}
    assert rollout.plan == (await one(conductor(), text)).plan

  async def test_a_failure_is_placed_in_the_completion(self, server):
    conductor, _ = server
    rollout = await one(conductor(prefill=self.PREFILL), "Well: " + lists(7))
    assert rollout.plan.position == len("Well: model_id = [")
    rollout = await one(conductor(prefill="<think>\n"), lists(FOUR))
    assert rollout.plan == ParseFailure("the text ends inside <think>", 0)

  async def test_what_it_begins_the_completion_ends(self, server):
    conductor, _ = server
    thought = f"Perhaps {lists(SEED)}\n</think>\n{lists(FOUR)}"
    rollout = await one(conductor(prefill="<think>\n"), thought)
    assert rollout.workflow.steps == (Step(FOUR, "Solve it."),)
    rollout = await one(conductor(prefill="Ask model 0:\nmodel"), lists(FOUR)[len("model"):])
    assert rollout.workflow.steps == (Step(FOUR, "Solve it."),)


class TestOffers:
  KEPT, RENUMBERED = Offer((0, 1, 3)), Offer((0, 1, 3), True)

  async def test_workers_that_keep_their_numbers_are_those_of_the_pool(self, server):
    conductor, workers = server
    rollout = await one(conductor(), lists(SEED, FOUR), self.KEPT)
    assert [step.worker for step in rollout.workflow.steps] == [SEED, FOUR]
    assert workers.requests == {"seed": 1, "four": 1}
    assert TOKENIZER.decode(rollout.turn.prompt_tokens).endswith(
        "Available models: Model 0, Model 1, Model 3<|im_end|>\n<|im_start|>assistant\n")

  async def test_renumbered_workers_become_those_of_the_pool(self, server):
    conductor, workers = server
    offer = Offer((FOUR, REFUSES), True)
    rollout = await one(conductor(), lists(1, 0, access="[]"), offer)
    assert [step.worker for step in rollout.workflow.steps] == [REFUSES, FOUR]
    assert workers.requests == {"refuses": 1, "four": 1}
    assert rollout.reward == 1.0
    assert rollout.plan.spans[0, "worker"] == (len("model_id = ["), len("model_id = [1"))
    assert "Available models: Model 0, Model 1<|im_end|>" in TOKENIZER.decode(
        rollout.turn.prompt_tokens)

  @pytest.mark.parametrize(("offer", "worker", "named"), [
      (KEPT, REFUSES, "0, 1, 3"), (RENUMBERED, 3, "0 to 2"), (Offer((1,)), FOUR, "1")])
  async def test_a_worker_that_is_not_on_offer_makes_a_plan_none_and_nobody_is_called(
      self, server, offer, worker, named):
    conductor, workers = server
    rollout = await one(conductor(), lists(worker), offer)
    assert rollout.plan.reason == f"model_id[0] is {worker}, but the workers are {named}"
    assert (rollout.reward, rollout.parts, rollout.transcript) == (0.0, Reward(0.0, 0.0), None)
    assert not workers.requests

  async def test_json_names_the_workers_by_their_ids_in_the_pool(self, server):
    conductor, _ = server
    for offer, number in ((self.KEPT, DEAD), (self.RENUMBERED, 2)):
      row = (await one(conductor(), lists(number), offer)).to_json()
      assert row["offered"] == [0, 1, 3] and row["plan"][0]["worker"] == DEAD
      assert row["completion"] == lists(number)


class TestFormats:

  async def test_plans_without_subtasks_ask_the_plain_one(self, server):
    conductor, workers = server
    text = 'model_id = [1, 0]\naccess_list = [[], ["all"]]'
    rollout = await one(conductor(subtasks=False), text)
    assert rollout.workflow.steps == (Step(SEED, PLAIN_SUBTASK), Step(FOUR, PLAIN_SUBTASK, (0,)))
    assert rollout.reward == 1.0
    assert workers.bodies[-1]["messages"][-1]["content"] == "Subtask:\nAnswer the question."

  async def test_plans_of_models_alone_run_all_their_steps(self, server):
    conductor, workers = server
    rollout = await one(conductor(subtasks=False, access="none"), "model_id = [1, 0]")
    assert workers.requests == {"seed": 1, "four": 1} and rollout.reward == 1.0

  async def test_emptied_access_lists_run_the_same_plan_without_any_step_seeing_another(
      self, server):
    conductor, workers = server
    rollout = await one(conductor(empty_access=True), lists(SEED, FOUR), Offer((FOUR, SEED), True))
    assert rollout.workflow.steps == (Step(SEED, "Solve it."), Step(FOUR, "Solve it."))
    assert rollout.text == lists(SEED, FOUR)
    assert all(len(body["messages"]) == 1 for body in workers.bodies)
