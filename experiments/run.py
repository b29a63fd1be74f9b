"""One run: its config, its work directory, and everything that its phases share."""

import contextlib
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
from anyio.from_thread import BlockingPortal
from ml_collections import ConfigDict

from conductor_jax.errors import UserError
from conductor_jax.reporting.progress import Terminal
from conductor_jax.training.checkpoint import Checkpoints
from conductor_jax.workers.client import PoolClient
from conductor_jax.workflows.executor import Executor
from experiments.chat import Chat
from experiments.components import Offers, Splits, load_splits, make_offers, open_workers
from experiments.policy import (
    Policy,
    check_tokenizer,
    load_policy,
    model_shape,
    model_tokenizer,
    open_mesh,
)
from experiments.workdir import StopSignals, check_claim, claim


class Clock:
  """Wall time of a run, carried over interruptions."""

  def __init__(self):
    self._began = time.monotonic()
    self._before = 0.0

  def resume(self, seconds: float) -> None:
    """Counts on from the seconds that the run had taken when its checkpoint was written."""
    self._before = max(self._before, seconds)

  def seconds(self) -> float:
    return self._before + time.monotonic() - self._began


@dataclass(frozen=True)
class Run:
  """One run in one work directory, with everything both phases need."""

  config: ConfigDict
  workdir: Path
  clock: Clock
  terminal: Terminal
  stop: StopSignals
  portal: BlockingPortal
  client: PoolClient
  executor: Executor
  splits: Splits
  offers: Offers
  chat: Chat
  policy: Policy

  def checkpoints(self, phase: str) -> Checkpoints:
    return Checkpoints(
        (self.workdir / "checkpoints" / phase).absolute(), keep=self.config.checkpoint.keep,
        say=self.terminal.print)


@contextlib.contextmanager
def open_run(
    config: ConfigDict, workdir: Path, stop: StopSignals | None = None) -> Iterator[Run]:
  """Loads everything, then claims the work directory: a run that cannot start leaves no trace.

  Args:
    config: the options.
    workdir: made if it is not there.
    stop: tells the run to; it listens for signals by itself where there is none.

  Raises:
    UserError: something in the config, the tasks, the workers or the work directory is unusable.
  """
  if jax.process_count() > 1:
    raise UserError(
        f"this run has {jax.process_count()} processes, and rollouts are collected in one: start "
        "it on one host")
  clock, terminal, stop = Clock(), Terminal(), stop or StopSignals()
  check_claim(workdir, config)
  offers = make_offers(config)
  splits = load_splits(config)
  chat = Chat(config, splits, offers.warm_start, model_tokenizer(config))
  check_tokenizer(chat.tokenizer, model_shape(config))
  fitting = chat.fitting(splits)
  splits, left_out = fitting.splits, fitting.left_out
  with open_workers(config, workdir, say=terminal.print) as (portal, client, executor):
    policy = load_policy(config, open_mesh(config))
    again = claim(workdir, config)
    # A policy is no use without it.
    chat.tokenizer.save_pretrained(workdir / "tokenizer")
    size = sum(leaf.size for leaf in jax.tree.leaves(policy.whole(policy.trained))) / 1e6
    terminal.print(
        f"{workdir}: {'going on with' if again else 'starting'} a run of {size:.2f} M parameters "
        f"on {jax.device_count()} {jax.default_backend()} device(s), {len(splits.train)} training "
        f"and {len(splits.heldout)} held-out tasks"
        + (f" ({left_out} left out, their prompts are too long)" if left_out else "")
        + f", {len(executor.pool)} workers")
    terminal.print(chat.prompt_line(fitting))
    for note in splits.notes:
      terminal.print(f"tasks: {note}")
    # What is there lives as long as the run. The collector of garbage, which stops the event loop
    # with all calls on it, need not go through it again and again.
    gc.collect()
    gc.freeze()
    try:
      yield Run(
          config, workdir, clock, terminal, stop, portal, client, executor, splits, offers, chat,
          policy)
    finally:
      gc.unfreeze()
