"""Whether an answer states what its reference states, part by part."""

import re
from collections.abc import Callable, Sequence

import sympy
from sympy.core.function import AppliedUndef

from conductor_jax.tasks.graders.scalars import quotient, ratio, same_number, same_scalar
from conductor_jax.tasks.graders.sets import FLIPPED, same_set
from conductor_jax.tasks.graders.values import (
  Based,
  Brackets,
  Collection,
  Grid,
  NumberSet,
  Ratio,
  Relation,
  Scalar,
  SetOperation,
  Value,
  Verbatim,
  Words,
  is_name,
)

_CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?")
_SETS = (Brackets, SetOperation, NumberSet, Relation, Collection)


def normal_words(text: str) -> str:
  """Words without case, punctuation and spacing; signs of mathematics stay."""
  text = re.sub(r"\\(?:text|mbox|mathrm|textbf|mathbf)(?![A-Za-z])|\\[,;:! ]|[{}$]", " ", text)
  return " ".join(re.findall(r"[^\W_]+|(?<![^\W_])-|[+=<>^%]", text.casefold()))


def same_result(gold: Value, found: Value, salt: str) -> bool:
  """Whether an answer states what the reference states.

  Args:
    salt: both texts; the points at which expressions are compared follow from it.

  Raises:
    TooLarge: a value is beyond all measure.
  """
  return _Comparison(salt).same(gold, found)


