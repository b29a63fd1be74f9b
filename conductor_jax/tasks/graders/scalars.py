r"""Whether two numbers, or two expressions with symbols, are the same.

Numbers are compared exactly or to 200 digits, expressions at points that depend on both texts.
Nothing is simplified, so nothing hangs in simplifying, and no difference is too small to be seen.

A symbol may stand for any real number. Two expressions are the same if they agree for all positive
symbols, wherever a sign is turned and both are real, and if the answer is real where the reference
is: √(1/n) is 1/√n, and |x| is not x.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import mpmath
import sympy

from conductor_jax.tasks.graders import units
from conductor_jax.tasks.graders.evaluation import (
  Evaluator,
  Undefined,
  Unsupported,
  as_float,
  sample,
)
from conductor_jax.tasks.graders.values import Scalar

_POINTS = 4      # at which expressions must agree
_TRIES = 24      # points tried until expressions have values at that many
_MAX_SYMBOLS = 8
_MIN_DIGITS = 6  # of a decimal that stands for a number which it cannot write exactly
# Two values are taken to both numbers of digits, and their difference tells whether they are equal.
_COARSE, _FINE = 60, 200
# Some expressions have values for small numbers only: arcsin x, √(1-x²).
_SIZES = (Fraction(1), Fraction(1, 5), Fraction(7))


def quotient(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
  """a / b, not evaluated."""
  return sympy.Mul(a, sympy.Pow(b, -1, evaluate=False), evaluate=False)


def same_scalar(gold: Scalar, found: Scalar, salt: str) -> bool:
  """Whether an answer is the reference, their units and percent signs included.

  Args:
    salt: both texts; the points at which expressions are compared follow from it.

  Raises:
    TooLarge: a value is beyond all measure.
  """
  if units.differ(gold.unit, found.unit):
    return False
  if (gold.percent == found.percent or gold.digits or found.digits) and same_number(
      gold, found, salt):
    return True
  # 15 % is 0.15, and what a question for a percentage means by 15.
  percent, other = (gold, found) if gold.percent else (found, gold)
  if percent.percent == other.percent:
    return False
  return same_number(Scalar(quotient(percent.expression, sympy.Integer(100))), other, salt)


def same_number(gold: Scalar, found: Scalar, salt: str) -> bool:
  """Whether two expressions are the same, whatever unit they have.

  Raises:
    TooLarge: a value is beyond all measure.
  """
  a, b = gold.expression, found.expression
  if a == b:
    return not a.has(sympy.zoo, sympy.nan)
  if infinite(a) or infinite(b):
    return infinite(a) == infinite(b)
  exact = isinstance(a, sympy.Rational) and isinstance(b, sympy.Rational)
  if not exact and same_expression(a, b, salt):
    return True
  return _rounds_to(gold, found) or _rounds_to(found, gold)


def infinite(expression: sympy.Expr) -> int:
  """The sign of an infinity, 0 for anything else."""
  if not expression.has(sympy.oo, -sympy.oo) or expression.has(
      sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit):
    return 0
  return {sympy.oo: 1, -sympy.oo: -1}.get(expression.doit(), 0)


def _rounds_to(exact: Scalar, decimal: Scalar) -> bool:
  """Whether a decimal is the exact number rounded or cut off at the decimal's last digit."""
  if decimal.places is None or exact.places is not None or decimal.digits < _MIN_DIGITS:
    return False
  if exact.expression.free_symbols:
    return False
  try:
    value = Evaluator(60, real=True)(exact.expression)
  except (Undefined, Unsupported):
    return False
  step = Fraction(1, 10**decimal.places)
  rounded = Fraction(int(decimal.expression.p), int(decimal.expression.q))
  if isinstance(value, Fraction):
    # Where the decimal could have been exact, it must be.
    return (value / step).denominator > 1 and abs(value - rounded) < step
  with mpmath.workdps(60):
    return bool(abs(value - as_float(rounded)) < as_float(step))


def _names(*expressions: sympy.Expr) -> list[str]:
  return sorted({symbol.name for e in expressions for symbol in e.free_symbols})


def _whole_names(*expressions: sympy.Expr) -> set[str]:
  """The symbols that count terms."""
  return {symbol.name for e in expressions for series in e.atoms(sympy.Sum, sympy.Product)
          for limits in series.limits for bound in limits[1:] for symbol in bound.free_symbols}


