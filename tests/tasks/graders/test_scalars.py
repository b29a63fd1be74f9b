"""Numbers and expressions that are the same, and their neighbours that are not."""

import pytest

from conductor_jax.tasks.graders.evaluation import TooLarge
from conductor_jax.tasks.graders.reading import read
from conductor_jax.tasks.graders.scalars import infinite, ratio, same_expression, same_scalar


def same(gold, found):
  return same_scalar(read(gold), read(found), f"{gold}\0{found}")


@pytest.mark.parametrize("gold, found", [
    (r"\frac{3}{8}", "0.375"), (r"\frac{6}{16}", r"\frac{3}{8}"), (r"\sqrt{8}", r"2\sqrt{2}"),
    (r"\frac{1}{\sqrt{3}}", r"\frac{\sqrt{3}}{3}"), (r"\sqrt{7+4\sqrt{3}}", r"2+\sqrt{3}"),
    ("0", r"\sin(\pi)"), ("2^{-80}", r"\frac{1}{2^{80}}"), (r"\ln 9", r"2\ln 3"),
    ("-3", r"\sqrt[3]{-27}"),
    (r"\sqrt{-9}", "3i"), (r"\frac{2}{1+i}", "1-i"), ("-1", r"e^{i\pi}"), (r"\infty", r"+\infty"),
    (r"\frac{(x+1)^2}{x+1}", "x+1"), (r"\tan^2 y+1", r"\sec^2 y"), ("1", r"\sin^2 t+\cos^2 t"),
    (r"\frac{n(n+1)}{2}", r"\sum_{k=1}^{n} k"), ("n!", r"n\cdot (n-1)!"), ("f(x+1)", "f(1+x)")])
def test_the_same(gold, found):
  assert same(gold, found)
  assert same(found, gold)


@pytest.mark.parametrize("gold, found", [
    (r"\frac{1}{1000!}", r"\frac{1}{1001!}"), ("3^{-90}", "3^{-91}"), ("10^{-25}", "0"),
    (r"10^{-40}\pi", r"2\cdot 10^{-40}\pi"), ("0.00000001", "0.00000002"), ("1", r"1+10^{-30}"),
    (r"1+10^{-150}\pi", "1"), ("10^{25}+3", "10^{25}+4"),
    (r"\frac{2^{900}+1}{2^{901}}", r"\frac{1}{2}"),
    (r"\frac{x}{10^{15}}", r"\frac{3x}{10^{15}}"), ("x+10^{-15}", "x"), ("x", "y"), ("R", "r"),
    ("x^2", "x^3"), ("f(x)", "g(x)"), ("f(x)", "f(y)"), (r"\infty", r"-\infty"), (r"\infty", "9"),
    ("1+i", "1-i"), (r"\frac{1}{0}", r"\frac{2}{0}"), ("n!", "(n+1)!"), (r"\sin x", r"\cos x")])
def test_not_the_same(gold, found):
  assert not same(gold, found)
  assert not same(found, gold)


@pytest.mark.parametrize("gold, found", [
    (r"\sqrt{1/m}", r"\frac{1}{\sqrt{m}}"), (r"\sqrt{k/9}", r"\frac{\sqrt{k}}{3}"),
    (r"\sqrt{pq}", r"\sqrt{p}\sqrt{q}"), (r"\sqrt{\frac{p}{q}}", r"\frac{\sqrt{p}}{\sqrt{q}}"),
    (r"\ln(pq)", r"\ln p+\ln q"), (r"\sqrt{x^2}", "|x|"), ("2\\ln x", r"\ln(x^2)"),
    (r"\sqrt[3]{x^3}", "x"), (r"\arcsin(2x)", r"\frac{\pi}{2}-\arccos(2x)")])
def test_symbols_are_positive_where_a_sign_does_not_show(gold, found):
  assert same(gold, found)


@pytest.mark.parametrize("gold, found", [
    ("|x|", "x"), (r"\sqrt{x^2}", "x"), (r"\sqrt{x^2y}", r"x\sqrt{y}"), (r"\ln(x^2)", r"2\ln x"),
    ("xy", "|x||y|"), (r"\sqrt{(x-5)^2}", "x-5")])
def test_a_sign_that_shows_makes_a_difference(gold, found):
  assert not same(gold, found)


@pytest.mark.parametrize("gold, found", [
    (r"\frac{2}{3}", "0.666667"), (r"\frac{2}{3}", "0.666666"), (r"\pi", "3.14159"),
    (r"10\sqrt{2}", "14.1421"), ("0.333333", r"\frac{1}{3}"), (r"\frac{1}{1024}", "0.000976563")])
def test_six_digits_stand_for_a_number_that_has_no_end(gold, found):
  assert same(gold, found)


@pytest.mark.parametrize("gold, found", [
    (r"\frac{2}{3}", "0.667"), (r"\frac{2}{3}", "0.666669"), (r"\pi", "3.14"), ("9720", "9720.02"),
    ("3000000", "3000001.0"), ("1", "0.999999"), ("1", "1.000001"), (r"\frac{1}{4}", "0.250001"),
    ("0.1234567", "0.123456"), ("x", "3.14159")])
def test_a_decimal_that_could_be_exact_must_be(gold, found):
  assert not same(gold, found)


@pytest.mark.parametrize("gold, found, expected", [
    (r"35\%", "35", True), ("35", r"35\%", True), (r"35\%", "0.35", True),
    (r"\frac{7}{20}", r"35\%", True),
    (r"35\%", r"35\%", True), (r"35\%", "0.035", False), (r"35\%", "3.5", False),
    ("0.35", "35", False), (r"35\%", r"36\%", False), (r"\frac{7}{20}", r"\frac{7}{20}\%", False)])
def test_percent(gold, found, expected):
  assert same(gold, found) is expected


@pytest.mark.parametrize("gold, found, expected", [
    (r"6\text{ cm}", "6", True), ("6", r"6\text{ cm}", True),
    (r"6\text{ cm}", "6 centimeters", True),
    (r"6\text{ cm}", r"6\text{ km}", False), (r"6\text{ cm}^2", r"6\text{ cm}^3", False),
    ("60^\\circ", "60", True), ("60^\\circ", r"60\text{ radians}", False)])
def test_units(gold, found, expected):
  assert same(gold, found) is expected


def test_a_value_beyond_all_measure_is_no_verdict_here():
  with pytest.raises(TooLarge):
    same("4", "7^{7^{7^{7^7}}}")


def test_expressions_are_compared_at_points_that_depend_on_both_texts():
  gold, trap = read("x").expression, read(r"x+\lfloor x/7\rfloor").expression
  verdicts = {same_expression(gold, trap, f"salt {i}") for i in range(40)}
  assert False in verdicts


def test_a_ratio_is_a_number_or_none():
  def of(a, b):
    return ratio(read(a).expression, read(b).expression, "salt")

  assert of("6x-4y", "3x-2y") == pytest.approx(2)
  assert of("x-y", "y-x") == pytest.approx(-1)
  assert of("3x-2y", "3x-2y+1") is None
  assert of("x^2", "x") is None
  assert of("x", "y") is None
  assert of("3", "4") is None


@pytest.mark.parametrize("text, sign", [
    (r"\infty", 1), (r"-\infty", -1), ("5", 0), (r"\sum_{k=1}^{\infty} 2^{-k}", 0), ("x", 0)])
def test_infinities_have_a_sign(text, sign):
  assert infinite(read(text).expression) == sign
