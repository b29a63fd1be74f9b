"""Checkpoints: everything a run needs to go on as if it had never stopped."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from conductor_jax.errors import UserError
from conductor_jax.training.step import TrainState


@jax.jit
def _fingerprints(state: TrainState) -> jax.Array:
  """The sum of each array's bit patterns, uint32[arrays]: one changed value changes its sum."""
  def total(x):
    unsigned = jnp.dtype(f"uint{8 * x.dtype.itemsize}")
    return jax.lax.bitcast_convert_type(x, unsigned).astype(jnp.uint32).sum(dtype=jnp.uint32)

  return jnp.stack([total(leaf) for leaf in jax.tree.leaves(state)])


class Checkpoints:
  """The checkpoints of one phase of a run, written by orbax.

  A checkpoint appears under its final name only when it is complete. It holds the train state and a
  JSON record: the data cursor and whatever else the run wants back.
  """

  def __init__(self, folder: Path, *, keep: int, say: Callable[[str], None]):
    """Opens or makes the folder.

    Args:
      folder: absolute path.
      keep: how many are kept, the newest.
      say: told, in one line, of a checkpoint that cannot be read.
    """
    self.folder = folder
    self._say = say
    self._manager = ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(
        max_to_keep=keep, create=True, enable_async_checkpointing=False))

  def save(self, step: int, state: TrainState, record: Mapping[str, Any]) -> None:
    """Writes a checkpoint of the state after `step` steps, unless there is one already."""
    if step in self._manager.all_steps():
      return
    fingerprints = np.asarray(_fingerprints(state)).tolist()
    self._manager.save(step, args=ocp.args.Composite(
        state=ocp.args.StandardSave(state),
        record=ocp.args.JsonSave({**record, "fingerprints": fingerprints})))

  def newest(self) -> int | None:
    """The newest checkpoint's step, readable or not; None if there is none."""
    return self._manager.latest_step()

  def restore(self, like: TrainState) -> tuple[int, TrainState, dict[str, Any]] | None:
    """Reads the newest checkpoint that can be read.

    One that cannot is reported and moved out of the way, beside the folder.

    Args:
      like: a state of the same shapes, dtypes and shardings.

    Returns:
      Its step, state and record; None if there are no checkpoints.

    Raises:
      UserError: there are checkpoints, and none can be read. They are left as they are.
    """
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
    steps = sorted(self._manager.all_steps(), reverse=True)
    corrupt = []
    for step in steps:
      try:
        state, record = self._read(step, abstract)
      except Exception as fault:  # whatever a damaged file makes the reader raise
        reason = str(fault).strip().splitlines()[0][:200] if str(fault).strip() else type(fault)
        corrupt.append(step)
        self._say(f"checkpoint {self.folder / str(step)} is corrupt ({reason}): "
                  "falling back to the one before")
        continue
      if jax.process_index() == 0:
        for broken in corrupt:
          aside = self.folder.with_name(f"{self.folder.name}-{broken}.corrupt")
          (self.folder / str(broken)).rename(aside)
      multihost_utils.sync_global_devices(f"corrupt checkpoints of {self.folder.name} set aside")
      self._manager.reload()
      return step, state, record
    if steps:
      raise UserError(
          f"none of the checkpoints in {self.folder} can be read: restore one from a copy, or "
          "remove the folder to train this phase from its start")
    return None

  def _read(self, step, abstract):
    read = self._manager.restore(step, args=ocp.args.Composite(
        state=ocp.args.StandardRestore(abstract), record=ocp.args.JsonRestore()))
    record = dict(read.record)
    if np.asarray(_fingerprints(read.state)).tolist() != record.pop("fingerprints"):
      raise ValueError("its arrays do not match their fingerprints")
    return read.state, record

  def close(self) -> None:
    self._manager.close()
