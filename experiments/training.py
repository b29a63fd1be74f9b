"""The two phases of a run, put together from a config: the warm start, then GRPO."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import grain
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict
from orbax.checkpoint.utils import to_shape_dtype_struct

from conductor_jax.errors import UserError
from conductor_jax.reporting.metrics import MetricsWriter, RolloutLog
from conductor_jax.reporting.progress import Terminal
from conductor_jax.rollouts import Conductor, Rollout, rollout_metrics
from conductor_jax.tasks.task import Task
from conductor_jax.training.advantages import drop_zero_variance, group_advantages
from conductor_jax.training.batch import Group, GroupedBatch, pack, padding_share
from conductor_jax.training.checkpoint import Checkpoints
from conductor_jax.training.flops import throughput
from conductor_jax.training.logprobs import Params
from conductor_jax.training.loop import Phase, train_phase
from conductor_jax.training.sft import Examples, pack_examples
from conductor_jax.training.step import TrainState
from conductor_jax.workflows.executor import Executor
from experiments.components import Chat, Splits, load_splits, open_executor
from experiments.policy import (
    Policy,
    check_tokenizer,
    load_policy,
    model_shape,
    model_tokenizer,
    open_mesh,
)
from experiments.steps import grpo_step, sft_step
from experiments.workdir import StopSignals, check_claim, claim

# Keeps the seeds of rollouts apart from those of everything else.
_ROLLOUT_SEEDS = 101


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
  runner: asyncio.Runner
  executor: Executor
  splits: Splits
  chat: Chat
  policy: Policy

  def checkpoints(self, phase: str) -> Checkpoints:
    return Checkpoints(
        (self.workdir / "checkpoints" / phase).absolute(), keep=self.config.checkpoint.keep,
        say=self.terminal.print)


@contextlib.contextmanager
def open_run(config: ConfigDict, workdir: Path) -> Iterator[Run]:
  """Loads everything, then claims the work directory: a run that cannot start leaves no trace.

  Raises:
    UserError: something in the config, the tasks, the workers or the work directory is unusable.
  """
  if jax.process_count() > 1:
    raise UserError(
        f"this run has {jax.process_count()} processes, and rollouts are collected in one: start "
        "it on one host")
  clock, terminal, stop = Clock(), Terminal(), StopSignals()
  check_claim(workdir, config)
  splits = load_splits(config)
  with open_executor(config) as (runner, executor):
    chat = Chat(config, splits, len(executor.pool), model_tokenizer(config))
    check_tokenizer(chat.tokenizer, model_shape(config))
    splits, left_out = chat.fitting(splits)
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
    yield Run(config, workdir, clock, terminal, stop, runner, executor, splits, chat, policy)


def train_sft(run: Run) -> Policy:
  """Warm start on example plans; goes on from its checkpoints if there are any.

  Returns:
    The policy after the last step; with sft.steps=0, the one that the run began with.
  """
  config, sft, chat = run.config, run.config.sft, run.chat
  if not sft.steps:
    return run.policy

  def examples(task: Task, generator: np.random.Generator) -> Examples:
    return Examples(
        chat.prompt(task), [chat.example_tokens(task, generator) for _ in range(sft.plans)])

  cursor = iter(
      grain.MapDataset.source(run.splits.train).seed(config.seed).shuffle().repeat()
      .random_map(examples).batch(sft.prompts, batch_fn=list).to_iter_dataset())
  step, state = sft_step(config, run.policy)
  checkpoints = run.checkpoints("sft")
  start, state, _ = _resume(run, "warm start", checkpoints, state, cursor)
  phase = Phase(
      name="sft", steps=sft.steps,
      batch=lambda step: (pack_examples(next(cursor), pad=chat.tokenizer.eos_token_id), {}),
      update=step,
      record=lambda: {"cursor": cursor.get_state(), "seconds": run.clock.seconds()},
      publish=lambda params, version: None,
      throughput=_throughput(run, reference=False),
      checkpoint_every=sft.checkpoint_every)
  state = _train(run, "warm start", phase, state, start, checkpoints, lines_every=25)
  return replace(run.policy, trained=state.params)


def train_grpo(
    run: Run, start_policy: Policy, conductor: Conductor,
    publish: Callable[[Params, int], None], baselines: Callable[[], dict[str, Any]]
) -> tuple[TrainState, dict[str, Any]]:
  """GRPO from the warm-started policy; goes on from its checkpoints if there are any.

  Args:
    run: what to train.
    start_policy: to start from, and the KL term's reference.
    conductor: samples plans and runs them.
    publish: takes new parameters, those that are trained, to the sampler.
    baselines: measures what the end is compared with; asked once, before the first iteration.

  Returns:
    The state after the last iteration, and the baselines.
  """
  config, grpo = run.config, run.config.grpo
  cursor = iter(
      grain.MapDataset.source(run.splits.train).seed(config.seed + 1).shuffle().repeat()
      .batch(grpo.prompts, batch_fn=list).to_iter_dataset())
  reference = start_policy.trained if grpo.kl_coefficient else None
  # The step gives its own arrays away at every turn; the reference must outlive them.
  begin = (start_policy if reference is None else replace(
      start_policy, trained=jax.tree.map(jnp.copy, reference)))
  step, state = grpo_step(config, begin, reference)
  checkpoints = run.checkpoints("grpo")
  start, state, record = _resume(run, "GRPO", checkpoints, state, cursor)
  measured = record["baselines"] if start else baselines()
  publish(state.params, start)
  worker_names = [worker.name for worker in run.executor.pool.workers]
  log = RolloutLog(run.workdir)

  def batch(iteration: int) -> tuple[GroupedBatch, dict[str, float]]:
    tasks, seeds = next(cursor), _rollout_seeds(config, iteration)
    began = time.perf_counter()
    completions = conductor.sample(tasks, seeds)
    sampled = time.perf_counter()
    rollouts = run.runner.run(conductor.execute(tasks, completions, seeds))
    executed = time.perf_counter()
    _refuse_without_rewards(rollouts, iteration)
    if iteration % config.report.rollouts_every == 0 or iteration + 1 == grpo.iterations:
      log.write(iteration, [rollout.to_json() for group in rollouts for rollout in group])
    groups = [_group(group) for group in rollouts]
    if grpo.drop_zero_variance:
      groups = [drop_zero_variance(group) for group in groups]
    advantages = [group_advantages(g.rewards, g.accepted, grpo.advantage) for g in groups]
    packed = pack(
        groups, advantages, pad=run.chat.tokenizer.eos_token_id,
        samples_per_row=grpo.samples_per_row)
    return packed, {
        **rollout_metrics(rollouts, worker_names), "padding_share": padding_share(packed),
        "seconds_sampling": sampled - began, "seconds_executing": executed - sampled}

  phase = Phase(
      name="grpo", steps=grpo.iterations, batch=batch, publish=publish, update=step,
      throughput=_throughput(run, reference=reference is not None),
      record=lambda: {
          "cursor": cursor.get_state(), "seconds": run.clock.seconds(), "baselines": measured},
      checkpoint_every=config.checkpoint.every)
  return _train(run, "GRPO", phase, state, start, checkpoints, lines_every=1), measured


def _throughput(
    run: Run, *, reference: bool) -> Callable[[GroupedBatch, float], dict[str, float]]:
  """(batch, seconds) → how fast the run's step is."""
  policy = run.policy
  return partial(
      throughput, policy.shape, devices=policy.mesh.size,
      device_kind=policy.mesh.devices.flat[0].device_kind,
      adapter_weights=policy.adapter_weights, reference=reference)


