"""One number: GSM8K, and other word problems."""

import re
from fractions import Fraction

from conductor_jax.tasks.graders.markers import boxes, last, last_tagged, without_thinking
from conductor_jax.tasks.task import Grade, GradingError

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
# A minus sign after a digit, a letter or a bracket subtracts; it is not the number's own.
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w)\]}])-)?(?:\$(?P<minus>-)?)?(?:"
    r"\\[dt]?frac\{(?P<numerator>-?[0-9]+)\}\{(?P<denominator>[0-9]+)\}|"
    rf"(?P<decimal>{_DIGITS}(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)"
    r"(?P<exponent>[eE][+-]?[0-9]{1,3}(?![\w.]))?"
    r"(?:/(?P<divisor>[0-9]+)(?![\w.]))?)")
_HASHES = re.compile(r"####([^\n]*)")
# What typesetting puts between groups of three digits beside a plain comma.
_GROUPING = re.compile(
    r"(?<=[0-9])(?:,?\\[!, ]|\{,\}|[\u00a0\u2009\u202f])(?=[0-9]{3}(?![0-9]))")


def _value(match: re.Match) -> Fraction | None:
  """The number, None where it has no value (division by zero, digits beyond all measure)."""
  try:
    if match["numerator"] is not None:
      value = Fraction(int(match["numerator"]), int(match["denominator"]))
    else:
      value = Fraction(match["decimal"].replace(",", "") + (match["exponent"] or ""))
      if match["divisor"] is not None:
        value /= int(match["divisor"])
  except (ValueError, ZeroDivisionError):
    return None
  return -value if match["sign"] or match["minus"] else value


def _plain(text: str) -> str:
  return _GROUPING.sub("", text.replace("\\$", "$").replace("\u2212", "-"))


def extract(answer: str) -> re.Match | None:
  r"""The final number: in the last of `<answer>`, `\boxed{}` and `####`, else the last of all."""
  answer = _plain(without_thinking(answer))
  marked = [(match.start(), match.group(1)) for match in _HASHES.finditer(answer)]
  marked += boxes(answer)
  tagged = last_tagged(answer)
  if tagged:
    marked.append(tagged)
  for _, text in sorted(marked, reverse=True):
    match = last(_NUMBER, text)
    if match:
      return match
  return last(_NUMBER, answer)


def grade(reference: str, answer: str) -> Grade:
  """Compares the answer's final number exactly: "29.00" is "29", "1/3" is not "0.333".

  Raises:
    GradingError: the reference is not a number.
  """
  match = _NUMBER.fullmatch(_plain(reference).strip().removesuffix("%").removesuffix("."))
  expected = _value(match) if match else None
  if expected is None:
    raise GradingError(f"the reference {reference!r} is not a number")
  found = extract(answer)
  if found is None:
    return Grade(False, None, "The answer holds no number (unparsed).")
  correct = _value(found) == expected
  return Grade(correct, found.group(), f"The answer's final number, {found.group()}, "
               f"{'equals' if correct else 'is not'} the reference {reference}.")
