import asyncio
import json
from collections import Counter

import numpy as np
import pytest
from aiohttp import web
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from conductor_jax.errors import UserError
from conductor_jax.rewards import RewardValues
from conductor_jax.rollouts import Conductor, Rollout
from conductor_jax.sampling.sampler import Completion
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.pool import Pool, WorkerSpec
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.prompts import conductor_messages
from conductor_jax.workflows.workflow import ParseFailure

_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
NAMES = ("four", "seed", "refuses", "dead")
FOUR, SEED, REFUSES, DEAD = range(4)


def byte_tokenizer() -> PreTrainedTokenizerFast:
  letters = sorted(pre_tokenizers.ByteLevel.alphabet())
  tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  return PreTrainedTokenizerFast(
      tokenizer_object=tokenizer, eos_token="<|im_end|>",
      additional_special_tokens=["<|im_start|>"], chat_template=_TEMPLATE)


TOKENIZER = byte_tokenizer()


def lists(*workers: int, access: str = '["all"]') -> str:
  entries = ", ".join(["[]"] + [access] * (len(workers) - 1))
  subtasks = ", ".join(['"Solve it."'] * len(workers))
  return f"model_id = {list(workers)}\nsubtasks = [{subtasks}]\naccess_list = [{entries}]"


def completion(text: str, *, ended: bool = True) -> Completion:
  tokens = TOKENIZER.encode(text, add_special_tokens=False) + [TOKENIZER.eos_token_id] * ended
  return Completion(
      np.array(tokens, np.int32), np.linspace(-1, 0, len(tokens), dtype=np.float32),
      "stop" if ended else "length",
      weight_versions=np.array([3] + [4] * (len(tokens) - 1), np.int32))


class Scripted:
  """Writes the same text under every seed."""

  def __init__(self, text: str):
    self.text = text
    self.calls = []

  async def sample(self, prompt, seeds, temperature):
    self.calls.append((prompt, seeds, temperature))
    return [completion(self.text) for _ in seeds]


