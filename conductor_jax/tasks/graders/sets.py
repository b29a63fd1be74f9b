"""Sets of real numbers in different forms: intervals, inequalities, ℝ without 2."""

from fractions import Fraction

import sympy

from conductor_jax.tasks.graders.evaluation import Evaluator, Undefined, Unsupported
from conductor_jax.tasks.graders.scalars import infinite
from conductor_jax.tasks.graders.values import (
  Brackets,
  Collection,
  NumberSet,
  Relation,
  Scalar,
  SetOperation,
  Value,
  is_name,
)

FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "=", r"\ne": r"\ne"}
_NUMBERS = {"R": sympy.Reals, "Z": sympy.Integers, "N": sympy.Naturals, "Q": sympy.Rationals,
            "C": sympy.Complexes, "empty": sympy.EmptySet}
_OPERATIONS = {r"\cup": sympy.Union, r"\cap": sympy.Intersection, r"\setminus": sympy.Complement}


def same_set(gold: Value, found: Value) -> bool:
  """Whether both are sets of real numbers, and the same one.

  An inequality counts where it is solved for its symbol: -2 < x, not x² < 4.

  Raises:
    TooLarge: an end of an interval is beyond all measure.
  """
  unknowns = {name for value in (gold, found) if (name := _unknown(value))}
  if len(unknowns) > 1:
    return False
  a, b = _set(gold), _set(found)
  return a is not None and b is not None and (
      a == b or a.symmetric_difference(b).is_empty is True)


def _unknown(value: Value) -> str | None:
  """The symbol that a solved inequality bounds."""
  if isinstance(value, Relation):
    return next((str(side.expression) for side in value.sides
                 if isinstance(side, Scalar) and side.expression.is_Symbol), None)
  if isinstance(value, Collection):
    return next((name for item in value.items if (name := _unknown(item))), None)
  return None


def _set(value: Value) -> sympy.Set | None:
  if isinstance(value, NumberSet):
    return _NUMBERS[value.name]
  if isinstance(value, Brackets) and len(value.items) == 2:
    return _interval(*value.items, value.opening == "(", value.closing == ")")
  if isinstance(value, SetOperation):
    parts = [_set(part) for part in value.parts]
    return None if None in parts else _OPERATIONS[value.operator](*parts)
  if isinstance(value, Relation):
    return _solutions(value)
  if isinstance(value, Collection):
    if all(isinstance(item, Relation) for item in value.items):
      parts = [_solutions(item) for item in value.items]
      if None in parts or len({_unknown(item) for item in value.items}) != 1:
        return None
      both = sympy.Intersection(*parts)  # x > 2 and x < 5
      return sympy.Union(*parts) if both.is_empty else both
    numbers = [_end(item) for item in value.items]
    return None if None in numbers else sympy.FiniteSet(*numbers)
  return None


def _end(value: Value) -> sympy.Expr | None:
  if not isinstance(value, Scalar) or value.percent or value.expression.free_symbols:
    return None
  if sign := infinite(value.expression):
    return sympy.oo * sign
  try:
    number = Evaluator(30, real=True)(value.expression)
  except (Undefined, Unsupported):
    return None
  if isinstance(number, Fraction):
    return sympy.Rational(number.numerator, number.denominator)
  return value.expression.doit()


def _interval(start: Value, end: Value, left_open: bool, right_open: bool) -> sympy.Set | None:
  a, b = _end(start), _end(end)
  return None if a is None or b is None else sympy.Interval(a, b, left_open, right_open)


def _solutions(relation: Relation) -> sympy.Set | None:
  sides, operators = relation.sides, relation.operators
  if operators == (r"\in",) and is_name(sides[0]):
    return _set(sides[1])
  if operators == (r"\ne",) and is_name(sides[0]):
    point = _end(sides[1])
    return None if point is None else sympy.Complement(sympy.Reals, sympy.FiniteSet(point))
  if operators[0] in (">", r"\ge"):
    sides = sides[::-1]
    operators = tuple(FLIPPED.get(operator, "") for operator in reversed(operators))
  if not set(operators) <= {"<", r"\le"}:
    return None
  opens = [operator == "<" for operator in operators]
  if len(sides) == 2 and is_name(sides[0]):
    return _interval(Scalar(-sympy.oo), sides[1], True, opens[0])
  if len(sides) == 2 and is_name(sides[1]):
    return _interval(sides[0], Scalar(sympy.oo), opens[0], True)
  if len(sides) == 3 and is_name(sides[1]):
    return _interval(sides[0], sides[2], *opens)
  return None
