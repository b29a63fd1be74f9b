"""The two phases of a run, put together from a config: the warm start, then GRPO."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh
from ml_collections import ConfigDict

from conductor_jax.errors import UserError
from conductor_jax.reporting.metrics import MetricsWriter, RolloutLog
from conductor_jax.reporting.progress import Terminal
from conductor_jax.rollouts import Conductor, Rollout, rollout_metrics
from conductor_jax.tasks.task import Task
from conductor_jax.training.advantages import drop_zero_variance, group_advantages
from conductor_jax.training.batch import Group, GroupedBatch, pack, padding_share
from conductor_jax.training.checkpoint import Checkpoints
from conductor_jax.training.grpo import grpo_loss
from conductor_jax.training.logprobs import TokenStatistics, batch_statistics
from conductor_jax.training.loop import Phase, train_phase
from conductor_jax.training.sft import Examples, likelihood_loss, pack_examples
from conductor_jax.training.step import TrainState, initial_state, make_optimizer, make_step
from conductor_jax.workflows.executor import Executor
from experiments.components import Chat, Splits, build_model, load_splits, open_executor
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
  mesh: Mesh
  graph: nnx.GraphDef
  params: dict[str, Any]

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
  clock, terminal, stop = Clock(), Terminal(), StopSignals()
  check_claim(workdir, config)
  splits = load_splits(config)
  with open_executor(config) as (runner, executor):
    chat = Chat(config, splits, len(executor.pool))
    splits, left_out = chat.fitting(splits)
    mesh, graph, params = build_model(config)
    again = claim(workdir, config)
    size = sum(leaf.size for leaf in jax.tree.leaves(params)) / 1e6
    terminal.print(
        f"{workdir}: {'going on with' if again else 'starting'} a run of {size:.2f} M parameters "
        f"on {jax.device_count()} {jax.default_backend()} device(s), {len(splits.train)} training "
        f"and {len(splits.heldout)} held-out tasks"
        + (f" ({left_out} left out, their prompts are too long)" if left_out else "")
        + f", {len(executor.pool)} workers")
    yield Run(config, workdir, clock, terminal, stop, runner, executor, splits, chat, mesh, graph,
              params)


def train_sft(run: Run) -> TrainState:
  """Warm start on example plans; goes on from its checkpoints if there are any.

  Returns:
    The state after the last step.
  """
  config, sft, chat = run.config, run.config.sft, run.chat

  def examples(task: Task, generator: np.random.Generator) -> Examples:
    return Examples(
        chat.prompt(task), [chat.example_tokens(task, generator) for _ in range(sft.plans)])

  cursor = iter(
      grain.MapDataset.source(run.splits.train).seed(config.seed).shuffle().repeat()
      .random_map(examples).batch(sft.prompts, batch_fn=list).to_iter_dataset())
  optimizer, schedule = make_optimizer(
      learning_rate=sft.learning_rate, steps=sft.steps, warmup_fraction=sft.warmup_fraction,
      decay=sft.decay, b1=config.optimizer.b1, b2=config.optimizer.b2,
      weight_decay=config.optimizer.weight_decay, clip_norm=config.optimizer.clip_norm)
  state = initial_state(run.mesh, run.params, optimizer)

  def loss(statistics, batch, counts, state):
    del state
    return likelihood_loss(statistics, batch, counts)

  checkpoints = run.checkpoints("sft")
  start, state, _ = _resume(run, "warm start", checkpoints, state, cursor)
  phase = Phase(
      name="sft", steps=sft.steps, reference=None,
      batch=lambda step: (pack_examples(next(cursor), pad=chat.tokenizer.eos_token_id), {}),
      update=make_step(
          loss, _statistics(run, temperature=1.0), optimizer, schedule, run.mesh, state),
      record=lambda: {"cursor": cursor.get_state(), "seconds": run.clock.seconds()},
      publish=lambda params, version: None,
      checkpoint_every=sft.checkpoint_every)
  return _train(run, "warm start", phase, state, start, checkpoints, lines_every=25)


def train_grpo(
    run: Run, reference: dict[str, Any], conductor: Conductor,
    publish: Callable[[Any, int], None], baselines: Callable[[], dict[str, Any]]
) -> tuple[TrainState, dict[str, Any]]:
  """GRPO from the warm-started policy; goes on from its checkpoints if there are any.

  Args:
    run: what to train.
    reference: parameters to start from, and those of the KL term's reference.
    conductor: samples plans and runs them.
    publish: takes new parameters to the sampler.
    baselines: measures what the end is compared with; asked once, before the first iteration.

  Returns:
    The state after the last iteration, and the baselines.
  """
  config, grpo = run.config, run.config.grpo
  cursor = iter(
      grain.MapDataset.source(run.splits.train).seed(config.seed + 1).shuffle().repeat()
      .batch(grpo.prompts, batch_fn=list).to_iter_dataset())
  optimizer, schedule = make_optimizer(steps=grpo.iterations, **config.optimizer.to_dict())
  state = initial_state(run.mesh, jax.tree.map(jnp.copy, reference), optimizer)
  kl_coefficient = optax.linear_schedule(
      grpo.kl_coefficient, grpo.kl_coefficient * grpo.kl_final_fraction, grpo.iterations)

  def loss(statistics, batch, counts, state):
    return grpo_loss(
        statistics, batch, counts, aggregation=grpo.aggregation,
        max_tokens=config.rollout.max_completion_tokens, ratio=grpo.ratio,
        clip_low=grpo.clip_low, clip_high=grpo.clip_high, dual_clip=grpo.dual_clip,
        importance_cap=grpo.importance_cap, kl_estimator=grpo.kl_estimator,
        kl_coefficient=kl_coefficient(state.step),
        entropy_coefficient=(
            state.entropy_coefficient if grpo.entropy_target
            else grpo.entropy_coefficient or None))

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
      name="grpo", steps=grpo.iterations, batch=batch, publish=publish,
      update=make_step(
          loss, _statistics(run, temperature=config.rollout.temperature), optimizer, schedule,
          run.mesh, state),
      reference=reference if grpo.kl_coefficient else None,
      record=lambda: {
          "cursor": cursor.get_state(), "seconds": run.clock.seconds(), "baselines": measured},
      checkpoint_every=config.checkpoint.every)
  return _train(run, "GRPO", phase, state, start, checkpoints, lines_every=1), measured


def _statistics(run: Run, *, temperature: float) -> Callable[..., TokenStatistics]:
  """(params, reference, batch) → what the run's model says of the batch."""
  def statistics(params, reference, batch):
    return batch_statistics(
        run.graph, params, batch, temperature=temperature, chunk=run.config.model.logprob_chunk,
        reference=reference)

  return statistics


def _resume(
    run: Run, name: str, checkpoints: Checkpoints, state: TrainState, cursor
) -> tuple[int, TrainState, dict[str, Any]]:
  """The step, state and record to go on from; a fresh start where there is no checkpoint."""
  found = checkpoints.restore(state)
  if found is None:
    return 0, state, {}
  step, state, record = found
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
