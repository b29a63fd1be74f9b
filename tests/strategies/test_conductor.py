import asyncio

import numpy as np
import pytest

from conductor_jax.gather import gather_all
from conductor_jax.rewards import RewardValues
from conductor_jax.rollouts import Conductor, later_seed
from conductor_jax.sampling.sampler import Completion
from conductor_jax.strategies.conductor import ConductorStrategy
from conductor_jax.strategies.strategy import task_offer, task_seed
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.call import Usage
from conductor_jax.workers.client import PoolClient
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.lists import ListFormat
from conductor_jax.workflows.prompts import PromptTemplate
from conductor_jax.workflows.workflow import ParseFailure, Step, Workflow


def lists(*workers: int) -> str:
  """A plan whose steps see all that there is."""
  subtasks = ", ".join(['"Solve it."'] * len(workers))
  access = ", ".join(['"all"'] * len(workers))
  return f"model_id = {list(workers)}\nsubtasks = [{subtasks}]\naccess_list = [{access}]"


KEEP = lists()


class Characters:
  """A tokenizer with one token per character; 0 ends a sequence."""

  eos_token_id = 0

  def apply_chat_template(self, messages, **_) -> list[int]:
    return self.encode(messages[-1]["content"])

  def encode(self, text, **_) -> list[int]:
    return [ord(character) for character in text]

  def decode(self, tokens, **_) -> str:
    return "".join(map(chr, tokens))


class Scripted:
  """Writes, for each question, the texts that the script has for it, one a round.

  Attributes:
    calls: question, seeds and temperature of each.
    prompts: the user's part of each.
  """

  def __init__(self, script: dict[str, str | list[str]]):
    self.script = {question: [texts] if isinstance(texts, str) else list(texts)
                   for question, texts in script.items()}
    self.calls = []
    self.prompts = []

  async def sample(self, prompt, seeds, temperature):
    self.prompts.append(Characters().decode(prompt))
    question = self.prompts[-1].split("\n")[0].removeprefix("Question: ")
    self.calls.append((question, seeds.tolist(), temperature))
    text = self.script[question][sum(each[0] == question for each in self.calls) - 1]
    tokens = np.array([*map(ord, text), 0], np.int32)
    return [Completion(
        tokens, np.zeros(len(tokens), np.float32), "stop", np.full(len(tokens), 7, np.int32))]


class Stuck(Scripted):
  """Never writes a plan for the first question."""

  async def sample(self, prompt, seeds, temperature):
    completions = await super().sample(prompt, seeds, temperature)
    if len(self.calls) == 1:
      await asyncio.Event().wait()
    return completions


@pytest.fixture
async def conductor(workers):
  async with PoolClient(workers.pool, request_timeout=5, max_attempts=1) as client:
    async with Graders() as graders:

      def strategy(sampler, law="all", renumber=False, **options) -> ConductorStrategy:
        return ConductorStrategy(Conductor(
            sampler=sampler, tokenizer=Characters(), executor=Executor(client, context="messages"),
            graders=graders, reward_values=RewardValues(), template=PromptTemplate(ListFormat()),
            temperature=1.0, max_prompt=1000), workers.offers(law, renumber=renumber),
            **{"temperature": 0.0, "variant": "step 7"} | options)

      yield strategy


async def test_each_task_gets_one_plan_and_all_are_asked_for_at_once(workers, conductor):
  sampler = Scripted({"a?": lists(0), "b?": lists(1), "c?": "I give up.", "d?": lists(3)})
  tasks = [Task(question, question, "4", "arithmetic") for question in sampler.script]
  strategy = conductor(sampler)
  attempts = await gather_all(strategy.answer(task, seed=9) for task in tasks)
  assert sampler.calls == [(task.question, [task_seed(9, task)], 0.0) for task in tasks]
  assert [attempt.task for attempt in attempts] == tasks
  assert [attempt.right for attempt in attempts] == [True, False, False, False]
  assert [attempt.rejected for attempt in attempts] == [False, False, False, True]
  assert attempts[0].plan == Workflow((Step(0, "Solve it."),))
  assert isinstance(attempts[2].plan, ParseFailure)
  assert attempts[2].transcript is None
  assert [[attempt.completion] for attempt in attempts] == list(sampler.script.values())
  assert [attempt.offered for attempt in attempts] == [(0, 1, 2, 3, 4)] * 4
  assert [attempt.earlier for attempt in attempts] == [()] * 4
  assert (strategy.name, strategy.variant) == ("conductor", "step 7")
  assert workers.requests == {"four": 1, "five": 1}


