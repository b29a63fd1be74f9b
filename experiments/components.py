"""Builds what the programs share from a config: tasks and workers."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from anyio.from_thread import BlockingPortal, start_blocking_portal
from ml_collections import ConfigDict

from conductor_jax.arena.frontier import frontier_pool
from conductor_jax.arena.server_process import ServerProcess
from conductor_jax.arena.specialists import arena_pool
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
from conductor_jax.workers.offer import OfferLaw
from conductor_jax.workers.pool import Pool
from conductor_jax.workers.pools import listed_pool, open_pool, paper_pool
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.lists import ListFormat
from experiments.vllm_workers import vllm_workers


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


def plan_format(config: ConfigDict) -> ListFormat:
  """What the configured plans are made of."""
  options = config.workflow
  return ListFormat(options.max_steps, options.access, options.subtasks)


class Offers(NamedTuple):
  """Which workers are offered: to questions of the warm start, of RL, and to held-out ones."""

  warm_start: OfferLaw
  training: OfferLaw
  heldout: OfferLaw


def make_offers(config: ConfigDict) -> Offers:
  """The configured laws.

  Raises:
    UserError: one cannot be kept with the configured workers.
  """
  names, groups = worker_names(config), {name: list(group) for name, group in config.pool.groups}

  def law(key: str, text: str) -> OfferLaw:
    try:
      return OfferLaw(text, names, groups, renumber=config.pool.renumber)
    except UserError as fault:
      raise UserError(f"--config.{key}: {fault}") from fault

  training = law("pool.offer", config.pool.offer)
  return Offers(
      warm_start=law("sft.offer", config.sft.offer) if config.sft.offer else training,
      training=training, heldout=law("evaluation.offer", config.evaluation.offer))


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
    factory = "conductor_jax.arena.specialists:answerers"
    arguments = {"seed": config.seed, "noise": [list(pair) for pair in config.pool.noise]}
  else:
    factory = "conductor_jax.arena.frontier:answerers"
    arguments = {"path": config.tasks.path, "benchmarks": list(config.tasks.benchmarks),
                 "split": config.tasks.split}
  with ServerProcess(
      factory, arguments, port=config.pool.port, latency=config.pool.latency) as server:
    yield (arena_pool(server.base_url, config.seed) if source == "arena"
           else frontier_pool(server.base_url))