def _point(names: Sequence[str], whole: set[str], salt: str, attempt: int,
           negative: tuple[str, ...] = ()) -> dict[str, Fraction]:
  values = {}
  for name in names:
    value = sample(f"{salt}{attempt}", name) * _SIZES[attempt % len(_SIZES)]
    if name in whole:
      value = Fraction(2 + value.numerator % 40)
    values[name] = -value if name in negative else value
  return values


def same_expression(gold: sympy.Expr, found: sympy.Expr, salt: str) -> bool:
  """Whether two expressions have the same value wherever they should.

  Raises:
    TooLarge: a value is beyond all measure.
  """
  names = _names(gold, found)
  if len(names) > _MAX_SYMBOLS:
    return False
  if "i" in names or gold.has(sympy.I) or found.has(sympy.I):
    names = [name for name in names if name != "i"]
    return _agree(gold, found, names, salt, real=False, signs=[()]) is True
  turned = [(name,) for name in names] + ([tuple(names)] if len(names) > 1 else [])
  agree = _agree(gold, found, names, salt, real=True, signs=[(), *turned])
  if agree is None:  # real nowhere
    agree = _agree(gold, found, names, salt, real=False, signs=[()])
  return agree is True


def _agree(gold: sympy.Expr, found: sympy.Expr, names: Sequence[str], salt: str, real: bool,
           signs: Sequence[tuple[str, ...]]) -> bool | None:
  """Whether the expressions agree at all points, None where they have no value at any.

  Args:
    signs: the symbols that are negative, point by point; the positive point comes first.
  """
  whole = _whole_names(gold, found)
  agreed = 0
  for negative in signs:
    if whole & set(negative):
      continue
    points = 0
    for attempt in range(2 if negative else _TRIES):
      values, here = _point(names, whole, salt, attempt, negative), f"{salt}{attempt}"
      try:
        if not _same_value(gold, found, real, values, here):
          return False
        points += 1
      except Unsupported:
        return None
      except Undefined:
        # Where one symbol alone is turned, the answer must be real if the reference is.
        if len(negative) < 2 and _defined(gold, real, values, here) and not _defined(
            found, real, values, here):
          return False
      if points == (_POINTS if names and not negative else 1):
        break
    agreed += points
  return True if agreed else None


def _same_value(a: sympy.Expr, b: sympy.Expr, real: bool, values: Mapping[str, Fraction],
               salt: str) -> bool:
  """Whether two expressions have one value at a point.

  Rational values are compared exactly. For others the difference must vanish with the digits
  taken: it falls by a hundred orders of magnitude or is a difference, however small.

  Raises:
    Undefined, TooLarge, Unsupported: as `Evaluator` does; nothing is said about equality.
  """
  differences = []
  for digits in (_COARSE, _FINE):
    evaluate = Evaluator(digits, real, values, salt)
    x, y = evaluate(a), evaluate(b)
    if isinstance(x, Fraction) and isinstance(y, Fraction):
      return x == y
    with mpmath.workdps(digits):
      x, y = as_float(x), as_float(y)
      size = max(abs(x), abs(y))
      differences.append(abs(x - y))
  with mpmath.workdps(_FINE):
    coarse, fine = differences
    if fine == 0:
      return True
    if coarse == 0:
      return fine <= size * mpmath.mpf(10) ** (10 - _FINE)
    return fine <= coarse * mpmath.mpf(10) ** (-(_FINE - _COARSE) + 40)


def _defined(e: sympy.Expr, real: bool, values: Mapping[str, Fraction], salt: str) -> bool:
  try:
    Evaluator(30, real, values, salt)(e)
  except Undefined:
    return False
  return True


def ratio(gold: sympy.Expr, found: sympy.Expr, salt: str) -> Fraction | mpmath.mpf | None:
  """By which number the reference is the answer's multiple, None where it is none.

  Raises:
    TooLarge: a value is beyond all measure.
  """
  names = _names(gold, found)
  if not names or _names(gold) != _names(found):
    return None
  whole = _whole_names(gold, found)
  ratios = []
  for attempt in range(_TRIES):
    evaluate = Evaluator(60, True, _point(names, whole, salt, attempt), f"{salt}{attempt}")
    try:
      x, y = evaluate(gold), evaluate(found)
    except Undefined:
      continue
    except Unsupported:
      return None
    if not x or not y:
      return None
    with mpmath.workdps(60):
      ratios.append(as_float(x) / as_float(y))
      if abs(ratios[-1] - ratios[0]) > abs(ratios[0]) * mpmath.mpf(10) ** -40:
        return None
    if len(ratios) > _POINTS:
      return ratios[0]
  return None
