import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conductor_jax.errors import OutOfBudget, UserError
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
    return (step,), {"asked": float(step)}

  def update(state, batch):
    skipped = 0 if finite(batch) else int(state.skipped) + 1
    return state_of(batch, state.step + 1, skipped), {
        "loss": np.float32(batch), "skipped": np.float32(not finite(batch))}

  return Phase(
      name="sft", steps=steps, batch=batch, update=update,
      throughput=lambda batches, seconds: {"speed": (sum(batches) + 1) / seconds},
      record=lambda: {"cursor": len(read)},
      publish=lambda params, version: published.append((params["w"], version))
      if published is not None else None,
      checkpoint_every=2)


def state_of(value, step, skipped):
  return TrainState({"w": value}, None, np.int32(step), np.int32(skipped), np.float32(0))


def fresh():
  return state_of(-1, 0, 0)


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


def test_a_run_asked_to_stop_begins_no_rollouts_with_new_weights(tmp_path):
  published, asked = [], []
  with pytest.raises(Interrupted):
    train_phase(
        counting_phase(9, published=published), fresh(), start=0, checkpoints=Kept(tmp_path),
        write=lambda step, values: None, stop=lambda: asked.append(0) or len(asked) > 2)
  # Asked twice a step, before and after: the first step is published, the second is not.
  assert published == [(0, 1)]
  # The last weights are, for they are measured.
  published.clear()
  train_phase(
      counting_phase(1, published=published), fresh(), start=0, checkpoints=Kept(tmp_path),
      write=lambda step, values: None, stop=lambda: True)
  assert published == [(0, 1)]


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


@pytest.mark.parametrize(("spent_at", "saved"), [(0, []), (3, [2, 3]), (4, [2, 4])])
def test_a_batch_that_cannot_be_paid_leaves_the_state_before_it_in_a_checkpoint(
    tmp_path, spent_at, saved):
  phase, kept = counting_phase(9), Kept(tmp_path)

  def batch(step):
    if step == spent_at:
      raise OutOfBudget("all is spent")
    return phase.batch(step)

  with pytest.raises(OutOfBudget, match="all is spent"):
    train_phase(replace(phase, batch=batch), fresh(), start=0, checkpoints=kept,
                write=lambda step, values: None, stop=lambda: False)
  assert list(kept.saved) == saved
  assert all(step == number for number, (step, _) in kept.saved.items())


def test_two_are_survived_and_recorded(tmp_path):
  skipped = {}
  state = train_phase(
      counting_phase(9, finite=lambda step: step not in (3, 4, 6, 7)), fresh(), start=0,
      checkpoints=Kept(tmp_path),
      write=lambda step, values: skipped.update({step: values["skipped"]}), stop=lambda: False)
  assert int(state.step) == 9
  assert [step for step, value in skipped.items() if value] == [3, 4, 6, 7]


def test_the_speed_is_that_of_the_update_without_the_time_that_its_batch_took(tmp_path):
  phase = counting_phase(2)

  def slow(step):
    time.sleep(0.05)
    return phase.batch(step)

  written = []
  train_phase(replace(phase, batch=slow), fresh(), start=0, checkpoints=Kept(tmp_path),
              write=lambda step, values: written.append(values), stop=lambda: False)
  for step, values in enumerate(written):
    assert values["seconds"] - values["seconds_training"] >= 0.05
    assert values["speed"] * values["seconds_training"] == pytest.approx(step + 1)


def test_an_update_and_its_speed_are_of_all_batches_of_a_step(tmp_path):
  phase, updated, written = counting_phase(2), [], []

  def update(state, batch, later):
    updated.append((batch, later))
    return phase.update(state, batch)

  train_phase(
      replace(phase, update=update, batch=lambda step: ((step, 10 * step + 5), {})), fresh(),
      start=0, checkpoints=Kept(tmp_path), write=lambda step, values: written.append(values),
      stop=lambda: False)
  assert updated == [(0, 5), (1, 15)]
  assert [values["speed"] * values["seconds_training"] for values in written] == [
      pytest.approx(0 + 5 + 1), pytest.approx(1 + 15 + 1)]


def test_a_batch_that_moves_an_array_unasked_is_refused_and_a_checkpoint_may(tmp_path):
  def move(*_):
    return jax.jit(jnp.sin)(np.ones(3)).sum()

  phase = counting_phase(2)
  with pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed host-to-device transfer"):
    train_phase(replace(phase, batch=move), fresh(), start=0, checkpoints=Kept(tmp_path),
                write=lambda step, values: None, stop=lambda: False)

  def spent(step):
    if step:
      raise OutOfBudget("all is spent")
    return phase.batch(step)

  kept = Kept(tmp_path)
  kept.save = move
  with pytest.raises(OutOfBudget):
    train_phase(replace(phase, batch=spent), fresh(), start=0, checkpoints=kept,
                write=lambda step, values: None, stop=lambda: False)


def test_an_update_that_moves_an_array_unasked_is_refused(tmp_path):
  def update(state, batch):
    return state, {"loss": jax.jit(jnp.sin)(np.ones(3)).sum()}

  with pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed host-to-device transfer"):
    train_phase(replace(counting_phase(1), update=update), fresh(), start=0,
                checkpoints=Kept(tmp_path), write=lambda step, values: None, stop=lambda: False)
