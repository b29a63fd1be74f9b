"""What an answer can state: a number, a list, a set, an interval, an equation, words."""

from dataclasses import dataclass

import sympy
from sympy.core.function import AppliedUndef


@dataclass(frozen=True)
class Scalar:
  """One expression.

  Attributes:
    expression: what the parser made of it; nothing in it is evaluated.
    places: digits behind the point where it is a decimal number and nothing else, else None.
    digits: of such a number, how many are significant.
    percent: whether a percent sign follows.
    unit: the unit that follows, empty where there is none.
  """

  expression: sympy.Expr
  places: int | None = None
  digits: int = 0
  percent: bool = False
  unit: str = ""


@dataclass(frozen=True)
class Based:
  """A whole number with its base written out, such as 204_5."""

  digits: str
  base: int


@dataclass(frozen=True)
class Words:
  """No mathematics: a name, a word, the left side of an equation in words."""

  text: str


@dataclass(frozen=True)
class Verbatim:
  """Mathematics that is compared as it is written, such as 1, 2, …, n."""

  text: str


@dataclass(frozen=True)
class NumberSet:
  """The real numbers and the like, and the empty set."""

  name: str


@dataclass(frozen=True)
class Collection:
  """Values in no order: a list, a set in braces, both values of a ±."""

  items: tuple["Value", ...]


@dataclass(frozen=True)
class Brackets:
  """Values in an order, in brackets: a point, a vector, an interval."""

  opening: str
  closing: str
  items: tuple["Value", ...]


@dataclass(frozen=True)
class Grid:
  """A matrix."""

  rows: tuple[tuple["Value", ...], ...]


@dataclass(frozen=True)
class Ratio:
  """Values with colons between them."""

  parts: tuple["Value", ...]
  text: str


@dataclass(frozen=True)
class SetOperation:
  r"""A union of sets, or what \setminus and \cap make of two."""

  operator: str
  parts: tuple["Value", ...]


@dataclass(frozen=True)
class Relation:
  """Sides with relations between them, one more than there are relations."""

  sides: tuple["Value", ...]
  operators: tuple[str, ...]


Value = (Scalar | Based | Words | Verbatim | NumberSet | Collection | Brackets | Grid | Ratio |
         SetOperation | Relation)


def is_name(value: Value) -> bool:
  """Whether a value is the name of something: x, f(x), AB, (x, y), or words."""
  if isinstance(value, Words):
    return True
  if isinstance(value, Scalar):
    e = value.expression
    if isinstance(e, sympy.Abs):
      e = e.args[0]
    # AB and ABC are segments and triangles.
    return isinstance(e, (sympy.Symbol, AppliedUndef)) or isinstance(e, sympy.Mul) and all(
        part.is_Symbol and part.name.isupper() for part in e.args)
  parts = value.parts if isinstance(value, Ratio) else getattr(value, "items", None)
  return bool(parts) and all(map(is_name, parts))


def symbols_of(value: Value) -> frozenset[str]:
  """The names of the symbols in a value."""
  if isinstance(value, Scalar):
    return frozenset(symbol.name for symbol in value.expression.free_symbols)
  if isinstance(value, Grid):
    parts = sum(value.rows, ())
  else:
    parts = next((getattr(value, field) for field in ("items", "parts", "sides")
                  if hasattr(value, field)), ())
  return frozenset().union(*map(symbols_of, parts))
