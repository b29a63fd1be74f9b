"""What a run records: metrics by step, rollouts by iteration, and a summary at the end."""

import gzip
import json
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from conductor_jax.errors import UserError

_ROLLOUT_FILE = re.compile(r"(\d+)\.jsonl\.gz")


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
  """Opens a file that takes the place of `path` when the block ends.

  Another process, or one that comes after a crash, sees the old content or the new, never a part.
  If the block raises, `path` stays as it was.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f".{path.name}.tmp")
  try:
    with temporary.open("wb") as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    temporary.replace(path)
  except BaseException:
    temporary.unlink(missing_ok=True)
    raise
  directory = os.open(path.parent, os.O_RDONLY)
  try:
    os.fsync(directory)
  finally:
    os.close(directory)


def _finite(value: Any) -> Any:
  """The value with numpy scalars as Python's own, and NaN and infinities as None."""
  if isinstance(value, Mapping):
    return {str(key): _finite(item) for key, item in value.items()}
  if isinstance(value, (list, tuple)):
    return [_finite(item) for item in value]
  if isinstance(value, np.generic):
    value = value.item()
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value


def _parse_lines(path: Path) -> list[dict[str, Any]]:
  """Reads JSON lines; a last line torn by a crash is left out."""
  lines = path.read_bytes().split(b"\n")
  records = []
  for number, line in enumerate(lines, start=1):
    if not line:
      continue
    try:
      records.append(json.loads(line))
    except ValueError as error:
      if number == len(lines):
        break
      raise UserError(f"{path}, line {number} is not JSON: restore or delete the line") from error
  return records


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
  """Reads a metrics.jsonl.

  Args:
    path: the file. A file that isn't there holds no lines.

  Returns:
    One dict per line, with "phase", "step" and the values of that step. A last line without its
    end (the writer was killed) is left out.

  Raises:
    UserError: a line before the last is not JSON.
  """
  path = Path(path)
  return _parse_lines(path) if path.exists() else []


class MetricsWriter:
  """Appends the values of each step to metrics.jsonl and to TensorBoard's event files.

  Both are complete up to the last step when `write` returns. TensorBoard finds each phase as a run
  of its own, in `events/<phase>`.
  """

  def __init__(self, workdir: str | Path, *, resume_at: Mapping[str, int]):
    """Opens the files, and takes back what a resumed run will write again.

    Args:
      workdir: the work directory.
      resume_at: the first step of each phase that is still to be written. What the files hold at
        or after it is removed. A phase not named here starts at 0.
    """
    workdir = Path(workdir)
    self._resume_at = dict(resume_at)
    self._event_folder = workdir / "events"
    self._event_files: dict[str, EventsWriter] = {}
    path = workdir / "metrics.jsonl"
    kept = [r for r in read_metrics(path) if r["step"] < self._resume_at.get(r["phase"], 0)]
    with atomic_file(path) as file:
      file.writelines(_json_line(record) for record in kept)
    self._lines = path.open("ab")

  def write(self, phase: str, step: int, values: Mapping[str, Any]) -> None:
    """Records one step.

    Args:
      phase: "sft" or "grpo".
      step: the step within the phase, counted from 0.
      values: scalars by name. None, NaN and infinities are null in metrics.jsonl; TensorBoard
        gets no value for None.

    Raises:
      ValueError: a value is named "phase" or "step".
    """
    if clash := {"phase", "step"} & set(values):
      raise ValueError(f"a metric cannot be named {sorted(clash)[0]!r}")
    values = {key: None if value is None else float(value) for key, value in values.items()}
    self._lines.write(_json_line({"phase": phase, "step": int(step), **_finite(values)}))
    self._lines.flush()
    if phase not in self._event_files:
      self._event_files[phase] = self._open_events(phase)
    event_file = self._event_files[phase]
    scalars = [Summary.Value(tag=key, simple_value=value) for key, value in values.items()
               if value is not None]
    event_file.write_event(_event(int(step), summary=Summary(value=scalars)))
    event_file.flush()

  def close(self) -> None:
    """Closes the files."""
    self._lines.close()
    for event_file in self._event_files.values():
      event_file.close()

  def __enter__(self) -> "MetricsWriter":
    return self

  def __exit__(self, *exception) -> None:
    self.close()

  def _open_events(self, phase: str) -> EventsWriter:
    # Not tensorboardX's SummaryWriter: it queues events to a thread, and a kill would lose steps
    # that the checkpoint has already passed.
    folder = self._event_folder / phase
    folder.mkdir(parents=True, exist_ok=True)
    earlier = len(list(folder.iterdir()))
    event_file = EventsWriter(str(folder / "events"), f".{earlier:04d}")
    if earlier:
      # TensorBoard drops what earlier files hold from this step on.
      restart = SessionLog(status=SessionLog.START)
      event_file.write_event(_event(self._resume_at.get(phase, 0), session_log=restart))
    return event_file


def _event(step: int, **content: Any) -> Event:
  return Event(wall_time=time.time(), step=step, **content)


def _json_line(record: Mapping[str, Any]) -> bytes:
  return json.dumps(record, allow_nan=False).encode() + b"\n"


def write_summary(workdir: str | Path, summary: Mapping[str, Any]) -> Path:
  """Writes summary.json atomically, NaN and infinities as null.

  Returns:
    The file's path.
  """
  path = Path(workdir) / "summary.json"
  with atomic_file(path) as file:
    file.write(json.dumps(_finite(summary), indent=2, allow_nan=False).encode() + b"\n")
  return path


class RolloutLog:
  """The rollouts of each iteration, in `rollouts/000012.jsonl.gz` and so on.

  The same rows give the same bytes, so that a repeated iteration leaves the same file.
  """

  def __init__(self, workdir: str | Path):
    """Names the folder; nothing is written yet.

    Args:
      workdir: the work directory.
    """
    self._folder = Path(workdir) / "rollouts"

  def write(self, iteration: int, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Writes one iteration's file atomically, in place of an earlier one.

    Args:
      iteration: counted from 0.
      rows: one JSON-ready dict per rollout.

    Returns:
      The file's path.

    Raises:
      TypeError: a row is not JSON-ready; no file is left.
    """
    path = self._folder / f"{iteration:06d}.jsonl.gz"
    with (
        atomic_file(path) as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as packed,
    ):
      packed.writelines(_json_line(_finite(row)) for row in rows)
    return path

  def read(self, iteration: int) -> list[dict[str, Any]]:
    """The rows of one iteration, in the order written.

    Raises:
      UserError: there is no file for this iteration.
    """
    path = self._folder / f"{iteration:06d}.jsonl.gz"
    if not path.exists():
      raise UserError(f"no rollouts of iteration {iteration}: {path} is not there")
    with gzip.open(path, "rb") as file:
      return [json.loads(line) for line in file]

  def iterations(self) -> list[int]:
    """The iterations that have a file, ascending."""
    if not self._folder.exists():
      return []
    matches = (_ROLLOUT_FILE.fullmatch(path.name) for path in self._folder.iterdir())
    return sorted(int(match[1]) for match in matches if match)
