"""Whether a program's output is what its test expects: printed texts, and JSON values."""

from decimal import Decimal, InvalidOperation
from typing import Any


def same_output(printed: str, expected: str) -> bool:
  """Compares what programs print as LiveCodeBench does.

  Line by line, without white space around lines and around the whole; the numbers of a line that
  differs as a text may be written in another way, such as 1.0 for 1.
  """
  ours, theirs = ([line.strip() for line in text.strip().split("\n")]
                  for text in (printed, expected))
  return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def _same_line(printed: str, expected: str) -> bool:
  if printed == expected:
    return True
  ours, theirs = printed.split(), expected.split()
  try:
    return len(ours) == len(theirs) and all(
        Decimal(a) == Decimal(b) for a, b in zip(ours, theirs, strict=True))
  except InvalidOperation:  # not a number, or one whose exponent is out of all bounds
    return False


def same_value(returned: Any, expected: Any) -> bool:
  """Compares JSON values: true is not 1, but 1.0 is.

  Raises:
    RecursionError: they are nested too deep.
  """
  if isinstance(returned, bool) or isinstance(expected, bool):
    return returned is expected
  if isinstance(returned, (int, float)) and isinstance(expected, (int, float)):
    return returned == expected or returned != returned and expected != expected
  if type(returned) is not type(expected):
    return False
  if isinstance(returned, list):
    return len(returned) == len(expected) and all(map(same_value, returned, expected))
  if isinstance(returned, dict):
    return returned.keys() == expected.keys() and all(
        same_value(returned[key], expected[key]) for key in expected)
  return returned == expected