class _Comparison:

  def __init__(self, salt: str):
    self._salt = salt
    self._kinds: tuple[tuple[type, type, Callable[..., bool]], ...] = (
        (Scalar, Scalar, self._scalars),
        (Based, Based, lambda gold, found: gold == found),
        (Based, Scalar, lambda gold, found: self._based(gold, found)),
        (Scalar, Based, lambda gold, found: self._scalars(gold, _decimal(found))),
        (Words, Words, lambda gold, found: normal_words(gold.text) == normal_words(found.text)),
        (Words, Scalar, lambda gold, found: self._letter(gold, found)),
        (Scalar, Words, lambda gold, found: self._letter(found, gold)),
        (Verbatim, Verbatim, lambda gold, found: gold == found),
        (NumberSet, NumberSet, lambda gold, found: gold == found),
        (Collection, Collection, lambda gold, found: self._unordered(gold.items, found.items)
         or same_set(gold, found)),
        (Brackets, Brackets, self._brackets),
        (Grid, Grid, lambda gold, found: len(gold.rows) == len(found.rows)
         and all(map(self._ordered, gold.rows, found.rows))),
        (Ratio, Ratio, self._ratios),
        (Ratio, Scalar, lambda gold, found: self._scalars(self._value(gold), found)),
        (Scalar, Ratio, lambda gold, found: self._scalars(gold, self._value(found))),
        (SetOperation, SetOperation, lambda gold, found: self._operations(gold, found)
         or same_set(gold, found)),
        (_SETS, _SETS, same_set),
    )

  def same(self, gold: Value, found: Value) -> bool:
    if isinstance(gold, Relation) or isinstance(found, Relation):
      return self._relations(gold, found)
    if isinstance(gold, Collection) and len(gold.items) == 1:
      return self.same(gold.items[0], found)
    if isinstance(found, Collection) and not isinstance(gold, (Collection, *_SETS)):
      # 15 39/40, or 639/40: one value in two forms.
      return all(self.same(gold, item) for item in found.items)
    for gold_kind, found_kind, compare in self._kinds:
      if isinstance(gold, gold_kind) and isinstance(found, found_kind):
        return compare(gold, found)
    return False

  def _ordered(self, gold: Sequence[Value], found: Sequence[Value]) -> bool:
    return len(gold) == len(found) and all(map(self.same, gold, found))

  def _unordered(self, gold: Sequence[Value], found: Sequence[Value]) -> bool:
    if len(gold) != len(found):
      return False
    left = list(found)
    for value in gold:
      match = next((i for i, other in enumerate(left) if self.same(value, other)), None)
      if match is None:
        return False
      left.pop(match)
    return True

  def _scalars(self, gold: Scalar, found: Scalar) -> bool:
    return same_scalar(gold, found, self._salt)

  def _letter(self, words: Words, symbol: Scalar) -> bool:
    return normal_words(words.text) == str(symbol.expression).casefold()

  def _based(self, based: Based, number: Scalar) -> bool:
    """Whether a number without a base has the digits of one with it."""
    return (number.places is None and not number.percent and based.digits.isdigit()
            and number.expression == sympy.Integer(based.digits))

  def _brackets(self, gold: Brackets, found: Brackets) -> bool:
    if len(gold.items) == 2 and (gold.opening, gold.closing) != (found.opening, found.closing):
      return False  # intervals, or they may be
    return self._ordered(gold.items, found.items)

  def _operations(self, gold: SetOperation, found: SetOperation) -> bool:
    ordered = gold.operator == r"\setminus"
    return gold.operator == found.operator and (
        self._ordered if ordered else self._unordered)(gold.parts, found.parts)

  @staticmethod
  def _value(colons: Ratio) -> Scalar:
    value, *others = (part.expression for part in colons.parts)
    for other in others:
      value = quotient(value, other)
    return Scalar(value)

  def _ratios(self, gold: Ratio, found: Ratio) -> bool:
    if _CLOCK.fullmatch(gold.text) and _CLOCK.fullmatch(found.text):
      return gold.text.lstrip("0") == found.text.lstrip("0")
    return len(gold.parts) == len(found.parts) and all(
        self._scalars(Scalar(quotient(a.expression, gold.parts[0].expression)),
                      Scalar(quotient(b.expression, found.parts[0].expression)))
        for a, b in zip(gold.parts[1:], found.parts[1:], strict=True))

  def _relations(self, gold: Value, found: Value) -> bool:
    if not isinstance(gold, Relation):
      stated = self._stated(found, named_only=False)
      return stated is not None and self.same(gold, stated) or self._sets(gold, found)
    if not isinstance(found, Relation):
      stated = self._stated(gold, named_only=True)
      return stated is not None and self.same(stated, found) or self._sets(gold, found)
    a, b = self._stated(gold, named_only=True), self._stated(found, named_only=True)
    if a is not None and b is not None and _same_name(gold.sides[0], found.sides[0]):
      return self.same(a, b)
    return self._multiples(gold, found) or self._chains(gold, found) or self._sets(gold, found)

  @staticmethod
  def _sets(gold: Value, found: Value) -> bool:
    return isinstance(gold, _SETS) and isinstance(found, _SETS) and same_set(gold, found)

  def _stated(self, relation: Relation, named_only: bool) -> Value | None:
    """What a chain of equations states at its end, None where it states nothing.

    Args:
      named_only: whether the first side must be a name, as in y = 2x + 3, so that 2x + z = 1 states
        no number.
    """
    sides, operators = list(relation.sides), list(relation.operators)
    if not set(operators) <= {"=", r"\in", r"\approx"}:
      return None
    if r"\approx" in operators:
      end = operators.index(r"\approx") + 1
      if end > 1 or not is_name(sides[0]):
        sides = sides[:end]  # what stood there before it was rounded
    if is_name(sides[-1]) and not is_name(sides[0]):
      sides.reverse()
    if named_only and not is_name(sides[0]):
      return None
    stated = sides[-1]
    for side in sides[:-1]:
      if isinstance(side, Scalar) and not (
          side.expression.free_symbols or side.expression.has(AppliedUndef)):
        if not (isinstance(stated, Scalar) and same_number(side, stated, self._salt)):
          return None  # it contradicts itself: 4 = 5
    return stated

  def _multiples(self, gold: Relation, found: Relation) -> bool:
    """Whether an equation or inequality is a multiple of the other."""
    if gold.operators[0] not in FLIPPED or len(gold.sides) != 2 or len(found.sides) != 2:
      return False
    differences = []
    for relation in (gold, found):
      left, right = relation.sides
      if not (isinstance(left, Scalar) and isinstance(right, Scalar)):
        return False
      differences.append(sympy.Add(
          left.expression, sympy.Mul(-1, right.expression, evaluate=False), evaluate=False))
    factor = ratio(*differences, self._salt)
    if factor is None:
      return False
    operator = found.operators[0]
    return gold.operators[0] == (operator if factor > 0 else FLIPPED.get(operator))

  def _chains(self, gold: Relation, found: Relation) -> bool:
    """Whether two chains, such as 1 < x < 2 and 2 > x > 1, are the same side by side."""
    if gold.operators == found.operators and self._ordered(gold.sides, found.sides):
      return True
    flipped = tuple(FLIPPED.get(operator) for operator in reversed(found.operators))
    return gold.operators == flipped and self._ordered(gold.sides, found.sides[::-1])


def _decimal(based: Based) -> Scalar:
  """The number in base ten; no number where a digit is beyond the base."""
  try:
    return Scalar(sympy.Integer(int(based.digits, based.base)))
  except ValueError:
    return Scalar(sympy.nan)


def _same_name(a: Value, b: Value) -> bool:
  if type(a) is not type(b) or not (is_name(a) and is_name(b)):
    return False
  if isinstance(a, Words):
    return normal_words(a.text) == normal_words(b.text)
  if isinstance(a, Scalar):
    return a.expression == b.expression
  if isinstance(a, Ratio):
    return a.text == b.text
  return len(a.items) == len(b.items) and all(map(_same_name, a.items, b.items))
