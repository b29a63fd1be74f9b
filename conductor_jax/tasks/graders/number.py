"""One number: GSM8K, SVAMP, MultiArith, and other word problems."""

import re
from dataclasses import dataclass
from fractions import Fraction

from conductor_jax.tasks.graders.markers import (
    boxes,
    last,
    last_boxes,
    last_statement,
    last_tagged,
    without_thinking,
)
from conductor_jax.tasks.task import Grade, GradingError

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
# A minus sign after a digit, a letter or a bracket subtracts; it is not the number's own.
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w)\]}])-)?(?:\$(?P<minus>-)?)?(?:"
    r"(?P<whole>[0-9]{1,9})?\\[dt]?frac\{(?P<numerator>-?[0-9]+)\}\{(?P<denominator>[0-9]+)\}|"
    rf"(?P<decimal>{_DIGITS}(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)"
    r"(?P<exponent>[eE][+-]?[0-9]{1,3}(?!\w|\.[0-9]))?"
    r"(?:/(?P<divisor>[0-9]+)(?!\w|\.[0-9]))?)"
    r"(?:\s{0,3}(?:\\text\{\s{0,3})?(?P<scale>hundred|thousand|million|billion)(?![a-z]))?")
_SCALES = {None: 1, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_HASHES = re.compile(r"####([^\n]*)")
# What typesetting puts between groups of three digits beside a plain comma.
_GROUPING = re.compile(
    r"(?<=[0-9])(?:,?\\[!, ]|\{,\}|[\u00a0\u2009\u202f])(?=[0-9]{3}(?![0-9]))")
_UNIT_POWER = re.compile(
    r"(?<=[A-Za-z}])\s{0,3}\^\s{0,3}\{?[0-9]\}?|\^\s{0,3}(?:\\circ|\{\s{0,3}\\circ\s{0,3}\})")
# Beside a number in a box: what makes another number of it, or denies it.
_CHANGES = re.compile(
    r"[+*/^!<>×·÷√π]|\\(?:sqrt|pi|cdot|times|div|d?frac|pm|log|ln|sin|cos|tan|binom|ge|le|gt|lt|ne)"
    r"(?![A-Za-z])|\b(?:not|no|never|pi|sqrt)\b|n't\b")
_OTHER_CHOICE = re.compile(r"\s{1,4}or\s{1,4}(?:\$|\\\$)?[0-9]")
_FACTOR = re.compile(r"(?![mgslLhVWJNAKCF])[a-zA-Z](?![a-zA-Z])")  # 5x; 5m is a length

# Between "the answer is" and its number.
_LEADING = re.compile(
    r"[\s*_:$(]{0,6}(?:(?:a|an|the|total|sum|of|exactly|just|only|simply|then|therefore|thus|now|about|"
    r"approximately|equal|to)\s{1,3}){0,4}[*_$(]{0,6}")
# Behind its first number: more of a sum, of a list or of a range, whose end counts.
_GOES_ON = re.compile(
    r"[\s*_$)]{0,6}+(?:[-+*/^=<>≈×·÷–]|\\(?:times|cdot|div|approx)|"
    r",?\s{0,3}(?:and|or|to)?\s{0,3}\$?[0-9]|"
    r"(?:%\s{0,3})?(?:times|plus|minus|divided|multiplied|less|more|out|of|or)\b)")
_CORRECTION = re.compile(r"\b(?i:wait|actually|correction|corrected|sorry|rather|instead|no)\b")


@dataclass(frozen=True)
class FinalNumber:
  """What an answer states at its end.

  Attributes:
    text: as it is written.
    value: None where it is no single plain number.
  """

  text: str
  value: Fraction | None


def _value(match: re.Match) -> Fraction | None:
  """The number, None where it has no value (division by zero, digits beyond all measure)."""
  try:
    if match["numerator"] is not None:
      value = Fraction(int(match["numerator"]), int(match["denominator"]))
      value += int(match["whole"] or 0)
    else:
      value = Fraction(match["decimal"].replace(",", "") + (match["exponent"] or ""))
      if match["divisor"] is not None:
        value /= int(match["divisor"])
  except (ValueError, ZeroDivisionError):
    return None
  value *= _SCALES[match["scale"]]
  return -value if match["sign"] or match["minus"] else value


def _plain(text: str) -> str:
  return _GROUPING.sub("", text.replace("\\$", "$").replace("\u2212", "-"))


def _of_mark(text: str) -> FinalNumber | None:
  """The number that a mark sets off; it must be the only one, or come last behind a "="."""
  text = _UNIT_POWER.sub("", text.rpartition("=")[2]).strip()
  numbers = list(_NUMBER.finditer(text))
  if not numbers:
    return None
  number = numbers[0]
  behind = text[number.end():]
  if len(numbers) > 1 or _CHANGES.search(text[:number.start()]) or _CHANGES.search(behind) or (
      _FACTOR.match(behind)):
    return FinalNumber(text, None)
  return FinalNumber(number.group(), _value(number))


def _of_words(text: str) -> FinalNumber | None:
  """The last number in a text; "5 or 6" is none."""
  number = last(_NUMBER, text)
  if number is None:
    return None
  before = text[max(0, number.start() - 40):number.end()]
  if choice := last(_OTHER_CHOICE, before):
    if before[choice.end() - 1:] in number.group() and _NUMBER.search(before[:choice.start()]):
      return FinalNumber(before.strip(), None)
  return FinalNumber(number.group(), _value(number))


def _of_statement(answer: str) -> FinalNumber | None:
  """The number in the last "the answer is …", None where it is not clear that it is the first."""
  text = last_statement(answer).lstrip(" \n*_")
  number = _NUMBER.search(text.partition("\n")[0])
  if number is None or not _LEADING.fullmatch(text, 0, number.start()):
    return None
  if _GOES_ON.match(text, number.end()) or _CORRECTION.search(text, number.end()):
    return None
  return FinalNumber(number.group(), _value(number))


def extract(answer: str) -> FinalNumber | None:
  r"""The final number: in the last of `<answer>`, `\boxed{}` and `####`, else as "the answer is …"
  states it where that is clear, else the last of all.

  A box, a `####` line, or a tag without words holds one number and nothing that changes it; a list
  of several candidates is no number.
  """
  answer = _plain(without_thinking(answer))
  marked = [(match.start(), match.group(1), _of_mark) for match in _HASHES.finditer(answer)]
  marked += [(start, content, _of_mark) for start, content in boxes(answer)]
  if len(beside := last_boxes(answer)) > 1:
    marked.append((boxes(answer)[-1][0] + 1, ", ".join(beside), _of_mark))
  tagged = last_tagged(answer)
  if tagged:
    in_words = re.search(r"[A-Za-z]{2,}\s+[A-Za-z]{2,}", tagged[1])
    marked.append((*tagged, _of_words if in_words else _of_mark))
  for _, text, read in sorted(marked, key=lambda mark: mark[0], reverse=True):
    if found := read(text):
      return found
  return _of_statement(answer) or _of_words(answer)


def grade(reference: str, answer: str) -> Grade:
  """Compares the answer's final number exactly: "29.00" is "29", "1/3" is not "0.333".

  Raises:
    GradingError: the reference is not a number.
  """
  match = _NUMBER.fullmatch(_plain(reference).strip().removesuffix("%").removesuffix("."))
  expected = _value(match) if match else None
  if expected is None:
    raise GradingError(f"the reference {reference!r} is not a number")
  return compared(reference, expected, answer)


def compared(reference: str, expected: Fraction, answer: str, *, whole: bool = False) -> Grade:
  """The verdict on an answer's final number.

  Args:
    reference: as it is shown.
    expected: its value.
    answer: the whole text.
    whole: whether a fraction is wrong whatever its value.
  """
  found = extract(answer)
  if found is None:
    return Grade(False, None, "The answer holds no number (unparsed).")
  if found.value is None or whole and found.value.denominator > 1:
    return Grade(False, found.text, f"The answer ends in {found.text!r:.60}, which is not one "
                 f"{'whole' if whole else 'plain'} number such as the reference {reference}.")
  correct = found.value == expected
  return Grade(correct, found.text, f"The answer's final number, {found.text}, "
               f"{'equals' if correct else 'is not'} the reference {reference}.")
