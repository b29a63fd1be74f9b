"""What a benchmark is: where its rows are, which columns they have, how a row becomes a task."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any, NamedTuple

Row = Mapping[str, Any]

_NUMBER = re.compile(r"-?(\d+(\.\d+)?|\.\d+)", re.ASCII)


class RowError(Exception):
  """What is wrong with a row; the reader adds file and place."""


class Column(NamedTuple):
  """What a column holds.

  Attributes:
    kind: its name for people.
    holds: whether a value is of the kind.
  """

  kind: str
  holds: Callable[[Any], bool]


def _texts(value: Any) -> bool:
  return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _messages(value: Any) -> bool:
  return isinstance(value, list) and bool(value) and all(
      isinstance(item, Mapping) and isinstance(item.get("role"), str)
      and isinstance(item.get("content"), str) for item in value)


def _whole(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool)


TEXT = Column("text", lambda value: isinstance(value, str))
TEXTS = Column("a list of texts", _texts)
WHOLE = Column("a whole number", _whole)
# Data sets write one and the same number as text, with and without a fraction.
NUMBER = Column("a number", lambda value: isinstance(value, (str, float)) or _whole(value))
CHAT = Column("a list of messages with role and content", _messages)
MAPPING = Column("an object", lambda value: isinstance(value, Mapping))
ANYTHING = Column("anything", lambda value: True)


class Hub(NamedTuple):
  """Where the Hugging Face hub has a benchmark.

  Attributes:
    dataset: the data set's name.
    config: its configuration, None where it has only one.
    files: whether it is fetched as the JSON lines that it consists of. That is for data sets with a
      loading script, which `datasets` does not run.
  """

  dataset: str
  config: str | None = None
  files: bool = False


@dataclass(frozen=True)
class Benchmark:
  """How one benchmark's rows become tasks.

  Attributes:
    hub: where the hub has it, None where it does not.
    columns: the columns that must be there.
    question: row -> the text a worker sees.
    reference: row -> the right answer, as the benchmark's grader reads it.
    identity: row -> an id that the source assigns, None where the row's position is the id.
    metadata: row -> what is worth keeping beside the above.
    split: the only split that there is, None where the caller names one.
    parts: the files that the split is made of, none where it is one of its own name.
    names: files that have all rows, under the names that their authors gave them; patterns.
    renamed: columns of other publications -> the hub's.
    keep: row -> whether it is used.
    kept: which rows that are, for people.
  """

  hub: Hub | None
  columns: Mapping[str, Column]
  question: Callable[[Row], str]
  reference: Callable[[Row], str]
  identity: Callable[[Row], str | None] = lambda row: None
  metadata: Callable[[Row], dict[str, Any]] = lambda row: {}
  split: str | None = None
  parts: tuple[str, ...] = ()
  names: tuple[str, ...] = ()
  renamed: Mapping[str, str] = field(default_factory=dict)
  keep: Callable[[Row], bool] = lambda row: True
  kept: str = "all"


def check_row(row: Any, columns: Mapping[str, Column]) -> None:
  """Checks that the columns are there and hold what they must.

  Raises:
    RowError: names the column.
  """
  if not isinstance(row, Mapping):
    raise RowError(f"a row must be a JSON object, got {type(row).__name__}")
  for name, column in columns.items():
    if name not in row:
      raise RowError(f"column {name!r} is missing; "
                     f"there are {', '.join(map(repr, row)) or 'none'}")
    if not column.holds(row[name]):
      raise RowError(f"column {name!r} must be {column.kind}, got {row[name]!r:.60}")


def lettered(question: str, choices: Sequence[str]) -> str:
  """A multiple-choice question with its options on lines of their own."""
  options = "\n".join(f"{ascii_uppercase[i]}. {choice}" for i, choice in enumerate(choices))
  return f"{question}\n\n{options}"


def letter(column: str, position: int, choices: Sequence[str]) -> str:
  """The letter of a choice.

  Raises:
    RowError: there is no such choice.
  """
  if not 0 <= position < len(choices) <= len(ascii_uppercase):
    raise RowError(f"column {column!r} must be the position of one of the {len(choices)} choices, "
                   f"got {position}")
  return ascii_uppercase[position]


def plain_number(column: str, value: str | int | float) -> str:
  """A number without separators of thousands, currency and a fraction of zeros.

  Raises:
    RowError: it is no number.
  """
  text = str(value).strip().replace(",", "").replace("$", "").removesuffix(".")
  if not _NUMBER.fullmatch(text):
    raise RowError(f"column {column!r} must hold a number, got {str(value)!r:.60}")
  return text.rstrip("0").removesuffix(".") if "." in text else text
