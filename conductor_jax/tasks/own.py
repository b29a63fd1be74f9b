"""Benchmarks that a config describes: which columns hold what, and which grader applies."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from string import ascii_uppercase
from typing import Any

from conductor_jax.errors import UserError
from conductor_jax.tasks.benchmark import (
    ANYTHING,
    TEXT,
    TEXTS,
    Benchmark,
    Hub,
    Row,
    RowError,
    letter,
    lettered,
    plain_number,
)
from conductor_jax.tasks.code_tests import read_tests
from conductor_jax.tasks.graders import GRADERS


@dataclass(frozen=True)
class OwnBenchmark:
  """A benchmark in columns of any names.

  Attributes:
    name: of the benchmark, of its folder, and of its tasks' kind.
    grader: one of `graders.GRADERS`.
    question: the column with the question.
    answer: that with the right answer. Of "choice" it is a letter, or a position from 0 on; of
      "code" the tests, in a form of `code_tests.py`, as an object or as its JSON text.
    choices: the column with the list of options, which stand below the question; "" for none.
    id: the column with an id of the row; "" for its position.
    dataset: the data set on the hub, such as "openai/gsm8k"; "" for none.
    config: the data set's configuration; "" where it has only one.
    split: the only split that there is; "" where the caller names one.
  """

  name: str
  grader: str
  question: str = "question"
  answer: str = "answer"
  choices: str = ""
  id: str = ""
  dataset: str = ""
  config: str = ""
  split: str = ""


def own_benchmarks(described: Sequence[Mapping[str, str]]) -> dict[str, Benchmark]:
  """Benchmarks by their names.

  Args:
    described: of each the fields of `OwnBenchmark` by their names; those with a default may be left
      out.

  Raises:
    UserError: a field is unknown, missing or of another type, or a grader or a name that cannot be.
  """
  known = {field.name: field for field in fields(OwnBenchmark)}
  table: dict[str, Benchmark] = {}
  for index, values in enumerate(described):
    if not isinstance(values, Mapping):
      raise UserError(f"benchmark {index}: {values!r} must be a mapping of fields such as name and "
                      "grader")
    place = f"benchmark {values.get('name', index)!r}: "
    for name, value in values.items():
      if name not in known:
        raise UserError(f"{place}{name}={value!r} must go, for there are only {', '.join(known)}")
      if not isinstance(value, str):
        raise UserError(f"{place}{name}={value!r} must be text")
    for name in ("name", "grader"):
      if not values.get(name):
        raise UserError(f"{place}{name} is missing: add it")
    own = OwnBenchmark(**values)
    if own.grader not in GRADERS:
      raise UserError(f"{place}grader={own.grader!r} must be one of {', '.join(GRADERS)}")
    if own.name in table:
      raise UserError(f"{place}there are two of this name: rename one")
    table[own.name] = _benchmark(own)
  return table


def _benchmark(own: OwnBenchmark) -> Benchmark:
  columns = {own.question: TEXT, own.answer: ANYTHING}
  if own.choices:
    columns[own.choices] = TEXTS
  if own.id:
    columns[own.id] = ANYTHING
  used = {own.question, own.answer, own.choices}

  def question(row: Row) -> str:
    return lettered(row[own.question], row[own.choices]) if own.choices else row[own.question]

  def metadata(row: Row) -> dict[str, Any]:
    rest = {name: value for name, value in row.items() if name not in used}
    if own.choices:
      rest["choices"] = row[own.choices]
    # Graders are looked up by it before they are by the kind.
    rest["grader"] = own.grader
    try:
      json.dumps(rest)
    except (TypeError, ValueError) as fault:
      raise RowError(f"columns {', '.join(map(repr, rest))} must hold JSON values ({fault})"
                     ) from fault
    return rest

  return Benchmark(
      Hub(own.dataset, own.config or None) if own.dataset else None,
      columns=columns,
      question=question,
      reference=lambda row: _reference(own, row),
      identity=lambda row: str(row[own.id]) if own.id else None,
      metadata=metadata,
      split=own.split or None)


def _reference(own: OwnBenchmark, row: Row) -> str:
  answer = row[own.answer]
  if own.grader == "choice":
    choices = row[own.choices] if own.choices else ascii_uppercase
    if type(answer) is int:
      return letter(own.answer, answer, choices)
    letters = ascii_uppercase[:len(choices)]
    if not (isinstance(answer, str) and len(answer.strip()) == 1 and answer.strip() in letters):
      raise RowError(f"column {own.answer!r} must be the letter or the position of an option, "
                     f"got {answer!r:.60}")
    return answer.strip()
  if own.grader == "code":
    text = answer if isinstance(answer, str) else json.dumps(answer)
    try:
      read_tests(text)
    except (ValueError, TypeError) as fault:
      raise RowError(f"column {own.answer!r}: {fault}") from fault
    return text
  if isinstance(answer, bool) or not isinstance(answer, (str, int, float)):
    raise RowError(f"column {own.answer!r} must be text or a number, got {answer!r:.60}")
  if own.grader in ("number", "integer"):
    number = plain_number(own.answer, answer)
    if own.grader == "integer" and "." in number:
      raise RowError(f"column {own.answer!r} must be a whole number, got {answer!r:.60}")
    return number
  return str(answer)
