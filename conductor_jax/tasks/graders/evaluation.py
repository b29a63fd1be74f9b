"""Numbers of expressions: exact where they are rational, else to any number of digits.

Nothing here simplifies, and nothing is worked out that would not fit into memory: an expression is
evaluated node by node, and one whose value is beyond all measure is refused by the size of its
exponents. That keeps a tower of powers from hanging the grader.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import mpmath
import sympy
from sympy.core.function import AppliedUndef

Number = Fraction | mpmath.mpf | mpmath.mpc

_MAX_EXACT_BITS = 2**17
_MAX_EXPONENT_BITS = 2**40
_MAX_FACTORIAL = 8000
_MAX_TERMS = 2000


class Undefined(ArithmeticError):
  """The expression has no value here, such as 1/0."""


class TooLarge(ArithmeticError):
  """The value is beyond all measure."""


class Unsupported(ArithmeticError):
  """A kind of expression that is not evaluated."""


def sample(salt: str, name: str) -> Fraction:
  """A number for a symbol that nobody can foresee who does not know both texts; from 0.3 to 3.4.

  No answer can then be written that is right at the points tried and wrong elsewhere.
  """
  digest = hashlib.sha256(f"{salt}\0{name}".encode("utf-8", "surrogatepass")).digest()
  return Fraction(307 + int.from_bytes(digest[:4], "big") % 690,
                  293 + int.from_bytes(digest[4:8], "big") % 710)


def _real(value: mpmath.mpf | mpmath.mpc) -> Number:
  return value.real if isinstance(value, mpmath.mpc) and value.imag == 0 else value


def as_float(value: Number) -> mpmath.mpf | mpmath.mpc:
  """The value to the digits that mpmath works with."""
  if isinstance(value, Fraction):
    return mpmath.mpf(value.numerator) / value.denominator
  return value


@dataclass(frozen=True)
class Evaluator:
  """Evaluates expressions at one point.

  Attributes:
    digits: how many decimal digits of values that are not rational.
    real: over the real numbers, where √(-1) is undefined and the cube root of -8 is -2; else the
      principal value in the complex plane.
    values: the numbers of the symbols.
    salt: where the values of unknown functions and of symbols that `values` lacks come from.
  """

  digits: int
  real: bool
  values: Mapping[str, Fraction] = field(default_factory=dict)
  salt: str = ""

  def __call__(self, expression: sympy.Expr) -> Number:
    """The value.

    Raises:
      Undefined, TooLarge, Unsupported: there is none, for the reason that they name.
    """
    try:
      with mpmath.workdps(self.digits):
        return self._value(expression)
    except (ZeroDivisionError, ValueError) as fault:
      raise Undefined(str(fault)) from fault
    except (OverflowError, MemoryError) as fault:
      raise TooLarge(str(fault)) from fault
    except (RecursionError, TypeError, AttributeError, NotImplementedError) as fault:
      raise Unsupported(f"{type(fault).__name__}: {fault}") from fault

  def _value(self, e: sympy.Expr) -> Number:
    if isinstance(e, sympy.Rational):
      return Fraction(int(e.p), int(e.q))
    if isinstance(e, sympy.Float):
      return Fraction(str(e))
    if isinstance(e, sympy.Symbol):
      return self._symbol(e.name)
    if isinstance(e, sympy.Add):
      return self._sum([self._value(argument) for argument in e.args])
    if isinstance(e, sympy.Mul):
      return self._product([self._value(argument) for argument in e.args])
    if isinstance(e, sympy.Pow):
      return self._power(self._value(e.base), self._value(e.exp))
    if isinstance(e, sympy.exp):
      return self._exponential(self._value(e.args[0]))
    if isinstance(e, sympy.UnevaluatedExpr):
      return self._value(e.args[0])
    if isinstance(e, AppliedUndef):
      return self._application(e)
    if isinstance(e, (sympy.Sum, sympy.Product)):
      return self._series(e)
    if isinstance(e, (sympy.Integral, sympy.Limit, sympy.Derivative)):
      return self._closed_form(e)
    if e in _CONSTANTS:
      return _CONSTANTS[e]()
    if e is sympy.I:
      if self.real:
        raise Undefined("it is not real")
      return mpmath.mpc(0, 1)
    if e in (sympy.oo, -sympy.oo, sympy.zoo, sympy.nan):
      raise Undefined("it is not finite")
    return self._function(e, [self._value(argument) for argument in e.args])

  def _symbol(self, name: str) -> Number:
    if name in self.values:
      return self.values[name]
    if name != "i":
      return sample(self.salt, name)
    if self.real:
      raise Undefined("it is not real")
    return mpmath.mpc(0, 1)

  def _application(self, e: AppliedUndef) -> Number:
    arguments = [self._value(argument) for argument in e.args]
    name = str(e.func)
    if len(arguments) == 1 and name == r"\pi":
      return self._product([mpmath.mp.pi, arguments[0]])
    return sample(self.salt, f"{name}({','.join(map(_key, arguments))})")

  def _sum(self, values: list[Number]) -> Number:
    exact = sum((value for value in values if isinstance(value, Fraction)), Fraction(0))
    rest = [value for value in values if not isinstance(value, Fraction)]
    if not rest:
      return exact
    return _real(mpmath.fsum([*rest, as_float(exact)]))

  def _product(self, values: list[Number]) -> Number:
    exact, rest = Fraction(1), None
    for value in values:
      if isinstance(value, Fraction):
        exact *= value
        if exact.numerator.bit_length() + exact.denominator.bit_length() > _MAX_EXACT_BITS:
          rest = as_float(exact) if rest is None else rest * as_float(exact)
          exact = Fraction(1)
      else:
        rest = value if rest is None else rest * value
    if rest is None or exact == 0:
      return exact
    return _real(rest * as_float(exact))

  def _power(self, base: Number, exponent: Number) -> Number:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
      if base == 0 and exponent <= 0:
        if exponent == 0:
          return Fraction(1)
        raise Undefined("division by zero")
      if base in (0, 1) or exponent == 0:
        return base if exponent else Fraction(1)
      if exponent.denominator == 1:
        if base == -1:
          return Fraction(-1 if exponent % 2 else 1)
        bits = base.numerator.bit_length() + base.denominator.bit_length()
        if bits * abs(exponent) <= _MAX_EXACT_BITS:
          return base ** int(exponent)
      elif self.real and base < 0:
        if exponent.denominator % 2 == 0:
          raise Undefined("an even root of a negative number")
        root = self._power(-base, exponent)
        return -root if exponent.numerator % 2 else root
      elif base > 0 and exponent.denominator <= 12 and abs(exponent) < 100:
        root = _exact_root(base, exponent.denominator)
        if root is not None:
          return self._power(root, Fraction(exponent.numerator))
    if not base:
      if as_float(exponent).real > 0:
        return Fraction(0)
      raise Undefined("zero to a power that is not positive")
    if self.real and as_float(base) < 0:
      if not (isinstance(exponent, Fraction) and exponent.denominator % 2):
        raise Undefined("a power of a negative number")
      power = self._power(-base, exponent)
      return -power if exponent.numerator % 2 else power
    x, y = as_float(base), as_float(exponent)
    self._check(mpmath.log(abs(x), 2) * abs(y))
    return _real(mpmath.power(x, y))

  def _exponential(self, x: Number) -> Number:
    if x == 0:
      return Fraction(1)
    self._check(x)
    return _real(mpmath.exp(as_float(x)))

  def _check(self, exponent: Number) -> None:
    if abs(as_float(exponent)) > _MAX_EXPONENT_BITS:
      raise TooLarge("its size is beyond all measure")

  def _closed_form(self, e: sympy.Expr) -> Number:
    done = _rebuilt(e).doit()
    if done.has(type(e)):
      raise Unsupported(f"a {type(e).__name__} without a closed form")
    return self._value(done)

  def _series(self, e: sympy.Sum | sympy.Product) -> Number:
    if len(e.limits) != 1 or len(e.limits[0]) != 3:
      raise Unsupported("a series over several indices")
    index, first, last = e.limits[0]
    if last.has(sympy.oo) or first.has(sympy.oo):
      return self._closed_form(e)
    first, last = self._value(first), self._value(last)
    if not (isinstance(first, Fraction) and isinstance(last, Fraction)
            and first.denominator == last.denominator == 1):
      raise Unsupported("a series between bounds that are no whole numbers")
    if last - first >= _MAX_TERMS:
      raise TooLarge("a series of too many terms")
    terms = [
        Evaluator(self.digits, self.real, {**self.values, index.name: Fraction(k)}, self.salt)
        ._value(e.function) for k in range(int(first), int(last) + 1)]
    return self._sum(terms) if isinstance(e, sympy.Sum) else self._product(terms)

  def _function(self, e: sympy.Expr, arguments: list[Number]) -> Number:
    kind = type(e)
    if kind is sympy.log:
      return self._logarithm(*arguments)
    x = arguments[0]
    if kind is sympy.Abs:
      return abs(x)
    if kind in (sympy.floor, sympy.ceiling):
      return self._whole(x, math.floor if kind is sympy.floor else math.ceil)
    if kind is sympy.factorial:
      return self._factorial(x)
    if kind is sympy.Mod and all(isinstance(value, Fraction) for value in arguments):
      return x % arguments[1]
    if kind in (sympy.Max, sympy.Min):
      if any(isinstance(value, mpmath.mpc) for value in arguments):
        raise Undefined("complex numbers have no order")
      return max(arguments, key=as_float) if kind is sympy.Max else min(
          arguments, key=as_float)
    if kind is sympy.gamma:
      return self._factorial(self._sum([x, Fraction(-1)]))
    name = _MPMATH_NAMES.get(kind)
    if name is None:
      raise Unsupported(f"the function {kind.__name__}")
    if abs(as_float(x)) > 2**64:
      raise TooLarge(f"{kind.__name__} of a number beyond all measure")
    value = _real(getattr(mpmath, name)(as_float(x)))
    if self.real and isinstance(value, mpmath.mpc):
      raise Undefined("it is not real")
    return value

  def _logarithm(self, x: Number, base: Number | None = None) -> Number:
    if x == 0 or self.real and as_float(x) < 0:
      raise Undefined("a logarithm of a number that is not positive")
    if base is None:
      return _real(mpmath.log(as_float(x)))
    if base in (0, 1) or self.real and as_float(base) < 0:
      raise Undefined("a logarithm to a base that is not positive")
    return _real(mpmath.log(as_float(x)) / mpmath.log(as_float(base)))

  def _whole(self, x: Number, rounded) -> Fraction:
    if isinstance(x, Fraction):
      return Fraction(rounded(x))
    if isinstance(x, mpmath.mpc):
      raise Undefined("a complex number has no whole part")
    if abs(x) > mpmath.mpf(10) ** (self.digits // 2):
      raise TooLarge("the whole part of a number beyond all measure")
    nearest = mpmath.nint(x)
    if abs(x - nearest) < mpmath.mpf(10) ** (-self.digits // 3):
      return Fraction(int(nearest))
    return Fraction(int(mpmath.floor(x)) + (rounded is math.ceil))

  def _factorial(self, n: Number) -> Number:
    if isinstance(n, Fraction) and n.denominator == 1:
      if n < 0:
        raise Undefined("the factorial of a negative number")
      if n <= _MAX_FACTORIAL:
        return Fraction(math.factorial(int(n)))
    self._check(n)
    return _real(mpmath.gamma(as_float(n) + 1))


_CONSTANTS = {
    sympy.pi: lambda: +mpmath.mp.pi, sympy.E: lambda: +mpmath.mp.e,
    sympy.EulerGamma: lambda: +mpmath.mp.euler}
_MPMATH_NAMES = {
    sympy.sin: "sin", sympy.cos: "cos", sympy.tan: "tan", sympy.cot: "cot", sympy.sec: "sec",
    sympy.csc: "csc", sympy.asin: "asin", sympy.acos: "acos", sympy.atan: "atan",
    sympy.acot: "acot", sympy.asec: "asec", sympy.acsc: "acsc", sympy.sinh: "sinh",
    sympy.cosh: "cosh", sympy.tanh: "tanh", sympy.asinh: "asinh", sympy.acosh: "acosh",
    sympy.atanh: "atanh"}


def _rebuilt(e: sympy.Basic) -> sympy.Basic:
  """The expression in SymPy's own form, which the parser bypasses and `doit` needs."""
  return e.func(*map(_rebuilt, e.args)) if e.args else e


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
  parts = []
  for part in (value.numerator, value.denominator):
    if part.bit_length() > 4096:
      return None
    root, exact = sympy.integer_nthroot(part, degree)
    if not exact:
      return None
    parts.append(int(root))
  return Fraction(*parts)


def _key(value: Number) -> str:
  return str(value) if isinstance(value, Fraction) else mpmath.nstr(value, 20)
