r"""Mathematical equivalence: MATH-500.

math-verify's parser reads what an answer states, and exact comparisons take the place of its own,
which rounds. A few expressions still hang it, so `grade` belongs in a child process: see
`process.py`.
"""

import re
from functools import lru_cache

from conductor_jax.tasks.graders.equivalence import normal_words, same_result
from conductor_jax.tasks.graders.evaluation import TooLarge
from conductor_jax.tasks.graders.expressions import (
    final_expression,
    stated_expression,
    undelimited,
)
from conductor_jax.tasks.graders.latex import cleaned
from conductor_jax.tasks.graders.markers import last_boxes, statements
from conductor_jax.tasks.graders.reading import read
from conductor_jax.tasks.graders.spelling import Unreadable
from conductor_jax.tasks.graders.values import Collection, Value, Words, symbols_of
from conductor_jax.tasks.task import GradingError

_MAX_EXPONENTS = 3  # 2^(2^(2^n)): no reference of a benchmark stacks more
_DECIMAL_COMMA = re.compile(r"(-?[0-9]+),([0-9]+)")
_MAX_CHARACTERS = 1200
_SHOWN = 100  # characters of an answer in a reason


def _exponents(latex: str) -> int:
  """How many exponents are stacked on one another."""
  deepest, stack = 0, []
  for index, character in enumerate(latex):
    if character == "^":
      deepest = max(deepest, sum(stack) + 1)
    elif character in "{(":
      stack.append(latex[:index].rstrip().endswith("^"))
    elif character in "})" and stack:
      stack.pop()
  return deepest


@lru_cache(1024)
def _reference(reference: str) -> tuple[str, Value]:
  """The reference's expression, as it is written and as it is read."""
  text = undelimited(reference)
  if boxed := last_boxes(text):
    text = undelimited(", ".join(boxed))
  try:
    value = read(text)
  except Unreadable as fault:
    raise GradingError(f"the reference {reference!r} is not a mathematical expression: "
                       f"{fault}") from fault
  return text, value


def same_statement(reference: str, gold: Value, text: str, lone_units: bool = False) -> bool:
  """Whether the text states the reference, which is read as `gold`; `lone_units` as in `read`.

  Raises:
    TooLarge, Unreadable: it is not a result that can be compared, for the reason given.
  """
  if len(text) > max(_MAX_CHARACTERS, 2 * len(reference)):
    raise Unreadable("it is too long for a result")
  if cleaned(text) == cleaned(reference):
    return True
  if isinstance(gold, Words):
    return normal_words(text) == normal_words(gold.text)
  if _exponents(text) > max(_MAX_EXPONENTS, _exponents(reference)):
    raise TooLarge("it stacks exponents too high")
  symbols, salt = symbols_of(gold), f"{reference}\0{text}"
  if same_result(gold, read(text, symbols, lone_units=lone_units), salt):
    return True
  if isinstance(gold, Collection):  # 100,200 is a number, or a list if the reference is one
    return same_result(gold, read(text, symbols, grouped=False), salt)
  if match := _DECIMAL_COMMA.fullmatch(text.strip()):
    return same_result(gold, read(f"{match[1]}.{match[2]}", symbols), salt)
  return False


def shortened(text: str) -> str:
  """A text on one line, and not too long for a reason."""
  text = " ".join(text.split())
  return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def grade(reference: str, answer: str) -> tuple[bool, str | None, str]:
  """Compares an answer with the reference. Call it in a process that may be killed.

  Returns:
    The fields of a Grade.

  Raises:
    GradingError: the reference cannot be read.
  """
  reference, gold = _reference(reference)
  text, whole = final_expression(answer)
  if not whole or statements(text):
    text = stated_expression(text)
  if not text:
    return False, None, "The answer holds no expression that can be read (unparsed)."
  try:
    correct = same_statement(reference, gold, text)
  except Unreadable as fault:
    return False, None, f"The answer {shortened(text)} cannot be read: {fault} (unparsed)."
  except TooLarge as fault:
    return False, text, f"The answer {shortened(text)} is not the reference {reference}: {fault}."
  verdict = "equals" if correct else "is not"
  return correct, text, f"The answer {shortened(text)} {verdict} the reference {reference}."
