"""LiveCodeBench: its releases, and the tests in a row.

The columns are those of `livecodebench/code_generation_lite`. A row's tests are JSON texts; the
private ones may be packed as base64 of zlib of a pickled JSON text.
"""

import base64
import binascii
import json
import pickletools
import re
import zlib
from typing import Any

from conductor_jax.errors import UserError
from conductor_jax.tasks.benchmark import TEXT, Benchmark, Hub, Row, RowError
from conductor_jax.tasks.code_tests import FunctionTests, StdinTests

NEWEST_RELEASE = 6

# Bytes that the tests of one row may have when they are unpacked.
_LIMIT = 2**30

# What the pickle of a text consists of.
_TEXTS = {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
_AROUND = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}

_STDIN = ("Write a Python program that reads its input from standard input and prints the answer "
          "to standard output.")
_START = "Write the answer in Python, beginning with this code:"


def release_files(tag: str) -> tuple[str, ...]:
  """The files of a release, without their suffix.

  Args:
    tag: "release_v3" has what was published up to version 3, "v3" what that version added, "v2_v3"
      what versions 2 to 3 added; all as in LiveCodeBench's own loader, which has a file for each.

  Raises:
    UserError: there is no such release.
  """
  found = re.fullmatch(r"(release_)?v([0-9])(?:_v([0-9]))?", tag)
  if found and not (found[1] and found[3]):
    last = int(found[3] or found[2])
    first = 1 if found[1] else int(found[2])
    if 1 <= first <= last <= NEWEST_RELEASE:
      return tuple(f"test{number if number > 1 else ''}" for number in range(first, last + 1))
  raise UserError(f"no release {tag!r} of LiveCodeBench: name one from release_v1 to "
                  f"release_v{NEWEST_RELEASE}, or what versions added, such as v6 or v5_v6")


def _json(column: str, text: str) -> Any:
  try:
    return json.loads(text)
  except (ValueError, RecursionError) as fault:
    raise RowError(f"column {column!r} must hold JSON ({fault}), got {text[:50]!r}") from fault


def _unpacked(column: str, text: str) -> str:
  """The JSON text in base64(zlib(pickle(text))); the pickle is read, and never run."""
  try:
    packed = base64.b64decode(text, validate=True)
    stream = zlib.decompressobj()
    data = stream.decompress(packed, _LIMIT)
    if stream.unconsumed_tail:
      raise RowError(f"column {column!r} unpacks to more than {_LIMIT >> 20} MiB")
    if not stream.eof:
      raise RowError(f"column {column!r} is cut off: its packed tests have no end")
    texts = []
    for operation, argument, _ in pickletools.genops(data):
      if operation.name in _TEXTS:
        texts.append(argument)
      elif operation.name not in _AROUND:
        raise RowError(f"column {column!r} must pack one text, and its pickle does "
                       f"{operation.name}, which is refused")
  except (binascii.Error, zlib.error, ValueError) as fault:
    raise RowError(f"column {column!r} must hold JSON, or base64 of zlib of a pickled text "
                   f"({fault}), got {text[:50]!r}") from fault
  if len(texts) != 1:
    raise RowError(f"column {column!r} must pack one text, got {len(texts)}")
  return texts[0]


def _cases(row: Row, column: str) -> list[dict[str, str]]:
  text = row[column]
  if not text.strip():
    raise RowError(f"column {column!r} is empty: it must hold a list of tests")
  packed = column == "private_test_cases" and not text.lstrip().startswith(("[", "{"))
  cases = _json(column, _unpacked(column, text) if packed else text)
  if not isinstance(cases, list):
    raise RowError(f"column {column!r} must hold a list of tests, got {type(cases).__name__}")
  for case in cases:
    if not (isinstance(case, dict) and all(
        isinstance(case.get(key), str) for key in ("input", "output", "testtype"))):
      raise RowError(f"column {column!r} must hold tests with the texts input, output and "
                     f"testtype, got {case!r:.60}")
  return cases


def _function_name(row: Row) -> Any:
  """What the tests call, None where they run a program."""
  metadata = _json("metadata", row["metadata"])
  if not isinstance(metadata, dict):
    raise RowError(f"column 'metadata' must hold an object, got {row['metadata'][:50]!r}")
  return metadata.get("func_name")


def _function_tests(function: Any, column: str, cases: list[dict[str, str]]) -> FunctionTests:
  arguments = tuple(
      [_json(column, line) for line in case["input"].split("\n") if line.strip()]
      for case in cases)
  outputs = tuple(_json(column, case["output"]) for case in cases)
  return FunctionTests(function, arguments, outputs)


def tests_of(row: Row) -> str:
  """The public and the private tests of a row, as in `Task.reference`.

  Raises:
    RowError: they cannot be decoded, are of different or unknown types, or there are none; names
      the column.
  """
  public, private = _cases(row, "public_test_cases"), _cases(row, "private_test_cases")
  if not public + private:
    raise RowError("column 'private_test_cases' holds no test, and neither does "
                   "'public_test_cases': at least one is needed")
  kinds = sorted({case["testtype"] for case in public + private})
  if kinds not in (["stdin"], ["functional"]):
    raise RowError("columns 'public_test_cases' and 'private_test_cases' must have the testtype "
                   f"stdin or functional throughout, got {', '.join(kinds)}")
  cases = public + private
  if kinds == ["stdin"]:
    return StdinTests(tuple(case["input"] for case in cases),
                      tuple(case["output"] for case in cases)).to_reference()
  function = _function_name(row)
  if function is None:
    raise RowError("column 'metadata' must hold func_name, for the tests call a function")
  try:
    parts = [_function_tests(function, column, part) for column, part in (
        ("public_test_cases", public), ("private_test_cases", private)) if part]
  except ValueError as fault:
    raise RowError(f"column 'metadata': {fault}") from fault
  return FunctionTests(
      function, sum((part.arguments for part in parts), ()),
      sum((part.outputs for part in parts), ())).to_reference()


def _question(row: Row) -> str:
  start, function = row["starter_code"].rstrip(), _function_name(row)
  if start:
    form = f"{_START}\n\n```python\n{start}\n```"
  else:
    form = _STDIN if function is None else f"Write the Python function `{function}`."
  return f"{row['question_content']}\n\n{form}"


def livecodebench(release: str) -> Benchmark:
  """The benchmark.

  Args:
    release: as in `release_files`.

  Raises:
    UserError: there is no such release.
  """
  kept = ("question_title", "platform", "contest_date", "difficulty", "starter_code")
  return Benchmark(
      Hub("livecodebench/code_generation_lite", files=True),
      split="test",
      parts=release_files(release),
      columns=dict.fromkeys(
          (*kept, "question_content", "question_id", "public_test_cases", "private_test_cases",
           "metadata"), TEXT),
      question=_question,
      reference=tests_of,
      identity=lambda row: row["question_id"],
      metadata=lambda row: {key: row[key] for key in kept})
