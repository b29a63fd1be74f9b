"""A work directory: who it belongs to, and how a run that is told to stop finds out."""

import json
import signal
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from conductor_jax.errors import UserError
from conductor_jax.reporting.metrics import atomic_file

# What may differ from one session of a run to the next: a budget that is spent is raised.
_MAY_CHANGE = "pool.budget."


def check_claim(workdir: Path, config: ConfigDict) -> bool:
  """Looks whether a run with this config may use the work directory. Touches nothing.

  Returns:
    Whether a run with this config has used it before.

  Raises:
    UserError: it belongs to a run with another config, in more than its budget, or cannot be read.
  """
  path = workdir / "config.json"
  try:
    if not path.exists():
      return False
    found = json.loads(path.read_text())
  except ValueError as fault:
    raise UserError(f"{path} is not JSON ({fault}): take another --workdir") from fault
  except OSError as fault:
    raise UserError(f"--workdir={workdir} cannot be used: {fault}") from fault
  for key, (old, new) in _differences(found, _plain(config)).items():
    if key.startswith(_MAY_CHANGE):
      continue
    raise UserError(
        f"{workdir} belongs to a run with {key}={old}, not {new}: take another --workdir, or "
        f"--config.{key}={old}")
  return True


def claim(workdir: Path, config: ConfigDict) -> bool:
  """Makes the work directory this config's own; returns and raises as `check_claim`."""
  again = check_claim(workdir, config)
  try:
    with atomic_file(workdir / "config.json") as file:
      file.write(json.dumps(_plain(config), indent=2).encode())
  except OSError as fault:
    raise UserError(f"--workdir={workdir} cannot be used: {fault}") from fault
  return again


def _plain(config: ConfigDict) -> dict[str, Any]:
  return json.loads(config.to_json_best_effort())


def _differences(old: Any, new: Any, prefix: str = "") -> dict[str, tuple[Any, Any]]:
  if isinstance(old, dict) and isinstance(new, dict):
    found = {}
    for key in {**old, **new}:
      path = f"{prefix}.{key}" if prefix else key
      found |= _differences(old.get(key), new.get(key), path)
    return found
  return {} if old == new else {prefix: (old, new)}


class StopSignals:
  """Notes SIGTERM and SIGINT instead of dying of them; a second one acts as usual.

  Attributes:
    received: the signal, None as long as there was none.
  """

  def __init__(self):
    self.received: int | None = None
    for number in (signal.SIGTERM, signal.SIGINT):
      signal.signal(number, self._note)

  def _note(self, number: int, frame: Any) -> None:
    del frame
    self.received = number
    signal.signal(number, signal.SIG_DFL)

  def __call__(self) -> bool:
    return self.received is not None
