"""The training loop: one page for every phase, warm start and GRPO alike."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from conductor_jax.errors import OutOfBudget, UserError
from conductor_jax.training.batch import Batches
from conductor_jax.training.checkpoint import Checkpoints
from conductor_jax.training.logprobs import Params
from conductor_jax.training.step import TrainState

# Steps in a row without a finite gradient after which a run stops.
MAX_SKIPPED = 3


class Interrupted(Exception):
  """The run was asked to stop, and has: its checkpoint is written."""


@dataclass(frozen=True)
class Phase:
  """One phase of a run.

  Attributes:
    name: "sft" or "grpo".
    steps: how many.
    batch: step → what is trained on next, and what is to be reported about it.
    update: (state, *batches) → (state, measurements).
    throughput: (batches, seconds that the update took) → what is to be reported of its speed.
    record: what a checkpoint holds beside the state, the data cursor among it; JSON types.
    publish: told the new parameters and their version, the number of steps taken.
    checkpoint_every: steps from one checkpoint to the next; the last step always has one.
  """

  name: str
  steps: int
  batch: Callable[[int], tuple[Batches, Mapping[str, float]]]
  update: Callable[..., tuple[TrainState, dict[str, jax.Array]]]
  throughput: Callable[[Batches, float], Mapping[str, float]]
  record: Callable[[], Mapping[str, Any]]
  publish: Callable[[Params, int], None]
  checkpoint_every: int


def train_phase(
    phase: Phase, state: TrainState, *, start: int, checkpoints: Checkpoints,
    write: Callable[[int, Mapping[str, float]], None], stop: Callable[[], bool]
) -> TrainState:
  """Trains one phase to its end.

  Args:
    phase: what to do.
    state: after `start` steps.
    start: steps taken before.
    checkpoints: where states are kept.
    write: told each step's number and values.
    stop: asked after every step whether to end here.

  Returns:
    The last state.

  Raises:
    Interrupted: `stop` said so. The state is in a checkpoint.
    OutOfBudget: a batch cannot be paid for. The state before it is in a checkpoint, and with its
      record what was collected of the batch begins anew.
    UserError: too many steps in a row without a finite gradient.
  """
  for step in range(start, phase.steps):
    try:
      # What goes to the devices and comes back does so by name: an array that strays costs a wait.
      with jax.transfer_guard("disallow"):
        began = time.perf_counter()
        batches, values = phase.batch(step)
        collected = time.perf_counter()
        state, measurements = phase.update(state, *batches)
        measured, skipped = jax.device_get((measurements, state.skipped))
        trained = time.perf_counter()
        # New weights begin new rollouts, which a run that ends here would pay for in vain.
        if step + 1 == phase.steps or not stop():
          phase.publish(state.params, step + 1)
    except OutOfBudget:
      if step:
        checkpoints.save(step, state, phase.record())
      raise
    ended = time.perf_counter()
    training = trained - collected
    write(step, {
        **values, **{name: float(value) for name, value in measured.items()},
        **phase.throughput(batches, training),
        "seconds_training": training, "seconds_publishing": ended - trained,
        "seconds": ended - began})
    if skipped >= MAX_SKIPPED:
      newest = checkpoints.newest()
      last = ("there is no checkpoint yet" if newest is None
              else f"the last good checkpoint is {checkpoints.folder / str(newest)}")
      raise UserError(
          f"{phase.name}: no finite gradient in {MAX_SKIPPED} steps in a row, up to step {step + 1}"
          f"; {last}: lower the learning rate and train again")
    stopping = stop()
    if stopping or (step + 1) % phase.checkpoint_every == 0 or step + 1 == phase.steps:
      checkpoints.save(step + 1, state, phase.record())
    if stopping and step + 1 < phase.steps:
      raise Interrupted(f"{phase.name} stopped after step {step + 1} of {phase.steps}")
  return state
