"""Builds what the programs share from a config: tasks, prompts, and workers."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from anyio.from_thread import BlockingPortal, start_blocking_portal
from ml_collections import ConfigDict
from transformers import PreTrainedTokenizerBase

from conductor_jax.arena.frontier import frontier_pool
from conductor_jax.arena.plans import example_plan, plain_plan
from conductor_jax.arena.server_process import ServerProcess
from conductor_jax.arena.specialists import arena_pool
from conductor_jax.arena.tokenizer import train_tokenizer
from conductor_jax.arena.world import World, stable_hash
from conductor_jax.errors import UserError
from conductor_jax.tasks.sources import load_tasks
from conductor_jax.tasks.task import Task
from conductor_jax.workers.budget import Allowance, Budget, allowances
from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.journal import Journal
from conductor_jax.workers.pool import Pool
from conductor_jax.workers.pools import listed_pool, open_pool, paper_pool
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.prompts import conductor_messages, conductor_prompt
from experiments.vllm_workers import vllm_workers

# Tasks whose chats the arena's tokenizer is trained on.
_TOKENIZER_TASKS = 2400


class Splits(NamedTuple):
  """Disjoint parts of the configured tasks."""

  train: list[Task]
  heldout: list[Task]


def load_splits(config: ConfigDict) -> Splits:
  """Loads or generates the tasks.

  Raises:
    UserError: a file is missing or faulty, or there are too few tasks for both splits.
  """
  wanted = config.evaluation.tasks
  if config.tasks.source == "arena":
    world = World(config.seed)
    return Splits(_generate(world, "train", "tasks.train", config.tasks.train),
                  _generate(world, "test", "evaluation.tasks", wanted))
  if not config.tasks.path:
    raise UserError("--config.tasks.path= must name the folder of the benchmark files")
  tasks = load_tasks(config.tasks.path, config.tasks.benchmarks, config.tasks.split)
  # By the text of the question, so that one that occurs twice cannot be in both.
  tasks = sorted(tasks, key=lambda task: stable_hash(config.seed, task.question))
  asked = {task.question for task in tasks[:wanted]}
  train = [task for task in tasks[wanted:] if task.question not in asked]
  if not train:
    raise UserError(
        f"--config.evaluation.tasks={wanted} leaves nothing to train on of the {len(tasks)} tasks "
        f"in {config.tasks.path}: lower it")
  return Splits(train[:config.tasks.train], tasks[:wanted])


def _generate(world: World, split: str, key: str, count: int) -> list[Task]:
  try:
    return world.tasks(split, count)
  except ValueError as fault:
    raise UserError(f"--config.{key}={count}: {fault}") from fault


class Chat:
  """Turns tasks into prompts, and into example completions for the warm start."""

  def __init__(
      self, config: ConfigDict, splits: Splits, workers: int,
      tokenizer: PreTrainedTokenizerBase | None):
    """
    Args:
      config: the options.
      splits: the tasks.
      workers: how many are offered.
      tokenizer: that of the model's weights; None trains one on chats of the training tasks.
    """
    self._config, self._workers = config, workers
    self._offer = dict(
        workers=workers, max_steps=config.workflow.max_steps, access=config.workflow.access)
    self.tokenizer = self._trained(splits) if tokenizer is None else tokenizer

  def _trained(self, splits: Splits) -> PreTrainedTokenizerBase:
    config = self._config
    generator = np.random.default_rng([config.seed, stable_hash("tokenizer")])
    texts = []
    for task in splits.train[:_TOKENIZER_TASKS]:
      messages = conductor_messages(task.question, **self._offer)
      texts += [message["content"] for message in messages]
      texts.append(self.example(task, generator))
    return train_tokenizer(texts, config.tokenizer.vocab_size)

  def prompt(self, task: Task) -> list[int]:
    return conductor_prompt(self.tokenizer, task.question, **self._offer)

  def example(self, task: Task, generator: np.random.Generator) -> str:
    """Draws an example completion."""
    draw = example_plan if self._config.tasks.source == "arena" else plain_plan
    return draw(task, self._workers, generator)[0]

  def example_tokens(self, task: Task, generator: np.random.Generator) -> np.ndarray:
    """Draws an example completion with its end-of-sequence token, int32[tokens]."""
    tokens = self.tokenizer.encode(self.example(task, generator))
    return np.array([*tokens, self.tokenizer.eos_token_id], np.int32)

  def fitting(self, splits: Splits) -> tuple[Splits, int]:
    """Leaves out tasks whose prompt is too long; returns the rest and how many were left out.

    Raises:
      UserError: nothing is left of a split.
    """
    limit = self._config.rollout.max_prompt_tokens
    kept = Splits(*([task for task in part if len(self.prompt(task)) <= limit] for part in splits))
    if not (kept.train and kept.heldout):
      raise UserError(
          f"--config.rollout.max_prompt_tokens={limit}: every prompt is longer; raise it")
    return kept, sum(map(len, splits)) - sum(map(len, kept))


class Workers(NamedTuple):
  """The workers of a run, and the event loop that they are asked on."""

  portal: BlockingPortal
  client: PoolClient
  executor: Executor


@contextlib.contextmanager
def open_workers(
    config: ConfigDict, workdir: Path, *, say: Callable[[str], None]) -> Iterator[Workers]:
  """Starts an event loop in a thread, and the configured workers with an executor on it.

  Args:
    config: the options.
    workdir: where the journal is written, and the output of a server of language models. Nothing is
      before the first call.
    say: told how a server's start goes.

  Raises:
    UserError: a port is taken, the workers do not start or lack a key, or the journal cannot be
      used.
  """
  options, workflow = config.pool, config.workflow
  with contextlib.ExitStack() as stack:
    portal = stack.enter_context(start_blocking_portal())
    log = workdir / "workers.log"
    pool = stack.enter_context(_open_pool(config, portal, log, say))
    limits = allowances(options.budget.workers, [worker.name for worker in pool.workers])
    journal = stack.enter_context(portal.wrap_async_context_manager(Journal(
        Path(options.journal.path or workdir / "journal.sqlite"), options.journal.mode)))
    client = stack.enter_context(portal.wrap_async_context_manager(PoolClient(
        pool, request_timeout=options.request_timeout, connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout or None, max_attempts=options.max_attempts,
        longest_wait=options.longest_wait, max_in_flight=options.max_in_flight,
        breaker_failures=options.breaker_failures, breaker_cooldown=options.breaker_cooldown,
        journal=journal,
        budget=Budget(
            Allowance(options.budget.dollars or None, options.budget.tokens or None,
                      options.budget.calls or None), limits,
            # Another journal holds what others have spent.
            {} if options.journal.path else journal.spent()))))
    yield Workers(portal, client, Executor(
        client, context=workflow.context, deadline=workflow.deadline or None,
        share_identical_calls=workflow.share_identical_calls))


@contextlib.contextmanager
def _open_pool(
    config: ConfigDict, portal: BlockingPortal, log: Path, say: Callable[[str], None]
) -> Iterator[Pool]:
  source = config.pool.source
  running = {"paper": paper_pool, "open": lambda: open_pool(config.pool.open.urls),
             "listed": lambda: listed_pool(config.pool.workers)}
  if source in running:
    yield running[source]()
    return
  if source == "vllm":
    with portal.wrap_async_context_manager(vllm_workers(config, log=log, say=say)) as pool:
      yield pool
    return
  if source == "arena":
    factory, arguments = "conductor_jax.arena.specialists:answerers", {"seed": config.seed}
  else:
    factory = "conductor_jax.arena.frontier:answerers"
    arguments = {"path": config.tasks.path, "benchmarks": list(config.tasks.benchmarks),
                 "split": config.tasks.split}
  with ServerProcess(
      factory, arguments, port=config.pool.port, latency=config.pool.latency) as server:
    yield (arena_pool(server.base_url, config.seed) if source == "arena"
           else frontier_pool(server.base_url))
