"""Where tasks come from: benchmark files, or data sets on the hub, in the same columns.

A directory of files holds one folder per benchmark and one file per split, such as
`gsm8k/test.jsonl.gz`: JSON lines (`.jsonl`) or a JSON array (`.json`), as they are or gzipped
(`.gz`), or Parquet (`.parquet`). A folder may also be a copy of the hub's data set, with its files
in `data` or in a folder of the configuration's name. Some benchmarks are one file whatever the
split, under the name that its authors gave it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from conductor_jax.errors import UserError
from conductor_jax.tasks.benchmark import Benchmark, RowError, check_row
from conductor_jax.tasks.code_benchmarks import code_benchmarks
from conductor_jax.tasks.hub import dataset_file, dataset_rows
from conductor_jax.tasks.own import own_benchmarks
from conductor_jax.tasks.question_benchmarks import question_benchmarks
from conductor_jax.tasks.rows import SUFFIXES, find_files, read_rows, stem
from conductor_jax.tasks.task import Task

Say = Callable[[str], None]


def benchmark_table(
    *, livecodebench_release: str = "release_v1", bigcodebench_prompt: str = "instruct",
    gpqa_seed: int = 0, own: Sequence[Mapping[str, str]] = ()
) -> dict[str, Benchmark]:
  """All benchmarks by their names, which are their tasks' kinds.

  Args:
    livecodebench_release: as in `livecodebench.release_files`.
    bigcodebench_prompt: "instruct" or "complete".
    gpqa_seed: of the order of GPQA's options.
    own: as in `own.own_benchmarks`.

  Raises:
    UserError: there is no such release, or one's own benchmarks cannot be.
  """
  table = {**question_benchmarks(gpqa_seed),
           **code_benchmarks(livecodebench_release, bigcodebench_prompt)}
  added = own_benchmarks(own)
  for name in added:
    if name in table:
      raise UserError(f"benchmark {name!r}: the name is taken; choose another one")
  return {**table, **added}


BENCHMARKS: Mapping[str, Benchmark] = benchmark_table()


class _Rows(NamedTuple):
  """A file or a data set: its name for people, what its tasks' ids start with, and its rows."""

  origin: str
  stem: str
  rows: Iterable[tuple[str, Any]]


def load_tasks(
    path: str, benchmarks: Sequence[str], split: str, *, files: Sequence[tuple[str, str]] = (),
    table: Mapping[str, Benchmark] = BENCHMARKS, say: Say = lambda line: None
) -> list[Task]:
  """Reads one split of several benchmarks from files.

  Args:
    path: the directory that holds a folder per benchmark.
    benchmarks: names in `table`.
    split: a file's name without its suffixes, such as "test"; that of a benchmark with only one
      split is its own.
    files: (benchmark, file) where rows are in another place than the above, under `path`; several
      of one benchmark are read in this order.
    table: the benchmarks, as `benchmark_table` makes them.
    say: told how many rows a benchmark leaves out, and why.

  Returns:
    The tasks, benchmarks in the order given and rows in the order of the files.

  Raises:
    UserError: no such directory, benchmark or file, or a file that does not hold what it must; the
      message names the file, the place and the column.
  """
  root = Path(path)
  if not root.is_dir():
    raise UserError(f"no benchmark directory {path!r}: pass one that holds a folder per benchmark")
  _check_names((*benchmarks, *(name for name, _ in files)), table)
  _check_distinct(benchmarks)

  def sources(name: str) -> list[_Rows]:
    own = [root / file for benchmark, file in files if benchmark == name]
    found = own or _split_files(root / name, name, table[name], split)
    return [_Rows(str(file), stem(file), read_rows(file)) for file in found]

  return [task for name in benchmarks for task in _tasks(name, table[name], sources(name), say)]


