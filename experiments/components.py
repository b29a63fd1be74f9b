"""Builds what the programs share from a config: tasks, prompts, and workers."""

import contextlib
import sys
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
from conductor_jax.tasks.configured import configured_tasks
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.sandbox import Sandbox
from conductor_jax.tasks.splits import split_tasks
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
  """Disjoint parts of the configured tasks, and what was left out of them, in sentences."""

  train: list[Task]
  heldout: list[Task]
  notes: tuple[str, ...] = ()


def load_splits(config: ConfigDict) -> Splits:
  """Loads or generates the tasks.

  Raises:
    UserError: a file is missing or faulty, or there are too few tasks for both splits.
  """
  options, wanted = config.tasks, config.evaluation.tasks
  if options.source == "arena":
    world = World(config.seed)
    return Splits(_generate(world, "train", "tasks.train", options.train),
                  _generate(world, "test", "evaluation.tasks", wanted))
  notes: list[str] = []
  tasks = configured_tasks(options, options.benchmarks, say=notes.append)
  # The order depends on the seed and the questions, and not on where their rows stand.
  tasks = sorted(tasks, key=lambda task: stable_hash(config.seed, task.question))
  split = split_tasks(
      tasks, train=options.train, heldout=wanted, balanced=options.balanced,
      evaluated=configured_tasks(options, options.evaluated, say=notes.append))
  return Splits(split.train, split.heldout, (*notes, *split.notes))


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

    def fitting(tasks: list[Task]) -> list[Task]:
      return [task for task in tasks if len(self.prompt(task)) <= limit]

    kept = splits._replace(train=fitting(splits.train), heldout=fitting(splits.heldout))
    if not (kept.train and kept.heldout):
      raise UserError(
          f"--config.rollout.max_prompt_tokens={limit}: every prompt is longer; raise it")
    return kept, (len(splits.train) + len(splits.heldout)
                  - len(kept.train) - len(kept.heldout))


def make_graders(config: ConfigDict) -> Graders:
  """The graders, with the configured sandbox; they are to be closed."""
  options = config.sandbox
  sandbox = Sandbox(
      python=options.python or sys.executable, unsafe=options.unsafe,
      sessions=options.sessions or None)
  return Graders(sandbox=sandbox, time_factor=options.time_factor)


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


def worker_names(config: ConfigDict) -> list[str]:
  """The names of the configured workers, none of whom is started or asked.

  Raises:
    UserError: the workers cannot be.
  """
  if config.pool.source == "vllm":
    return [name for name, _ in config.pool.vllm.workers]
  pools = {"arena": lambda: arena_pool("", config.seed), "frontier": lambda: frontier_pool(""),
           **_running_pools(config)}
  return [worker.name for worker in pools[config.pool.source]().workers]


def _running_pools(config: ConfigDict) -> dict[str, Callable[[], Pool]]:
  """Pools whose workers run already, by their source."""
  return {"paper": paper_pool, "open": lambda: open_pool(config.pool.open.urls),
          "listed": lambda: listed_pool(config.pool.workers)}


@contextlib.contextmanager
def _open_pool(
    config: ConfigDict, portal: BlockingPortal, log: Path, say: Callable[[str], None]
) -> Iterator[Pool]:
  source = config.pool.source
  running = _running_pools(config)
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