async def test_a_plan_is_carried_out_while_another_is_still_written(workers, conductor):
  tasks = [Task(question, question, "4", "arithmetic") for question in ("a?", "b?")]
  strategy = conductor(Stuck({"a?": lists(0), "b?": lists(1)}))
  answering = asyncio.gather(*(strategy.answer(task, seed=0) for task in tasks))
  while not workers.requests:
    await asyncio.sleep(0.01)
  assert workers.requests == {"five": 1} and not answering.done()
  answering.cancel()


async def test_there_is_no_plan_for_a_prompt_that_is_too_long_and_nobody_is_asked(
    workers, conductor):
  sampler = Scripted({})
  attempt = await conductor(sampler).answer(Task("long", "a" * 1000, "4", "arithmetic"), seed=0)
  assert attempt.plan.reason.startswith("the prompt has ")
  assert attempt.plan.reason.endswith(" tokens, and the policy reads 1000 at most")
  assert (attempt.right, attempt.rejected) == (False, False)
  assert not sampler.calls and not workers.requests


async def test_there_is_no_further_round_whose_prompt_would_be_too_long(workers, conductor):
  around = len("Question: \n\nAvailable models: Model 0, Model 1, Model 2, Model 3, Model 4")
  for length, rounds in ((1000 - around, 1), (1000 - around - len("Answer so far: 5\n\n"), 2)):
    question = "a" * length
    sampler = Scripted({question: [lists(1), lists(0)]})
    attempt = await conductor(sampler, max_rounds=2).answer(
        Task("long", question, "4", "arithmetic"), seed=0)
    assert (len(sampler.calls), len(attempt.earlier) + 1) == (rounds, rounds)


TASK = Task("a", "a?", "4", "arithmetic")
FOUR, FIVE, SEED, DEAD, FLAKY = range(5)
NO_PLAN = "I give up."