def _resume(
    run: Run, name: str, checkpoints: Checkpoints, state: TrainState, cursor
) -> tuple[int, TrainState, dict[str, Any]]:
  """The step, state and record to go on from; a fresh start where there is no checkpoint."""
  if checkpoints.newest() is None:
    return 0, state, {}
  like = jax.tree.map(to_shape_dtype_struct, state)
  # Two states at once may be more than the devices hold.
  jax.tree.map(lambda x: x.delete(), state)
  step, state, record = checkpoints.restore(like)
  cursor.set_state(record["cursor"])
  run.clock.resume(record["seconds"])
  run.terminal.print(f"{name}: resuming after step {step} from {checkpoints.folder / str(step)}")
  return step, state, record


def _train(
    run: Run, name: str, phase: Phase, state: TrainState, start: int, checkpoints: Checkpoints, *,
    lines_every: int
) -> TrainState:
  """Does what is left of a phase, recorded and shown; closes the checkpoints."""
  if start < phase.steps:
    # What the other phase has recorded stays.
    resume_at = {"sft": run.config.sft.steps, "grpo": run.config.grpo.iterations}
    resume_at[phase.name] = start
    with MetricsWriter(run.workdir, resume_at=resume_at) as writer, \
        run.terminal.phase(name, start=start, total=phase.steps, every=lines_every) as bar:

      def record(step: int, values: Mapping[str, float]) -> None:
        writer.write(phase.name, step, values)
        bar.advance(step, values)

      state = train_phase(
          phase, state, start=start, checkpoints=checkpoints, write=record, stop=run.stop)
  checkpoints.close()
  return state


def _rollout_seeds(config: ConfigDict, iteration: int) -> np.ndarray:
  shape = (config.grpo.prompts, config.grpo.group_size)
  sequence = np.random.SeedSequence([config.seed, _ROLLOUT_SEEDS, iteration])
  return sequence.generate_state(shape[0] * shape[1]).reshape(shape)


def _group(rollouts: list[Rollout]) -> Group:
  return Group(
      prompt_tokens=rollouts[0].prompt_tokens,
      completion_tokens=[rollout.completion_tokens for rollout in rollouts],
      sampler_logprobs=[rollout.sampler_logprobs for rollout in rollouts],
      rewards=np.array([rollout.reward or 0.0 for rollout in rollouts]),
      accepted=np.array([rollout.reward is not None for rollout in rollouts]))


def _refuse_without_rewards(groups: list[list[Rollout]], iteration: int) -> None:
  """Stops a run whose workers are all out of reach, before it trains on nothing."""
  rollouts = [rollout for group in groups for rollout in group]
  if any(rollout.reward is not None for rollout in rollouts):
    return
  faults = [call.error for rollout in rollouts if rollout.transcript
            for call in rollout.transcript.calls if call.outcome == "unavailable"]
  raise UserError(
      f"iteration {iteration + 1}: every rollout was rejected, the last because "
      f"{faults[-1] if faults else 'its grader failed'}: mend it, then run the same command to go "
      "on from the last checkpoint")