def load_hub_tasks(
    benchmarks: Sequence[str], split: str, *, revisions: Sequence[tuple[str, str]] = (),
    table: Mapping[str, Benchmark] = BENCHMARKS, say: Say = lambda line: None
) -> list[Task]:
  """Reads one split of several benchmarks from the Hugging Face hub.

  Args:
    benchmarks: names in `table`.
    split: as in `load_tasks`.
    revisions: (benchmark, revision), a commit, tag or branch of its data set.
    table: as in `load_tasks`.
    say: as in `load_tasks`.

  Raises:
    UserError: no such benchmark, it is not on the hub or cannot be fetched, or a row that does not
      hold what it must; the message names the data set, the row and the column.
  """
  _check_names((*benchmarks, *(name for name, _ in revisions)), table)
  _check_distinct(benchmarks)
  asked = dict(revisions)

  def sources(name: str) -> list[_Rows]:
    benchmark, revision = table[name], asked.get(name)
    hub, chosen = benchmark.hub, benchmark.split or split
    if hub is None:
      raise UserError(f"benchmark {name!r} has no data set on the hub: name it, or read files")
    if hub.files:
      files = [dataset_file(hub, f"{part}.jsonl", revision) for part in benchmark.parts]
      return [_Rows(str(file), stem(file), read_rows(file)) for file in files]
    origin = f"{hub.dataset} ({', '.join(filter(None, (hub.config, chosen)))})"
    return [_Rows(origin, chosen, dataset_rows(hub, chosen, revision))]

  return [task for name in benchmarks for task in _tasks(name, table[name], sources(name), say)]


def _check_names(names: Iterable[str], table: Mapping[str, Benchmark]) -> None:
  for name in names:
    if name not in table:
      raise UserError(f"unknown benchmark {name!r}: choose from {', '.join(table)}, or describe it "
                      "in --config.tasks.own")


def _check_distinct(names: Sequence[str]) -> None:
  if len(set(names)) < len(names):
    raise UserError(f"a benchmark is named twice in {', '.join(names)}: name each once")


def _split_files(folder: Path, name: str, benchmark: Benchmark, split: str) -> list[Path]:
  """The files of a split, in order."""
  if not folder.is_dir():
    raise UserError(f"no folder {folder}: put the benchmark's files there or leave out {name!r}")
  if re.search(r"[/\\*?\[]", split):
    raise UserError(f"the split {split!r} must be a file's name without its suffixes, such as test")
  folders = [folder, folder / "data"]
  if benchmark.hub and benchmark.hub.config:
    folders.append(folder / benchmark.hub.config)
  split = benchmark.split or split
  found: list[Path] = []
  for part in benchmark.parts or (split,):
    files = find_files(folders, (part, *benchmark.names))
    if not files:
      others = [pattern for pattern in benchmark.names if "*" not in pattern]
      raise UserError(
          f"no file for the split {part!r} in {folder}: expected {' or '.join((part, *others))} "
          f"with one of {', '.join(SUFFIXES)}; there are "
          f"{', '.join(sorted(entry.name for entry in folder.iterdir())) or 'no files'}")
    found += files
  return found


def _tasks(
    name: str, benchmark: Benchmark, sources: Sequence[_Rows], say: Say) -> Iterator[Task]:
  places: dict[str, tuple[str, str]] = {}
  read = left_out = 0
  for source in sources:
    before = read
    for index, (place, row) in enumerate(source.rows):
      read += 1
      try:
        task = _task(name, benchmark, row, f"{source.stem}/{index}")
        if task is None:
          left_out += 1
          continue
        if task.id in places:
          origin, other = places[task.id]
          where = other if origin == source.origin else f"{other} of {origin}"
          raise RowError(f"the id {task.id.removeprefix(name + '/')!r} is that of {where}; "
                         "ids must be unique")
      except RowError as fault:
        raise UserError(f"{source.origin}, {place}: {fault}") from fault
      places[task.id] = source.origin, place
      yield task
    if read == before:
      raise UserError(f"{source.origin} is empty: it must hold at least one row")
  if not places:
    raise UserError(f"{sources[0].origin}: no row of {read} has {benchmark.kept}, and others are "
                    f"not used: leave out {name!r}")
  if left_out:
    say(f"{name}: {left_out} of {read} rows left out, only those with {benchmark.kept} are used")


def _task(name: str, benchmark: Benchmark, row: Any, position: str) -> Task | None:
  if isinstance(row, Mapping) and benchmark.renamed:
    row = {benchmark.renamed.get(column, column): value for column, value in row.items()}
  check_row(row, benchmark.columns)
  if not benchmark.keep(row):
    return None
  task = Task(
      id=f"{name}/{benchmark.identity(row) or position}", question=benchmark.question(row),
      reference=benchmark.reference(row), kind=name, metadata=benchmark.metadata(row))
  for part, text in (("question", task.question), ("right answer", task.reference)):
    if not text.strip():
      raise RowError(f"the {part} is empty; columns {', '.join(map(repr, benchmark.columns))} "
                     "must hold it")
  return task
