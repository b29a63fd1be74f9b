"""A conductor whose completions are given, and four workers behind a real server."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from conductor_jax.arena.tokenizer import CHAT_TEMPLATE
from conductor_jax.rewards import RewardValues
from conductor_jax.rollouts import Conductor, later_seed
from conductor_jax.sampling.sampler import Completion
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.budget import Budget
from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.offer import Offer
from conductor_jax.workers.pool import Pool, WorkerSpec
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.lists import ListFormat
from conductor_jax.workflows.prompts import PromptTemplate
from tests.workers.endpoint import DEAD as NOWHERE
from tests.workers.endpoint import Endpoint, reply, serve
from tests.workers.endpoint import completion as answered

NAMES = ("four", "seed", "refuses", "dead")
FOUR, SEED, REFUSES, DEAD = range(4)
ALL = Offer((0, 1, 2, 3))


def byte_tokenizer() -> PreTrainedTokenizerFast:
  letters = sorted(pre_tokenizers.ByteLevel.alphabet())
  tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  return PreTrainedTokenizerFast(
      tokenizer_object=tokenizer, eos_token="<|im_end|>",
      additional_special_tokens=["<|im_start|>"], chat_template=CHAT_TEMPLATE)


TOKENIZER = byte_tokenizer()


def lists(*workers: int, access: str = '["all"]', first: str = "[]") -> str:
  """A plan; its later steps have the one access list, its first step the other."""
  entries = ", ".join([first] + [access] * (len(workers) - 1)) if workers else ""
  subtasks = ", ".join(['"Solve it."'] * len(workers))
  return f"model_id = {list(workers)}\nsubtasks = [{subtasks}]\naccess_list = [{entries}]"


KEEP = lists()


def completion(text: str, *, ended: bool = True) -> Completion:
  tokens = TOKENIZER.encode(text, add_special_tokens=False) + [TOKENIZER.eos_token_id] * ended
  return Completion(
      np.array(tokens, np.int32), np.linspace(-1, 0, len(tokens), dtype=np.float32),
      "stop" if ended else "length",
      weight_versions=np.array([3] + [4] * (len(tokens) - 1), np.int32))


class Scripted:
  """Writes the text of each seed, or the same one under every seed.

  Attributes:
    calls: prompt, seeds and temperature of each.
  """

  def __init__(self, text: str | Mapping[int, str]):
    self.text = text
    self.calls = []

  async def sample(self, prompt, seeds, temperature):
    self.calls.append((prompt, seeds, temperature))
    return [completion(self.text if isinstance(self.text, str) else self.text[int(seed)])
            for seed in seeds]


def rounds(seeds: np.ndarray, *texts: tuple[str, str]) -> Scripted:
  """Writes, under each of these seeds, the first text and in the second round the other."""
  first = dict(zip(map(int, seeds), (text for text, _ in texts), strict=True))
  second = dict(zip(map(int, later_seed(seeds)), (text for _, text in texts), strict=True))
  return Scripted(first | second)


class Workers(Endpoint):
  """"four" answers 4, "seed" its request's seed, "refuses" HTTP 400; "dead" cannot be reached.

  A call is 8 tokens read and 2 written, and costs $1.2.
  """

  @property
  def pool(self) -> Pool:
    return Pool(tuple(
        WorkerSpec(name, NOWHERE if name == "dead" else self.base_url, name,
                   price_in=1e5, price_out=2e5)
        for name in NAMES))

  def behaviour(self, body):
    seconds = 0.01 * (self.hits % 3)  # answers overtake each other
    if body["model"] == "refuses":
      return reply({"error": {"message": "no"}}, 400, seconds=seconds)
    answer = "4" if body["model"] == "four" else str(body["seed"])
    usage = {"prompt_tokens": 8, "completion_tokens": 2}
    return reply(answered(answer, usage=usage), seconds=seconds)


@contextlib.asynccontextmanager
async def serve_conductor(
    budget: Budget | None = None) -> AsyncIterator[tuple[Callable[..., Conductor], Workers]]:
  """A function (sampler, changes) → conductor, and the workers that it asks."""
  async with (
      serve(Workers()) as workers,
      PoolClient(workers.pool, request_timeout=5, max_attempts=1, budget=budget) as client,
      Graders() as graders):

    def conductor(sampler=None, *, prefill="", access="binary", subtasks=True, **changes):
      return Conductor(**{
          "sampler": sampler, "tokenizer": TOKENIZER, "graders": graders,
          "template": PromptTemplate(ListFormat(3, access, subtasks), prefill=prefill),
          "executor": Executor(client, context="messages"), "reward_values": RewardValues(),
          "temperature": 1.0, "max_prompt": 4000} | changes)

    yield conductor, workers


def task(name: str = "t", reference: str = "4", kind: str = "arithmetic") -> Task:
  return Task(name, f"What is {name}?", reference, kind, {"level": 1})
