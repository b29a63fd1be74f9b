"""The tests of a coding task, as they travel in `Task.reference`.

A reference is a text, so tests are JSON there, compressed where it is long: LiveCodeBench has
several megabytes of numbers for many a task. A form is told by its fields. None may be empty: what
has no tests would pass them all.
"""

import base64
import json
import zlib
from dataclasses import asdict, dataclass, fields
from typing import Any

_LONG = 1 << 15  # characters
_COMPRESSED = "zlib:"  # and base64


@dataclass(frozen=True)
class StdinTests:
  """A program is run once per test, and what it prints is compared (LiveCodeBench).

  Attributes:
    inputs: standard input of each test.
    outputs: what is to be printed.
  """

  inputs: tuple[str, ...]
  outputs: tuple[str, ...]

  def __post_init__(self):
    _check_pairs(self.inputs, self.outputs)
    _check_texts(*self.inputs, *self.outputs)

  def to_reference(self) -> str:
    return _written(self)


@dataclass(frozen=True)
class FunctionTests:
  """A function is called once per test, and what it returns is compared (LiveCodeBench).

  Attributes:
    function: its name, or that of a method of the class `Solution`.
    arguments: the positional arguments of each test, JSON values.
    outputs: what is to be returned, JSON values.
  """

  function: str
  arguments: tuple[list[Any], ...]
  outputs: tuple[Any, ...]

  def __post_init__(self):
    _check_name(self.function)
    _check_pairs(self.arguments, self.outputs)
    for arguments in self.arguments:
      if not isinstance(arguments, list):
        raise ValueError(f"the arguments of a test must be a list, got {arguments!r:.60}")

  def to_reference(self) -> str:
    return _written(self)


@dataclass(frozen=True)
class CheckTests:
  """A function is handed to `check`, which asserts what it returns (HumanEval).

  Attributes:
    prompt: the beginning of the program, which a completion may leave out; what it defines, `check`
      may use.
    check: source of the function `check(candidate)`.
    entry_point: the name of the function.
  """

  prompt: str
  check: str
  entry_point: str

  def __post_init__(self):
    _check_name(self.entry_point)
    _check_texts(self.prompt, self.check)
    if "def check(" not in self.check:
      raise ValueError("the tests must define check(candidate)")

  def to_reference(self) -> str:
    return _written(self)


@dataclass(frozen=True)
class UnitTests:
  """Classes of `unittest` that call a function (BigCodeBench).

  Attributes:
    code_prompt: the beginning of the program, which a completion may leave out.
    source: source of the test classes.
    entry_point: the name of the function.
  """

  code_prompt: str
  source: str
  entry_point: str

  def __post_init__(self):
    _check_name(self.entry_point)
    _check_texts(self.code_prompt, self.source)
    if "TestCase" not in self.source:
      raise ValueError("the tests must define a unittest.TestCase")

  def to_reference(self) -> str:
    return _written(self)


def _written(tests: Any) -> str:
  text = json.dumps(asdict(tests))
  if len(text) <= _LONG:
    return text
  return _COMPRESSED + base64.b64encode(zlib.compress(text.encode())).decode()


CodeTests = StdinTests | FunctionTests | CheckTests | UnitTests


def read_tests(reference: str) -> CodeTests:
  """Reads what `to_reference` wrote.

  Raises:
    ValueError: there are no tests, or not in one of the forms; one sentence.
  """
  text = reference
  try:
    if text.startswith(_COMPRESSED):
      text = zlib.decompress(base64.b64decode(text[len(_COMPRESSED):], validate=True)).decode()
    read = json.loads(text)
  except (ValueError, RecursionError, zlib.error) as fault:
    raise ValueError(f"the tests are not JSON: {fault}") from fault
  for form in (StdinTests, FunctionTests, CheckTests, UnitTests):
    if isinstance(read, dict) and set(read) == {field.name for field in fields(form)}:
      return form(**{name: tuple(value) if isinstance(value, list) else value
                     for name, value in read.items()})
  raise ValueError(f"the tests are in no form that is known: {reference[:60]!r}")


def _check_name(name: Any) -> None:
  if not (isinstance(name, str) and name.isidentifier()):
    raise ValueError(f"the name of the function must be an identifier, got {name!r:.60}")


def _check_texts(*texts: Any) -> None:
  for text in texts:
    if not isinstance(text, str):
      raise ValueError(f"the tests must be texts, got {text!r:.60}")


def _check_pairs(inputs: Any, outputs: Any) -> None:
  for many in (inputs, outputs):
    if not isinstance(many, tuple):
      raise ValueError(f"inputs and outputs must be lists, got {many!r:.60}")
  if not inputs:
    raise ValueError("there are no tests: at least one is needed")
  if len(inputs) != len(outputs):
    raise ValueError(f"there are {len(inputs)} inputs and {len(outputs)} outputs: they must match")
