import asyncio

import numpy as np
import pytest

from conductor_jax.gather import gather_all
from conductor_jax.rewards import RewardValues
from conductor_jax.rollouts import Conductor
from conductor_jax.sampling.sampler import Completion
from conductor_jax.strategies.conductor import ConductorStrategy
from conductor_jax.strategies.strategy import task_seed
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.client import PoolClient
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.workflow import ParseFailure, Step, Workflow


def lists(worker: int) -> str:
  return f'model_id = [{worker}]\nsubtasks = ["Solve it."]\naccess_list = [[]]'


class Characters:
  """A tokenizer with one token per character; 0 ends a sequence."""

  eos_token_id = 0

  def apply_chat_template(self, messages, **_) -> list[int]:
    return [ord(character) for character in messages[-1]["content"]]

  def decode(self, tokens, **_) -> str:
    return "".join(map(chr, tokens))


class Scripted:
  """Writes, for each question, the text the script has for it."""

  def __init__(self, script: dict[str, str]):
    self.script = script
    self.calls = []

  async def sample(self, prompt, seeds, temperature):
    question = Characters().decode(prompt).split("\n")[0].removeprefix("Question: ")
    self.calls.append((question, seeds.tolist(), temperature))
    tokens = np.array([*map(ord, self.script[question]), 0], np.int32)
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

      def strategy(sampler) -> ConductorStrategy:
        return ConductorStrategy(Conductor(
            sampler=sampler, tokenizer=Characters(), executor=Executor(client, context="messages"),
            graders=graders, reward_values=RewardValues(), max_steps=5, access="binary",
            temperature=1.0), temperature=0.0, max_prompt=1000, variant="step 7")

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
  assert [attempt.completion for attempt in attempts] == list(sampler.script.values())
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
