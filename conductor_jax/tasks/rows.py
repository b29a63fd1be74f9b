"""Rows of benchmark files: JSON lines, a JSON array or Parquet."""

import contextlib
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from conductor_jax.errors import UserError

# In the order in which they are looked for.
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")

# A split that the hub has cut into several files.
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.parquet")


def stem(file: Path) -> str:
  """The name of a file without its suffixes."""
  for suffix in sorted(SUFFIXES, key=len, reverse=True):
    if file.name.endswith(suffix):
      return file.name.removesuffix(suffix)
  raise UserError(f"{file}: must end with one of {', '.join(SUFFIXES)}")


def find_files(folders: Sequence[Path], patterns: Sequence[str]) -> list[Path]:
  """The file that matches the first pattern with a match, in the first folder that has one.

  Args:
    folders: where to look.
    patterns: names without suffixes, in the order of preference.

  Returns:
    One file, all shards of one split, or nothing.

  Raises:
    UserError: several files match one pattern, or a shard is missing.
  """
  for pattern in patterns:
    for folder in folders:
      for suffix in SUFFIXES:
        found = sorted(file for file in folder.glob(pattern + suffix)
                       if file.is_file() and not _SHARD.fullmatch(file.name))
        if len(found) > 1:
          raise UserError(f"{folder}: there are {', '.join(file.name for file in found)}; name the "
                          "one to read with --config.tasks.files")
        if found:
          return found
      shards = sorted(file for file in folder.glob(f"{pattern}-*-of-*.parquet")
                      if _SHARD.fullmatch(file.name))
      if shards:
        count = int(_SHARD.fullmatch(shards[0].name)[3])
        if len(shards) != count:
          raise UserError(f"{folder}: {len(shards)} of the {count} files {pattern}-*.parquet are "
                          "there: fetch them all")
        return shards
  return []


def read_rows(file: Path) -> Iterator[tuple[str, Any]]:
  """Yields (place, row) of a file, the place for people.

  Raises:
    UserError: the file cannot be read or is not what its suffix says; names the place.
  """
  stem(file)
  if file.suffix == ".parquet":
    yield from _parquet_rows(file)
    return
  with _faults(file):
    with gzip.open(file) if file.suffix == ".gz" else open(file, "rb") as stream:
      yield from (_lines if ".jsonl" in file.suffixes else _array)(file, stream)


@contextlib.contextmanager
def _faults(file: Path) -> Iterator[None]:
  try:
    yield
  except (EOFError, zlib.error, gzip.BadGzipFile) as fault:
    raise UserError(f"{file}: not a whole gzip file ({fault}); fetch it again") from fault
  except FileNotFoundError as fault:
    raise UserError(f"{file}: there is no such file; put it there") from fault
  except OSError as fault:
    raise UserError(f"{file}: cannot be read ({fault.strerror}); check its permissions") from fault


def _lines(file: Path, stream: BinaryIO) -> Iterator[tuple[str, Any]]:
  # Bytes, for lines of text also end at U+2028 and the like, which a JSON string may hold.
  for number, line in enumerate(stream, start=1):
    if not line.strip():
      continue
    try:
      row = json.loads(_text(file, line, number))
    except (ValueError, RecursionError) as fault:
      reason = fault.msg if isinstance(fault, json.JSONDecodeError) else str(fault)
      raise UserError(f"{file}, line {number}: not JSON ({reason}); "
                      "every line must be one JSON object") from fault
    yield f"line {number}", row


def _array(file: Path, stream: BinaryIO) -> Iterator[tuple[str, Any]]:
  text = _text(file, stream.read(), 1)
  try:
    rows = json.loads(text) if text.strip() else []
  except (ValueError, RecursionError) as fault:
    line = fault.lineno if isinstance(fault, json.JSONDecodeError) else 1
    reason = fault.msg if isinstance(fault, json.JSONDecodeError) else str(fault)
    raise UserError(f"{file}, line {line}: not JSON ({reason}); "
                    "the file must be one JSON array of objects") from fault
  if not isinstance(rows, list):
    raise UserError(f"{file}: must be one JSON array of objects, got {type(rows).__name__}; "
                    "name it .jsonl if it holds one object per line")
  for number, row in enumerate(rows, start=1):
    yield f"row {number}", row


def _text(file: Path, data: bytes, first: int) -> str:
  try:
    return data.decode("utf-8")
  except UnicodeDecodeError as fault:
    line = first + data.count(b"\n", 0, fault.start)
    raise UserError(f"{file}, line {line}: not UTF-8 text; convert the file to UTF-8") from fault


def _parquet_rows(file: Path) -> Iterator[tuple[str, Any]]:
  try:
    import pyarrow
    from pyarrow import parquet
  except ImportError as fault:
    raise UserError(f"{file}: reading Parquet needs pyarrow, which comes with "
                    'pip install -e ".[hub]"') from fault
  try:
    with parquet.ParquetFile(file) as opened:
      rows = (row for batch in opened.iter_batches(batch_size=256) for row in batch.to_pylist())
      for number, row in enumerate(rows, start=1):
        yield f"row {number}", row
  except (pyarrow.ArrowException, OSError) as fault:
    reason = str(fault).strip().partition("\n")[0]
    raise UserError(f"{file}: not a whole Parquet file ({reason}); fetch it again") from fault
