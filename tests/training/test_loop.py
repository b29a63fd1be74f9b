from dataclasses import replace

import jax.numpy as jnp
import pytest

from conductor_jax.errors import UserError
from conductor_jax.training.loop import Interrupted, Phase, train_phase
from conductor_jax.training.step import TrainState


class Kept:
  """Stands in for checkpoints on disk: remembers what was saved."""

  def __init__(self, folder):
    self.folder, self.saved = folder, {}

  def save(self, step, state, record):
    self.saved[step] = (int(state.step), dict(record))

  def newest(self):
    return max(self.saved, default=None)


def counting_phase(steps, *, finite=lambda step: True, published=None):
  read = []

  def batch(step):
    read.append(step)
    return step, {"asked": float(step)}

  def update(state, reference, batch):
    skipped = 0 if finite(batch) else int(state.skipped) + 1
    return TrainState({"w": batch}, None, state.step + 1, jnp.int32(skipped)), {
        "loss": jnp.float32(batch)}

  return Phase(
      name="sft", steps=steps, batch=batch, update=update, reference=None,
      record=lambda: {"cursor": len(read)},
      publish=lambda params, version: published.append((params["w"], version))
      if published is not None else None,
      checkpoint_every=2)


def fresh():
  return TrainState({"w": -1}, None, jnp.int32(0), jnp.int32(0))


def test_every_step_is_published_written_and_checkpointed_when_due(tmp_path):
  kept, written, published = Kept(tmp_path), [], []
  state = train_phase(
      counting_phase(5, published=published), fresh(), start=0, checkpoints=kept,
      write=lambda step, values: written.append((step, values["asked"], values["loss"])),
      stop=lambda: False)
  assert int(state.step) == 5
  assert written == [(i, float(i), float(i)) for i in range(5)]
  assert published == [(i, i + 1) for i in range(5)]
  # The last step has a checkpoint though it is not due; each record is that of its own step.
  assert kept.saved == {2: (2, {"cursor": 2}), 4: (4, {"cursor": 4}), 5: (5, {"cursor": 5})}


def test_a_resumed_phase_does_the_rest_only(tmp_path):
  written = []
  train_phase(counting_phase(5), fresh(), start=3, checkpoints=Kept(tmp_path),
              write=lambda step, values: written.append(step), stop=lambda: False)
  assert written == [3, 4]


def test_a_run_asked_to_stop_saves_the_step_it_is_at(tmp_path):
  kept, written = Kept(tmp_path), []
  with pytest.raises(Interrupted, match="sft stopped after step 3 of 9"):
    train_phase(counting_phase(9), fresh(), start=0, checkpoints=kept,
                write=lambda step, values: written.append(step), stop=lambda: len(written) == 3)
  assert kept.newest() == 3


def test_three_steps_in_a_row_without_a_finite_gradient_stop_the_run(tmp_path):
  kept, written = Kept(tmp_path), []
  with pytest.raises(UserError) as fault:
    train_phase(counting_phase(9, finite=lambda step: step < 3), fresh(), start=0,
                checkpoints=kept, write=lambda step, values: written.append(step),
                stop=lambda: False)
  assert written == [0, 1, 2, 3, 4, 5]
  assert f"up to step 6; the last good checkpoint is {tmp_path / '4'}" in str(fault.value)


def test_a_run_that_was_never_finite_says_that_there_is_no_checkpoint(tmp_path):
  phase = replace(counting_phase(9, finite=lambda step: False), checkpoint_every=5)
  with pytest.raises(UserError, match="up to step 3; there is no checkpoint yet: lower the"):
    train_phase(phase, fresh(), start=0, checkpoints=Kept(tmp_path),
                write=lambda step, values: None, stop=lambda: False)


def test_two_are_survived(tmp_path):
  state = train_phase(
      counting_phase(9, finite=lambda step: step not in (3, 4, 6, 7)), fresh(), start=0,
      checkpoints=Kept(tmp_path), write=lambda step, values: None, stop=lambda: False)
  assert int(state.step) == 9
