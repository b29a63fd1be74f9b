"""What texts are read as."""

import pytest
import sympy

from conductor_jax.tasks.graders.reading import read
from conductor_jax.tasks.graders.spelling import Unreadable
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
    Verbatim,
    Words,
    is_name,
    symbols_of,
)


def scalar(value, **attributes):
  return Scalar(sympy.sympify(value), **attributes)


@pytest.mark.parametrize("text, value", [
    ("17", scalar(17, digits=2)),
    ("-4", scalar(-4, digits=1)),
    ("48,500", scalar(48500, digits=5)),
    (r"\frac{3}{8}", scalar("3/8")),
    ("0.0250", scalar("1/40", places=4, digits=3)),
    (r"35\%", scalar(35, digits=2, percent=True)),
    ("35 percent", scalar(35, digits=2, percent=True)),
    (r"6\text{ cm}", scalar(6, digits=1, unit="cm")),
    ("6 cm", scalar(6, digits=1, unit="cm")),
    ("6cm", scalar(6, digits=1, unit="cm")),
    (r"12\mbox{ in}^2", scalar(12, digits=2, unit="in^2")),
    ("12 apples", scalar(12, digits=2, unit="apples")),
    ("40^\\circ", scalar(40, digits=2, unit="degree")),
    (r"\$5", scalar(5, digits=1)),
    ("= 5", scalar(5, digits=1)),
    ("(5)", scalar(5, digits=1)),
    (r"\frac{3}{8} \text{ miles}", scalar("3/8", unit="miles")),
])
def test_numbers(text, value):
  assert read(text) == value


def test_words_of_scale_multiply():
  assert read("3 million").expression.doit() == 3_000_000
  assert read(r"3 \text{ thousand}").expression.doit() == 3000


@pytest.mark.parametrize("text", ["6m", "6 m", "2t", "3g", "2xy", "2 abc"])
def test_letters_behind_a_number_are_factors(text):
  assert read(text).unit == ""
  assert len(read(text).expression.free_symbols) == len(text) - 1 - text.count(" ")


def test_a_letter_behind_a_space_may_be_a_unit_where_that_is_asked_for():
  assert read("6 m", lone_units=True) == scalar(6, digits=1, unit="m")
  assert read("6 x", lone_units=True).unit == ""
  assert read("6m", lone_units=True).unit == ""


def test_a_letter_of_the_reference_is_never_a_unit():
  assert read("6cm", frozenset("cm")).expression == 6 * sympy.Symbol("c") * sympy.Symbol("m")
  with pytest.raises(Unreadable, match="factor or a unit"):
    read(r"6\text{ m}", frozenset("m"))


@pytest.mark.parametrize("text, value", [
    ("3, 8", Collection((scalar(3, digits=1), scalar(8, digits=1)))),
    ("3 and 8", Collection((scalar(3, digits=1), scalar(8, digits=1)))),
    (r"\{3; 8\}", Collection((scalar(3, digits=1), scalar(8, digits=1)))),
    (r"\pm 3", Collection((scalar(3, digits=1), scalar(-3, digits=1)))),
    ("(3, 8)", Brackets("(", ")", (scalar(3, digits=1), scalar(8, digits=1)))),
    ("[3, 8)", Brackets("[", ")", (scalar(3, digits=1), scalar(8, digits=1)))),
    (r"\langle 3, 8\rangle", Brackets("(", ")", (scalar(3, digits=1), scalar(8, digits=1)))),
    (r"\begin{pmatrix} 3 \\ 8 \end{pmatrix}", Grid(((scalar(3, digits=1),),
    (scalar(8, digits=1),)))),
    (r"\left[\begin{array}{cc} 3 & 8 \end{array}\right]",
     Grid(((scalar(3, digits=1), scalar(8, digits=1)),))),
    ("204_7", Based("204", 7)), (r"204_{\text{seven}}", Based("204", 7)),
    ("(1A)_{16}", Based("1A", 16)),
    ("3:8", Ratio((scalar(3, digits=1), scalar(8, digits=1)), "3:8")),
    (r"\mathbb{R}", NumberSet("R")), (r"\varnothing", NumberSet("empty")),
    (r"\text{odd}", Words("odd")), ("Maria", Words("Maria")), (r"\text{(B)}", Words("(B)")),
    (r"1, 2, \ldots, n", Verbatim(r"1,2,\ldots,n")),
    ("n = 4", Relation((scalar("n"), scalar(4, digits=1)), ("=",))),
    (r"1 < x \le 4", Relation((scalar(1, digits=1), scalar("x"), scalar(4, digits=1)),
    ("<", r"\le"))),
    (r"\text{Area} = 4", Relation((Words("Area"), scalar(4, digits=1)), ("=",))),
])
def test_structures(text, value):
  assert read(text) == value


def test_unions_and_differences_of_sets():
  union = read(r"(0,1)\cup(1,2)")
  assert isinstance(union, SetOperation) and (union.operator, len(union.parts)) == (r"\cup", 2)
  assert read(r"\mathbb{R}\setminus\{2\}") == SetOperation(
      r"\setminus", (NumberSet("R"), Collection((scalar(2, digits=1),))))


def test_grouped_digits_are_a_list_where_that_is_asked_for():
  assert read("100,200") == scalar(100200, digits=6)
  numbers = scalar(100, digits=3), scalar(200, digits=3)
  assert read("100,200", grouped=False) == Collection(numbers)
  assert isinstance(read("(100,200)"), Brackets)


@pytest.mark.parametrize("text", [
    "", "???", r"\frac{", "3 4", r"5\text{ is wrong}", r"\text{not }5", "(1,)", "x=",
    r"\forall x, y", "a" * 2000, r"5\text{ or more}", "5 + ", r"4\text{ plus }3", "1,2)",
    r"\text{not }x = 5", r"\neg x = 5", r"x\%", r"\pi\%", r"5\text{ cm million}"])
def test_what_cannot_be_read_whole_is_refused(text):
  with pytest.raises(Unreadable):
    read(text)


@pytest.mark.parametrize("text", ["x", "f(x)", "AB", "|AB|", "(x, y)", "x_{1}", r"\text{Total}"])
def test_names(text):
  assert is_name(read(text))


@pytest.mark.parametrize("text", ["5", "2x", "x+1", "(1, 2)", "ab"])
def test_what_is_no_name(text):
  assert not is_name(read(text))


def test_symbols_are_found_in_every_part():
  assert symbols_of(read(r"\{(a, 2b), c\}")) == {"a", "b", "c"}
  assert symbols_of(read(r"y = 3x + e")) == {"x", "y"}
  assert symbols_of(read(r"\begin{pmatrix} p \\ 1 \end{pmatrix}")) == {"p"}
