r"""A few words, a number with a unit, or an expression: RLPR.

Mathematics is compared as in `math.py`, words by what they say: case, articles, punctuation and
LaTeX around them make no difference, and "two" is 2. Decimals may differ by 1e-4 of the reference,
which the rule-based verifier in RLPR's repository allows (`math_equal` in
`verl/utils/reward_score/prime_math_train`), and whole numbers must be exact, as there. That
verifier drops units; here, known units that differ make answers differ.

The parser may hang, so `grade` belongs in a child process: see `process.py`.
"""

import re
import unicodedata
from functools import lru_cache

import mpmath
import sympy

from conductor_jax.tasks.graders import units
from conductor_jax.tasks.graders.evaluation import (
    Evaluator,
    TooLarge,
    Undefined,
    Unsupported,
    as_float,
)
from conductor_jax.tasks.graders.expressions import (
    clause,
    final_expression,
    stated_expression,
    stated_sentence,
    undelimited,
)
from conductor_jax.tasks.graders.markers import last_boxes, statements
from conductor_jax.tasks.graders.math import same_statement, shortened
from conductor_jax.tasks.graders.reading import read
from conductor_jax.tasks.graders.spelling import Unreadable
from conductor_jax.tasks.graders.values import Scalar, Value, Words, symbols_of
from conductor_jax.tasks.task import GradingError

_TOLERANCE = 1e-4
_LONGEST = 200  # characters of a text without marks that may be nothing but the answer
_WRAPPER = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname|boxed)(?![A-Za-z])|\\[,;:! ]")
_DIGITS = {word: str(i) for i, word in enumerate(
    "zero one two three four five six seven eight nine ten eleven twelve".split())}
_WORD = re.compile(r"[^\W_]+(?:[.,/][0-9]+)*|-(?=\s?[0-9.])|[+=<>%/^±]")
_ARTICLES = frozenset(("a", "an", "the"))
_LETTERS = re.compile(r"[A-Za-z\s.,*()]+")
# CO2, NaCl, AB: the case of the letters counts, and their order.
_FORMULA = re.compile(r"(?:[A-Z][a-z]?[0-9]*){2,}")


def _words(text: str) -> list[str]:
  text = unicodedata.normalize("NFKC", _WRAPPER.sub(" ", undelimited(text)))
  words = _WORD.findall(re.sub(r"[{}_$]", "", text).casefold())
  return [_DIGITS.get(word, word) for word in words if word not in _ARTICLES] or words


def _formula(text: str) -> str | None:
  text = re.sub(r"[\s{}_$]|\\[,;:! ]", "", _WRAPPER.sub("", text)).strip(".")
  return text if _FORMULA.fullmatch(text) else None


def _same_words(reference: str, text: str) -> bool:
  if formula := _formula(reference):
    # DNA may be dna.
    return _formula(text) == formula or formula.isupper() and text.strip() == formula.lower()
  return _words(text) == _words(reference)


@lru_cache(1024)
def _mathematics(reference: str) -> Value | None:
  """The reference as mathematics, None where it is none."""
  if _formula(reference):
    return None
  try:
    value = read(reference, lone_units=True)
  except Unreadable:
    return None
  return None if isinstance(value, Words) else value


def _number(value: Value) -> mpmath.mpf | None:
  if not isinstance(value, Scalar) or value.expression.free_symbols:
    return None
  try:
    number = as_float(Evaluator(30, real=True)(value.expression))
  except (Undefined, Unsupported):
    return None
  return number if isinstance(number, mpmath.mpf) else None


def _close(gold: Value, found: Value) -> bool:
  """Whether two numbers are equal within the tolerance; a whole number must be exact."""
  a, b = _number(gold), _number(found)
  if a is None or b is None or isinstance(gold.expression, sympy.Integer) and gold.places is None:
    return False
  return gold.percent == found.percent and not units.differ(gold.unit, found.unit) and bool(
      abs(a - b) <= _TOLERANCE * abs(a))


def _statements(answer: str) -> tuple[list[str], str | None]:
  """The texts that may be the result in words, and the result as mathematics."""
  text, whole = final_expression(answer)
  if sentence := stated_sentence(text):
    return [sentence, clause(sentence)], stated_expression(text)
  if whole and not statements(text):
    return [text], text
  words = [text] if len(text) <= _LONGEST and not statements(text) else []
  return words, stated_expression(text)


def grade(reference: str, answer: str) -> tuple[bool, str | None, str]:
  """Compares an answer with the reference. Call it in a process that may be killed.

  Returns:
    The fields of a Grade.

  Raises:
    GradingError: there is neither a word nor a number in the reference.
  """
  reference = undelimited(reference)
  if boxed := last_boxes(reference):
    reference = undelimited(boxed[-1])
  if not _words(reference):
    raise GradingError(f"there is no word or number in the reference {reference!r}")
  words, expression = _statements(answer)
  gold = _mathematics(reference)
  reason = ""
  if gold is not None and expression:
    try:
      if same_statement(reference, gold, expression, lone_units=True):
        return True, expression, (
            f"The answer {shortened(expression)} equals the reference {reference}.")
      if _close(gold, read(expression, symbols_of(gold), lone_units=True)):
        return True, expression, (f"The answer {shortened(expression)} is within {_TOLERANCE:g} of "
                                  f"the reference {reference}.")
    except (Unreadable, TooLarge) as fault:
      reason = f": as mathematics, {fault}"
  for text in words:
    # Punctuation is mathematics where the reference is: 6! is not 6, nor [3,4) what (3,4] is.
    if (gold is None or _LETTERS.fullmatch(text)) and _same_words(reference, text):
      return True, text, f"The answer {shortened(text)!r} says what the reference {reference} says."
  stated = next(iter(words), expression)
  if not stated or not stated.strip():
    return False, None, "The answer states no result in a few words (unparsed)."
  return False, stated, f"The answer {shortened(stated)} is not the reference {reference}{reason}."
