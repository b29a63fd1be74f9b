"""Versions of the weights as folders that a vLLM server loads, each under a name of its own."""

import fcntl
import shutil
import socket
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

import jax
import numpy as np
from transformers import PreTrainedTokenizerBase

from conductor_jax.errors import UserError
from conductor_jax.models.hf import write_weights
from conductor_jax.models.hf_config import write_config
from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.models.safetensors_writer import DTYPES
from conductor_jax.models.shapes import parameter_count
from conductor_jax.models.whole_folder import written_whole
from conductor_jax.sampling.probe import Probe

# Of a file; the next tensors are held beside what is being written, and no more.
SHARD_BYTES = 256_000_000
# Held locked by the run that a folder belongs to.
_LOCK = "lock"


@dataclass(frozen=True)
class Weights:
  """One version of the weights.

  Attributes:
    folder: a Hugging Face checkpoint with its tokenizer.
    version: its number.
    logprobs: float32[tokens - 1], what the trainer says of the probe's tokens.
  """

  folder: Path
  version: int
  logprobs: np.ndarray = field(repr=False)

  @property
  def name(self) -> str:
    """What servers call the version: no other run's, and no other staging's of this one."""
    return f"{self.folder.parent.name}/{self.folder.name}"


class WeightFolder:
  """The folder of one run.

  It goes with `close`. What a run that was killed has left is removed by the next one on the host.

  Args:
    root: to make it in: a memory file system, or one that all servers share.
    config: the model's shape.
    dtype: of the files.
    tokenizer: written beside the weights.
    probe: asked about every version.

  Raises:
    UserError: the root is not there, cannot be written, or has no room for two versions.
  """

  def __init__(
      self, root: Path, config: Qwen2Config, dtype: str, *, tokenizer: PreTrainedTokenizerBase,
      probe: Probe):
    self.probe, self.dtype = probe, dtype
    # On a CPU vLLM packs a tied head when it starts, and keeps that when weights are reloaded.
    self._config = config = replace(config, tied=False)
    self._staged: list[Path] = []
    self._names: set[str] = set()
    host = f"conductor-{socket.gethostname()}"
    _check_room(root, 2 * parameter_count(config) * DTYPES[dtype][1].itemsize)
    _remove_abandoned(root, host)
    self.folder = root / f"{host}-{uuid.uuid4().hex[:12]}"
    # Until it is locked it must not look like one that a run has left.
    early = self.folder.with_name(f".{self.folder.name}")
    try:
      early.mkdir()
      self._lock = (early / _LOCK).open("w")
      fcntl.flock(self._lock, fcntl.LOCK_EX)
      early.rename(self.folder)
      # They are the same in all versions, and a large vocabulary takes a while to write.
      self._common = self.folder / "common"
      self._common.mkdir()
      tokenizer.save_pretrained(self._common)
      write_config(self._common / "config.json", config, dtype, tokenizer.eos_token_id)
    except OSError as fault:
      raise UserError(f"{root} cannot be written ({fault}): name another folder for the weights "
                      "that servers load") from fault

  def stage(self, params: dict, version: int) -> Weights:
    """Writes a version. The parameters are not used any more when it returns.

    Args:
      params: the parameters, a nested dict, on any mesh, without adapters.
      version: its number.

    Raises:
      UserError: there is no room for it; nothing is left of it then.
    """
    name, again = f"step-{version:06}", 1
    while name in self._names:
      # Servers may take the same path for the same weights.
      again += 1
      name = f"step-{version:06}-{again}"
    self._names.add(name)
    folder = self.folder / name
    # All of them leave the devices, on purpose.
    with jax.transfer_guard("allow"):
      logprobs = np.asarray(self.probe.logprobs(params), np.float32)
      with written_whole(folder) as partial:
        shutil.copytree(self._common, partial, dirs_exist_ok=True)
        write_weights(partial, params, self._config, self.dtype, SHARD_BYTES)
    self._staged.append(folder)
    return Weights(folder, version, logprobs)

  def remove_before(self, weights: Weights) -> None:
    """Removes the versions that were staged before this one."""
    while self._staged and self._staged[0] != weights.folder:
      shutil.rmtree(self._staged.pop(0))

  def close(self) -> None:
    """Removes everything."""
    # The guard of a server of ours removes it as well.
    if self.folder.exists():
      shutil.rmtree(self.folder)
    self._lock.close()


def _check_room(root: Path, needed: int) -> None:
  try:
    free = shutil.disk_usage(root).free
  except OSError as fault:
    raise UserError(f"there is no {root} ({fault}): name another folder for the weights that "
                    "servers load") from fault
  if free < needed:
    raise UserError(f"{root} has {free / 1e9:.2f} GB free, and two versions of the weights take "
                    f"{needed / 1e9:.2f} GB: free room there, or name another folder for them")


def _remove_abandoned(root: Path, host: str) -> None:
  """Removes what runs on this host have left that are not there any more."""
  for path in root.glob(f"{host}-*/{_LOCK}"):
    try:
      with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path.parent)
    except OSError:
      # Its run goes on, or it is another user's.
      continue