@pytest.fixture
async def server():
  """Counts requests per model; "four" answers 4, "seed" its request's seed, "refuses" HTTP 400."""
  requests = Counter()

  async def answer(request: web.Request) -> web.Response:
    body = await request.json()
    requests[body["model"]] += 1
    await asyncio.sleep(0.01 * (requests.total() % 3))  # answers overtake each other
    if body["model"] == "refuses":
      return web.json_response({"error": {"message": "no"}}, status=400)
    content = "4" if body["model"] == "four" else str(body["seed"])
    return web.json_response({
        "choices": [{"message": {"role": "assistant", "content": content},
                     "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 8, "completion_tokens": 2}})

  application = web.Application()
  application.router.add_post("/v1/chat/completions", answer)
  runner = web.AppRunner(application)
  await runner.setup()
  await web.TCPSite(runner, "127.0.0.1", 0).start()
  live = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
  # Nothing listens on port 1: connections are refused at once.
  pool = Pool(tuple(
      WorkerSpec(name, "http://127.0.0.1:1/v1" if name == "dead" else live, name,
                 price_in=1e5, price_out=2e5)
      for name in NAMES))
  async with PoolClient(pool, request_timeout=5, max_attempts=1) as client:
    async with Graders() as graders:
      def conductor(sampler=None, **changes) -> Conductor:
        return Conductor(**{
            "sampler": sampler, "tokenizer": TOKENIZER, "graders": graders,
            "executor": Executor(client, context="messages"), "reward_values": RewardValues(),
            "max_steps": 3, "access": "binary", "temperature": 1.0} | changes)
      yield conductor, requests
  await runner.cleanup()


def task(name: str = "t", reference: str = "4", kind: str = "arithmetic") -> Task:
  return Task(name, f"What is {name}?", reference, kind, {"level": 1})


async def one(conductor: Conductor, text: str, **fields) -> Rollout:
  (rollout,) = await conductor.execute(
      task(**fields), [completion(text)], np.array([1], np.uint32))
  return rollout


async def test_sample_sends_the_templated_prompt_seeds_and_temperature(server):
  sampler = Scripted("x")
  conductor, _ = server
  sampled = conductor(sampler, access="positions", temperature=0.7)
  seeds = np.array([1, 2], np.uint32)
  assert len(await sampled.sample(task("b"), seeds)) == 2
  await sampled.sample(task("a"), seeds[:1], temperature=0.0)
  (prompt, sent, temperature), (_, _, greedy) = sampler.calls
  system, user = conductor_messages("What is b?", workers=4, max_steps=3, access="positions")
  assert TOKENIZER.decode(prompt) == (
      f"<|im_start|>system\n{system['content']}<|im_end|>\n"
      f"<|im_start|>user\n{user['content']}<|im_end|>\n<|im_start|>assistant\n")
  assert sent is seeds and (temperature, greedy) == (0.7, 0.0)


async def test_a_rollout_keeps_the_tokens_it_was_given_and_the_prompt_that_was_sampled(server):
  conductor, _ = server
  sampler = Scripted(lists(FOUR))
  sampled = conductor(sampler)
  seeds = np.array([1], np.uint32)
  (completion,) = await sampled.sample(task(), seeds)
  (rollout,) = await sampled.execute(task(), [completion], seeds)
  assert rollout.completion_tokens is completion.tokens
  assert rollout.sampler_logprobs is completion.logprobs
  assert rollout.completion_tokens[-1] == TOKENIZER.eos_token_id
  assert rollout.prompt_tokens.dtype == np.int32
  assert rollout.prompt_tokens.tolist() == sampler.calls[0][0]
  assert rollout.text == lists(FOUR)
  assert rollout.weight_versions is completion.weight_versions


async def test_a_group_is_as_old_as_the_oldest_weights_that_wrote_any_of_its_tokens(server):
  conductor, requests = server
  group = await conductor(Scripted(lists(FOUR))).roll_out(task(), np.array([1, 2], np.uint32))
  assert group.oldest_version == 3
  assert [rollout.reward for rollout in group.rollouts] == [1.0, 1.0]
  assert group.seconds_sampling < group.seconds_executing and requests.total() == 2


async def test_right_and_wrong_answers_get_one_and_a_half(server):
  conductor, _ = server
  assert (await one(conductor(), lists(FOUR))).reward == 1.0
  assert (await one(conductor(), lists(FOUR), reference="5")).reward == 0.5


async def test_no_worker_is_called_for_a_completion_that_does_not_parse(server):
  conductor, requests = server
  for text in ("I give up.", lists(4), lists(FOUR, FOUR, FOUR, FOUR), lists(FOUR)[:-1]):
    rollout = await one(conductor(), text)
    assert isinstance(rollout.plan, ParseFailure)
    assert (rollout.reward, rollout.transcript, rollout.grade) == (0.0, None, None)
  assert requests.total() == 0


async def test_a_completion_cut_off_at_the_token_limit_is_parsed_like_any_other(server):
  conductor, _ = server
  (rollout,) = await conductor().execute(
      task(), [completion(lists(FOUR), ended=False)], np.array([1], np.uint32))
  assert (rollout.text, rollout.reward) == (lists(FOUR), 1.0)


async def test_an_endpoint_that_cannot_be_reached_rejects_the_rollout(server):
  conductor, _ = server
  for plan in (lists(DEAD), lists(FOUR, DEAD), lists(DEAD, FOUR), lists(DEAD, FOUR, access="[]")):
    rollout = await one(conductor(), plan)
    assert rollout.reward is None and rollout.grade is None and rollout.transcript.unavailable


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
    rollouts = await conductor().execute(task(), completions, seeds)
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
      "completion": lists(REFUSES, FOUR, access="[]"),
      "answer": "4",
      "reward": 1.0,
      "calls": [
          {**call, "worker": "refuses", "response": "", "outcome": "refused", "prompt_tokens": 0,
           "completion_tokens": 0, "cost": 0.0,
           "error": 'HTTP 400: {"error": {"message": "no"}}'},
          {**call, "worker": "four", "response": "4", "outcome": "answered", "prompt_tokens": 8,
           "completion_tokens": 2, "cost": pytest.approx(1.2), "error": None}],
      "plan": [{"worker": REFUSES, "subtask": "Solve it.", "sees": []},
               {"worker": FOUR, "subtask": "Solve it.", "sees": []}],
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
