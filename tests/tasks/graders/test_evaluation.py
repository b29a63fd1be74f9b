"""Values by hand, and what has none."""

import math
from fractions import Fraction

import mpmath
import pytest
import sympy

from conductor_jax.tasks.graders.evaluation import (
    Evaluator,
    TooLarge,
    Undefined,
    Unsupported,
    sample,
)
from conductor_jax.tasks.graders.reading import read


def value(latex, real=True, **values):
  return Evaluator(50, real, {name: Fraction(number) for name, number in values.items()})(
      read(latex).expression)


@pytest.mark.parametrize("latex, exact", [
    ("3", 3), (r"\frac{7}{4}", Fraction(7, 4)), ("0.125", Fraction(1, 8)),
    ("2^{-3}", Fraction(1, 8)),
    (r"\sqrt{49}", 7), (r"\sqrt[3]{-27}", -3), (r"16^{3/4}", 8), ("6!", 720), (r"\binom{9}{2}", 36),
    (r"|2-5|", 3), (r"\lfloor 7.9\rfloor", 7), (r"\lceil -7.1\rceil", -7), (r"17\mod 5", 2),
    (r"\sum_{k=1}^{20} k", 210), (r"\prod_{k=1}^{5} k", 120), (r"\max(3,8)", 8),
    (r"\gcd(12,18)", 6), (r"\sum_{k=0}^{\infty} \frac{1}{4^k}", Fraction(4, 3)),
    (r"\int_0^3 x^2 dx", 9), (r"\lim_{x\to 0}\frac{\sin x}{x}", 1), ("1.5e-3", Fraction(3, 2000)),
    (r"\frac{300!}{299!}", 300), ("(-1)^{7}", -1), ("0^0", 1), (r"e^0", 1)])
def test_rational_values_are_exact(latex, exact):
  result = value(latex)
  assert isinstance(result, Fraction) and result == exact


@pytest.mark.parametrize("latex, expected", [
    (r"\pi", math.pi), ("e^2", math.e**2), (r"\sin 30^\circ", 0.5), (r"\log_2 10", math.log2(10)),
    (r"\log 5", math.log10(5)), (r"\ln 5", math.log(5)), (r"\arctan 1", math.pi / 4),
    (r"\sec 1", 1 / math.cos(1)), (r"2^{\sqrt{2}}", 2**math.sqrt(2)), (r"\lfloor \pi\rfloor", 3),
    (r"2x^2", 18)])
def test_other_values_have_many_digits(latex, expected):
  assert float(value(latex, x=3)) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("latex", [
    r"\frac{1}{0}", r"\sqrt{-4}", r"\ln(-1)", r"\ln 0", r"\arcsin 2", "(-2)!", r"(-2)^{1/2}", "i",
    r"\infty", r"0^{-1}", r"(-2)^{\pi}"])
def test_what_has_no_real_value_is_undefined(latex):
  with pytest.raises(Undefined):
    value(latex)


@pytest.mark.parametrize("latex, expected", [
    (r"\sqrt{-4}", 2j), ("i^2", -1), (r"e^{i\pi}", -1), (r"\ln(-1)", math.pi * 1j),
    (r"\sum_{i=1}^{4} i", 10)])
def test_complex_values_are_principal_ones(latex, expected):
  assert complex(value(latex, real=False)) == pytest.approx(expected)


@pytest.mark.parametrize("latex", [
    "8^{8^{8^8}}", r"\frac{1}{8^{8^{8^8}}}", "e^{e^{e^{e^e}}}", r"(8^{8^8})!", r"\sin(8^{8^8})",
    r"\sum_{k=1}^{10^9} k", r"\lfloor 8^{8^8}\rfloor"])
def test_a_value_beyond_all_measure_is_refused_at_once(latex):
  with pytest.raises(TooLarge):
    value(latex)


def test_large_values_that_can_be_told_apart_are_not_refused():
  assert value("2^{3000}+1") == 2**3000 + 1
  assert mpmath.log(value("8^{8^8}"), 8) == pytest.approx(8**8)


def test_a_series_without_a_closed_form_is_unsupported():
  with pytest.raises(Unsupported):
    value(r"\int_0^1 x^x dx")


def test_an_unknown_function_has_one_value_per_argument():
  evaluate = Evaluator(50, True, {"x": Fraction(2)}, "salt")
  first, same, other = (evaluate(read(text).expression) for text in ("f(x+1)", "f(1+x)", "f(x)"))
  assert first == same != other
  assert evaluate(read("g(x)").expression) != other


def test_samples_depend_on_the_salt_and_lie_where_they_should():
  values = {sample(f"{salt}", "x") for salt in range(200)}
  assert len(values) > 190
  assert all(Fraction(3, 10) < value < Fraction(7, 2) for value in values)
  assert sample("a", "x") == sample("a", "x") != sample("a", "y")


def test_floats_are_what_they_were_written_as():
  assert Evaluator(50, True)(sympy.Float("0.1") * 1) == Fraction(1, 10)
