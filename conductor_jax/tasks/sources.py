"""Where tasks come from: benchmark files with the hub's columns.

A directory holds one folder per benchmark and one file per split, such as `gsm8k/test.jsonl.gz`:
JSON lines (`.jsonl`) or a JSON array (`.json`), as they are or gzipped (`.gz`). MultiArith has no
splits and is one file, `multiarith/multiarith.jsonl`, in the columns of Qwen2.5-Math's evaluation.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from conductor_jax.errors import UserError
from conductor_jax.tasks.task import Task

Row = Mapping[str, Any]

# In the order in which they are looked for.
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TYPES = {str: "text", int: "a whole number", list: "a list of texts"}


class _RowError(Exception):
  """What is wrong with a row; the reader adds file and place."""


@dataclass(frozen=True)
class Benchmark:
  """How one benchmark's rows become tasks.

  Attributes:
    columns: the columns that must be there, and their types.
    question: row -> the text a worker sees.
    reference: row -> the right answer, as the benchmark's grader reads it.
    identity: row -> an id that the source assigns, None where the row's position is the id.
    metadata: row -> what is worth keeping beside the above.
    file: the file's name without its suffixes where there are no splits, None where there are.
  """

  columns: Mapping[str, type]
  question: Callable[[Row], str]
  reference: Callable[[Row], str]
  identity: Callable[[Row], str] | None = None
  metadata: Callable[[Row], dict[str, Any]] = lambda row: {}
  file: str | None = None


def lettered(question: str, choices: Sequence[str]) -> str:
  """A multiple-choice question with its options on lines of their own."""
  options = "\n".join(f"{_LETTERS[i]}. {choice}" for i, choice in enumerate(choices))
  return f"{question}\n\n{options}"


def _number_after_hashes(row: Row) -> str:
  _, hashes, number = row["answer"].rpartition("####")
  number = number.strip().replace(",", "")
  if not (hashes and number):
    raise _RowError("column 'answer' must end with '#### ' and a number")
  return number


def _letter(row: Row) -> str:
  if not 0 <= row["answer"] < len(row["choices"]) <= len(_LETTERS):
    raise _RowError(f"column 'answer' must be the position of one of the {len(row['choices'])} "
                  f"choices, got {row['answer']}")
  return _LETTERS[row["answer"]]


# A task's kind is the benchmark's name.
BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({
    "gsm8k": Benchmark(
        columns={"question": str, "answer": str},
        question=lambda row: row["question"],
        reference=_number_after_hashes,
        metadata=lambda row: {"solution": row["answer"]}),
    "mmlu": Benchmark(
        columns={"question": str, "subject": str, "choices": list, "answer": int},
        question=lambda row: lettered(row["question"], row["choices"]),
        reference=_letter,
        metadata=lambda row: {"subject": row["subject"], "choices": row["choices"]}),
    "math500": Benchmark(
        columns={"problem": str, "solution": str, "answer": str, "subject": str, "level": int,
                 "unique_id": str},
        question=lambda row: row["problem"],
        reference=lambda row: row["answer"],
        identity=lambda row: row["unique_id"],
        metadata=lambda row: {key: row[key] for key in ("subject", "level", "solution")}),
    "multiarith": Benchmark(
        columns={"input": str, "target": int},
        question=lambda row: row["input"],
        reference=lambda row: str(row["target"]),
        file="multiarith"),
})


def _has_type(value: Any, expected: type) -> bool:
  if expected is list:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
  return isinstance(value, expected) and not isinstance(value, bool)


def _check(row: Any, columns: Mapping[str, type]) -> None:
  if not isinstance(row, dict):
    raise _RowError(f"a row must be a JSON object, got {type(row).__name__}")
  for column, expected in columns.items():
    if column not in row:
      raise _RowError(f"column {column!r} is missing; there are {', '.join(map(repr, row))}")
    if not _has_type(row[column], expected):
      raise _RowError(f"column {column!r} must be {_TYPES[expected]}, got {row[column]!r:.60}")


def _read(file: Path) -> str:
  try:
    data = file.read_bytes()
    if file.suffix == ".gz":
      data = gzip.decompress(data)
    return data.decode("utf-8")
  except UnicodeDecodeError as fault:
    line = data.count(b"\n", 0, fault.start) + 1
    raise UserError(f"{file}, line {line}: not UTF-8 text; convert the file to UTF-8") from fault
  except (EOFError, zlib.error, gzip.BadGzipFile) as fault:
    raise UserError(f"{file}: not a whole gzip file ({fault}); fetch it again") from fault
  except OSError as fault:
    raise UserError(f"{file}: cannot be read ({fault.strerror}); check its permissions") from fault


def _rows(file: Path) -> Iterator[tuple[str, Any]]:
  """Yields (place, row) of a file, the place for people."""
  text = _read(file)
  if ".jsonl" in file.suffixes:
    # Not splitlines(): a JSON string may hold U+2028 and the like.
    for number, line in enumerate(text.split("\n"), start=1):
      if not line.strip():
        continue
      try:
        yield f"line {number}", json.loads(line)
      except (ValueError, RecursionError) as fault:
        reason = fault.msg if isinstance(fault, json.JSONDecodeError) else str(fault)
        raise UserError(f"{file}, line {number}: not JSON ({reason}); "
                        "every line must be one JSON object") from fault
    return
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


def _file(path: Path, benchmark: str, split: str) -> Path:
  for suffix in SUFFIXES:
    file = path / benchmark / f"{split}{suffix}"
    if file.is_file():
      return file
  folder = path / benchmark
  if not folder.is_dir():
    raise UserError(f"no folder {folder}: put the benchmark's files there or leave out "
                    f"{benchmark!r}")
  raise UserError(f"no file for the split {split!r} in {folder}: expected {split} with one of "
                  f"{', '.join(SUFFIXES)}; there are "
                  f"{', '.join(sorted(entry.name for entry in folder.iterdir())) or 'no files'}")


def _tasks_of(path: Path, name: str, split: str) -> Iterator[Task]:
  benchmark = BENCHMARKS[name]
  split = benchmark.file or split
  file = _file(path, name, split)
  places: dict[str, str] = {}
  for index, (place, row) in enumerate(_rows(file)):
    try:
      _check(row, benchmark.columns)
      own_id = benchmark.identity(row) if benchmark.identity else f"{split}/{index}"
      if own_id in places:
        raise _RowError(f"the id {own_id!r} is that of {places[own_id]}; ids must be unique")
      task = Task(id=f"{name}/{own_id}", question=benchmark.question(row),
                  reference=benchmark.reference(row), kind=name, metadata=benchmark.metadata(row))
    except _RowError as fault:
      raise UserError(f"{file}, {place}: {fault}") from fault
    places[own_id] = place
    yield task
  if not places:
    raise UserError(f"{file} is empty: it must hold at least one row")


def load_tasks(path: str, benchmarks: Sequence[str], split: str) -> list[Task]:
  """Reads one split of several benchmarks.

  Args:
    path: the directory that holds a folder per benchmark.
    benchmarks: names in `BENCHMARKS`.
    split: a file's name without its suffixes, such as "test"; that of a benchmark without splits
      is its own.

  Returns:
    The tasks, benchmarks in the order given and rows in the order of the file.

  Raises:
    UserError: no such directory, benchmark or file, or a file that does not hold what it must; the
      message names the file, the place and the column.
  """
  root = Path(path)
  if not root.is_dir():
    raise UserError(f"no benchmark directory {path!r}: pass one that holds a folder per benchmark")
  for name in benchmarks:
    if name not in BENCHMARKS:
      raise UserError(f"unknown benchmark {name!r}: choose from {', '.join(BENCHMARKS)}")
  if len(set(benchmarks)) < len(benchmarks):
    raise UserError(f"a benchmark is named twice in {', '.join(benchmarks)}: name each once")
  return [task for name in benchmarks for task in _tasks_of(root, name, split)]
