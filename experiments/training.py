"""The two phases of a run, put together from a config: the warm start, then GRPO."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from orbax.checkpoint.utils import to_shape_dtype_struct

from conductor_jax.collapse import CollapseGuard
from conductor_jax.reporting.metrics import MetricsWriter, read_metrics
from conductor_jax.reporting.progress import CallRates
from conductor_jax.rollouts import Conductor
from conductor_jax.sampling.sampler import Sampler
from conductor_jax.tasks.pipeline import task_order
from conductor_jax.tasks.task import Task
from conductor_jax.training.batch import Batches
from conductor_jax.training.checkpoint import Checkpoints
from conductor_jax.training.flops import throughput
from conductor_jax.training.loop import Phase, train_phase
from conductor_jax.training.sft import Examples, pack_examples
from conductor_jax.training.step import TrainState
from experiments.policy import Policy
from experiments.rollouts import Rollouts
from experiments.run import Run
from experiments.steps import grpo_step, sft_step


def train_sft(run: Run) -> Policy:
  """Warm start on example plans; goes on from its checkpoints if there are any.

  Returns:
    The policy after the last step; with sft.steps=0, the one that the run began with.
  """
  config, sft, chat = run.config, run.config.sft, run.chat
  if not sft.steps:
    return run.policy

  def examples(task: Task, generator: np.random.Generator) -> Examples:
    return chat.examples(task, generator, sft.plans)

  cursor = iter(
      task_order(run.splits.train, config.seed, balanced=config.tasks.balanced)
      .random_map(examples).batch(sft.prompts, batch_fn=list).to_iter_dataset())
  step, state = sft_step(config, run.policy)
  checkpoints = run.checkpoints("sft")
  start, state, record = _resume(run, "warm start", checkpoints, state)
  if start:
    cursor.set_state(record["cursor"])
  phase = Phase(
      name="sft", steps=sft.steps,
      batch=lambda step: ((pack_examples(next(cursor), pad=chat.tokenizer.eos_token_id),), {}),
      update=step,
      record=lambda: {"cursor": cursor.get_state(), "seconds": run.clock.seconds()},
      publish=lambda params, version: None,
      throughput=_throughput(run, reference=False),
      checkpoint_every=sft.checkpoint_every)
  state = _train(run, "warm start", phase, state, start, checkpoints, lines_every=25)
  return replace(run.policy, trained=state.params)


def train_grpo(
    run: Run, start_policy: Policy, conductor: Conductor, sampler: Sampler,
    baselines: Callable[[], dict[str, Any]]
) -> tuple[TrainState, dict[str, Any]]:
  """GRPO from the warm-started policy; goes on from its checkpoints if there are any.

  Args:
    run: what to train.
    start_policy: to start from, and the KL term's reference.
    conductor: samples plans and runs them.
    sampler: the conductor's, which is given all new weights.
    baselines: measures what the end is compared with; asked once, before the first iteration.

  Returns:
    The state after the last iteration, with whose weights the sampler is left, and the baselines.
  """
  config, grpo = run.config, run.config.grpo
  reference = start_policy.trained if grpo.kl_coefficient else None
  # The step gives its own arrays away at every turn; the reference must outlive them.
  begin = (start_policy if reference is None else replace(
      start_policy, trained=jax.tree.map(jnp.copy, reference)))
  step, state = grpo_step(config, begin, reference)
  checkpoints = run.checkpoints("grpo")
  start, state, record = _resume(run, "GRPO", checkpoints, state)
  sampler.stage(start_policy.whole(state.params), start)
  run.portal.call(sampler.load)
  measured = record["baselines"] if start else baselines()
  rollouts = Rollouts(run, start_policy, conductor, sampler)
  with contextlib.closing(rollouts):
    rollouts.start(start, record.get("rollouts", {}))
    phase = Phase(
        name="grpo", steps=grpo.iterations, batch=rollouts.batch, publish=rollouts.publish,
        update=step, throughput=_throughput(run, reference=reference is not None),
        record=lambda: {
            "rollouts": rollouts.record(), "seconds": run.clock.seconds(), "baselines": measured},
        checkpoint_every=config.checkpoint.every)
    state = _train(run, "GRPO", phase, state, start, checkpoints, lines_every=1)
    rollouts.wait_for_weights()
  return state, measured


def _throughput(
    run: Run, *, reference: bool) -> Callable[[Batches, float], dict[str, float]]:
  """(batches, seconds) → how fast the run's step is."""
  policy = run.policy
  return partial(
      throughput, policy.shape, devices=policy.mesh.size,
      device_kind=policy.mesh.devices.flat[0].device_kind,
      adapter_weights=policy.adapter_weights, reference=reference)


def _resume(
    run: Run, name: str, checkpoints: Checkpoints, state: TrainState
) -> tuple[int, TrainState, dict[str, Any]]:
  """The step, state and record to go on from; a fresh start where there is no checkpoint."""
  if checkpoints.newest() is None:
    return 0, state, {}
  like = jax.tree.map(to_shape_dtype_struct, state)
  # Two states at once may be more than the devices hold.
  jax.tree.map(lambda x: x.delete(), state)
  step, state, record = checkpoints.restore(like)
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
        run.terminal.phase(
            name, start=start, total=phase.steps, every=lines_every,
            live=CallRates(run.client.activity) if phase.name == "grpo" else lambda: "") as bar:
      guard = _collapse_guard(run)

      def record(step: int, values: Mapping[str, float]) -> None:
        warnings = []
        if phase.name == "grpo":
          warnings = guard.observe(values)
          values = {**values, "collapsed": guard.collapsed}
        writer.write(phase.name, step, values)
        bar.advance(step, values)
        for warning in warnings:
          run.terminal.print(warning)

      state = train_phase(
          phase, state, start=start, checkpoints=checkpoints, write=record, stop=run.stop)
  checkpoints.close()
  return state


def _collapse_guard(run: Run) -> CollapseGuard:
  """A guard that has seen the iterations that are recorded."""
  guard = CollapseGuard(**run.config.report.collapse)
  for record in read_metrics(run.workdir / "metrics.jsonl"):
    if record["phase"] == "grpo":
      guard.observe(record)
  return guard