class TestRounds:

  async def answer(self, conductor, *texts, task=TASK, **options):
    sampler = Scripted({"a?": texts})
    return await conductor(sampler, **options).answer(task, seed=9), sampler

  async def test_one_is_all_there_is_unless_more_are_allowed(self, workers, conductor):
    attempt, sampler = await self.answer(conductor, lists(FIVE), lists(FOUR))
    assert (len(sampler.calls), attempt.right, attempt.earlier) == (1, False, ())

  async def test_the_next_one_shows_the_answer_and_its_plan_counts(self, workers, conductor):
    attempt, sampler = await self.answer(conductor, lists(FIVE), lists(FOUR), max_rounds=2)
    models = "Available models: Model 0, Model 1, Model 2, Model 3, Model 4"
    assert sampler.prompts == [
        f"Question: a?\n\n{models}", f"Question: a?\n\nAnswer so far: 5\n\n{models}"]
    assert attempt.right and attempt.transcript.answer == "4"
    assert attempt.plan == Workflow((Step(FOUR, "Solve it.", (), True),))
    first, = attempt.earlier
    assert (first.right, first.transcript.answer, first.completion) == (False, "5", lists(FIVE))
    assert (first.offered, first.earlier) == (attempt.offered, ())

  async def test_a_worker_that_may_see_the_answer_before_is_shown_it(self, workers, conductor):
    await self.answer(conductor, lists(FIVE), lists(FOUR), max_rounds=2)
    last, = [body for body in workers.bodies if body["model"] == "four"]
    assert [message["content"] for message in last["messages"]] == [
        "Question:\na?\n\nSubtask:\nSolve it.", "5", "Subtask:\nSolve it."]

  async def test_each_has_a_seed_of_its_own(self, workers, conductor):
    attempt, sampler = await self.answer(
        conductor, *[lists(SEED)] * 3, max_rounds=3)
    first = np.array([task_seed(9, TASK)], np.uint32)
    second = later_seed(first)
    assert [seeds for _, seeds, _ in sampler.calls] == [
        first.tolist(), second.tolist(), later_seed(second).tolist()]
    assert [temperature for *_, temperature in sampler.calls] == [0.0] * 3
    answers = [each.transcript.answer for each in (*attempt.earlier, attempt)]
    assert len(set(answers)) == 3

  @pytest.mark.parametrize("max_rounds", [1, 2, 3])
  async def test_there_are_max_rounds_at_most(self, workers, conductor, max_rounds):
    attempt, sampler = await self.answer(conductor, *[lists(FIVE)] * 5, max_rounds=max_rounds)
    assert len(sampler.calls) == max_rounds == 1 + len(attempt.earlier)
    assert workers.requests == {"five": max_rounds}

  async def test_empty_lists_end_them_with_the_answer_that_there_is(self, workers, conductor):
    attempt, sampler = await self.answer(
        conductor, lists(FIVE), lists(FOUR), KEEP, lists(FIVE), max_rounds=5)
    assert len(sampler.calls) == 3
    assert attempt.plan == Workflow(()) and attempt.completion == KEEP
    assert (attempt.transcript.answer, attempt.right, attempt.rejected) == ("4", True, False)
    assert attempt.transcript.usage == Usage() and attempt.transcript.calls == ()
    assert [each.right for each in attempt.earlier] == [False, True]
    assert workers.requests == {"four": 1, "five": 1}

  async def test_empty_lists_are_no_plan_of_a_first_one(self, workers, conductor):
    attempt, sampler = await self.answer(conductor, KEEP, lists(FOUR), max_rounds=5)
    assert isinstance(attempt.plan, ParseFailure) and attempt.transcript is None
    assert len(sampler.calls) == 1 and not workers.requests

  async def test_a_later_plan_that_does_not_parse_ends_them_with_the_answer_that_there_is(
      self, workers, conductor):
    attempt, sampler = await self.answer(
        conductor, lists(FOUR), NO_PLAN, lists(FIVE), max_rounds=5)
    assert len(sampler.calls) == 2
    assert isinstance(attempt.plan, ParseFailure) and attempt.completion == NO_PLAN
    assert (attempt.transcript.answer, attempt.right, attempt.rejected) == ("4", True, False)
    assert attempt.transcript.usage == Usage()
    assert workers.requests == {"four": 1}

  async def test_a_first_plan_that_does_not_parse_has_none_after_it(self, workers, conductor):
    attempt, sampler = await self.answer(conductor, NO_PLAN, lists(FOUR), max_rounds=5)
    assert isinstance(attempt.plan, ParseFailure) and not attempt.right
    assert len(sampler.calls) == 1 and not workers.requests

  async def test_an_endpoint_that_is_down_rejects_the_answer_in_whichever_it_is(
      self, workers, conductor):
    for texts in ([lists(DEAD), lists(FOUR)], [lists(FOUR), lists(DEAD), lists(FOUR)]):
      attempt, sampler = await self.answer(conductor, *texts, max_rounds=5)
      assert attempt.rejected and not attempt.right
      assert len(sampler.calls) == len(texts) - 1

  @pytest.mark.parametrize(("max_dollars", "rounds"), [
      (0.0, 4), (0.0005, 1), (0.001, 1), (0.0015, 2), (0.0025, 3), (1.0, 4)])
  async def test_none_begins_once_the_workers_have_cost_so_much(
      self, workers, conductor, max_dollars, rounds):
    # A call of "five" costs $0.001.
    attempt, sampler = await self.answer(
        conductor, *[lists(FIVE)] * 4, max_rounds=4, max_dollars=max_dollars)
    assert len(sampler.calls) == rounds
    assert sum(each.transcript.usage.cost for each in (*attempt.earlier, attempt)) == (
        pytest.approx(0.001 * rounds))


class TestOffers:

  async def test_a_worker_that_is_not_on_offer_makes_a_plan_none(self, workers, conductor):
    offered = task_offer(workers.offers("fixed:2"), TASK, 9).workers
    inside, outside = offered[0], min(set(range(5)) - set(offered))
    attempt = await conductor(Scripted({"a?": lists(outside)}), "fixed:2").answer(TASK, seed=9)
    assert attempt.plan.reason == (
        f"model_id[0] is {outside}, but the workers are {offered[0]}, {offered[1]}")
    assert attempt.offered == offered and not workers.requests
    sampler = Scripted({"a?": lists(inside)})
    attempt = await conductor(sampler, "fixed:2").answer(TASK, seed=9)
    assert attempt.plan.steps[0].worker == inside
    assert sampler.prompts[0].endswith(
        f"Available models: Model {offered[0]}, Model {offered[1]}")

  async def test_renumbered_workers_are_shown_from_0_on_and_plans_tell_who_is_meant(
      self, workers, conductor):
    offered = task_offer(workers.offers("fixed:2"), TASK, 9).workers
    assert offered == (SEED, DEAD)  # the one that is down comes last
    sampler = Scripted({"a?": [lists(0), lists(1)]})
    attempt = await conductor(sampler, "fixed:2", renumber=True, max_rounds=2).answer(TASK, seed=9)
    assert sampler.prompts[0].endswith("Available models: Model 0, Model 1")
    plans = [each.plan for each in (*attempt.earlier, attempt)]
    assert [plan.steps[0].worker for plan in plans] == [SEED, DEAD]
    assert attempt.offered == offered
