"""Measures strategies on tasks: everything that is to be answered, a bounded number at a time."""

import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from anyio.from_thread import BlockingPortal

from conductor_jax.errors import OutOfBudget, UserError
from conductor_jax.evaluation.item import Item, Key, question_hash, record
from conductor_jax.evaluation.metrics import interval, question_scores, summarise
from conductor_jax.evaluation.statistics import bootstrap
from conductor_jax.gather import gather_all
from conductor_jax.strategies.strategy import Strategy
from conductor_jax.tasks.task import Task
from conductor_jax.workflows.transcript import refuse_over_budget


@dataclass(frozen=True)
class Assignment:
  """A task that a strategy is to answer, for the `repeat`-th time, from 0."""

  strategy: Strategy
  task: Task
  repeat: int

  @property
  def key(self) -> Key:
    return Key(self.strategy.name, self.task.kind, self.task.id, self.repeat)


def assignments(
    strategies: Sequence[Strategy], tasks: Sequence[Task], repeats: int) -> list[Assignment]:
  """Every task for every strategy, as often as said.

  Strategies take turns on a task, and all tasks come before the next repeat: whenever it is
  stopped, all strategies have answered about the same questions.
  """
  return [Assignment(strategy, task, repeat)
          for repeat in range(repeats) for task in tasks for strategy in strategies]


def unfinished(work: Iterable[Assignment], items: Mapping[Key, Item]) -> list[Assignment]:
  """What has no verdict yet.

  Args:
    work: everything that is wanted.
    items: what earlier sessions have left.

  Raises:
    UserError: an item is an answer to another question, or of another variant of the strategy.
  """
  waiting = []
  for each in work:
    item = items.get(each.key)
    if item is None or item.right is None:
      waiting.append(each)
      continue
    name, variant = each.strategy.name, each.strategy.variant
    if item.variant != variant:
      raise UserError(f"{name} was {item.variant!r} in earlier sessions, and is {variant!r}: take "
                      "another --workdir")
    if item.question != question_hash(each.task):
      raise UserError(f"{each.task.id} was another question in earlier sessions: its file has "
                      "changed, take another --workdir")
  return waiting


def repeat_seed(seed: int, repeat: int) -> int:
  """The seed of a repeat; the first one has the evaluation's own."""
  return int(np.random.SeedSequence([seed, repeat]).generate_state(1)[0]) if repeat else seed


async def answer_all(
    work: Iterable[Assignment], *, seed: int, concurrent: int,
    done: Callable[[dict[str, Any]], None], stop: Callable[[], bool] = lambda: False
) -> None:
  """Has everything answered.

  Args:
    work: begun in this order.
    seed: fixes every answer.
    concurrent: how many are answered at the same time.
    done: told the record of each as soon as it has ended.
    stop: asked before each whether to begin no more of them; what is under way is finished.

  Raises:
    OutOfBudget: a worker cannot be paid. Nothing more was begun, and what was under way is done.
  """
  waiting, refused = iter(work), []

  async def answer_in_turn() -> None:
    for each in waiting:
      if refused or stop():
        return
      strategy, own_seed = each.strategy, repeat_seed(seed, each.repeat)
      began = time.perf_counter()
      attempt = await strategy.answer(each.task, seed=own_seed)
      try:
        refuse_over_budget([attempt.transcript])
      except OutOfBudget as fault:
        refused.append(fault)
        return
      done(record(attempt, strategy=strategy.name, variant=strategy.variant, repeat=each.repeat,
                  seed=own_seed, seconds=time.perf_counter() - began))

  await gather_all(answer_in_turn() for _ in range(concurrent))
  if refused:
    raise refused[0]


def answers(
    work: Sequence[Assignment], portal: BlockingPortal, *, seed: int, concurrent: int,
    stop: Callable[[], bool]
) -> Iterator[list[dict[str, Any]]]:
  """Has everything answered on the event loop of another thread.

  Arguments and errors are those of `answer_all`.

  Yields:
    Records as they come: several at once where they come faster than they are taken, none at the
    end.
  """
  arrived: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
  answering = portal.start_task_soon(partial(
      answer_all, work, seed=seed, concurrent=concurrent, done=arrived.put, stop=stop))
  answering.add_done_callback(lambda _: arrived.put(None))
  try:
    records: list[dict[str, Any] | None] = []
    while None not in records:
      records = [arrived.get()]
      while not arrived.empty():
        records.append(arrived.get())
      yield [each for each in records if each is not None]
    answering.result()
  finally:
    answering.cancel()


async def evaluate(
    strategy: Strategy, tasks: Sequence[Task], *, seed: int, workers: int, concurrent: int
) -> dict[str, Any]:
  """Lets a strategy answer the tasks once and counts.

  Args:
    strategy: what is measured.
    tasks: at least one.
    seed: fixes every answer, and the interval.
    workers: how many workers are on offer.
    concurrent: how many tasks are answered at the same time.

  Returns:
    What `summarise` does, with `accuracy_interval`, the 95 % interval of the accuracy, and
    `accuracy_by_kind`, the accuracy per kind of task, kinds in alphabetical order. JSON types.

  Raises:
    OutOfBudget: the workers cannot be paid.
    ValueError: no tasks.
  """
  if not tasks:
    raise ValueError("there is nothing to evaluate on: got no tasks")
  records: list[dict[str, Any]] = []
  await answer_all(
      assignments([strategy], tasks, 1), seed=seed, concurrent=concurrent, done=records.append)
  # In the tasks' order, whichever ended first, so that rounding is the same in every run.
  place = {(task.kind, task.id): index for index, task in enumerate(tasks)}
  items = sorted((Item.read(each) for each in records),
                 key=lambda item: place[item.key.benchmark, item.key.task])
  scores = question_scores(items)
  (accuracy,), _ = bootstrap(
      np.array([*scores.values()])[:, None], generator=np.random.default_rng(seed))
  kinds = sorted({task.kind for task in tasks})
  by_kind = {
      kind: summarise([item for item in items if item.key.benchmark == kind], workers=workers)
      for kind in kinds}
  return {
      **summarise(items, workers=workers),
      "accuracy_interval": interval(accuracy),
      "accuracy_by_kind": {kind: numbers["accuracy"] for kind, numbers in by_kind.items()},
  }
