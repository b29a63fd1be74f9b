"""Lists, brackets, equations and words, part by part."""

import pytest

from conductor_jax.tasks.graders.equivalence import normal_words, same_result
from conductor_jax.tasks.graders.reading import read


def same(gold, found):
  return same_result(read(gold), read(found), f"{gold}\0{found}")


@pytest.mark.parametrize("gold, found", [
    ("2, 7", "7, 2"), (r"\{2, 7\}", "7, 2"), (r"3\pm\sqrt{5}", r"3-\sqrt{5}, 3+\sqrt{5}"),
    ("2, 7", "x = 2, x = 7"), ("2, 7", "x = 7, 2"), ("a = 2, b = 7", "b = 7, a = 2"),
    ("(2, 7)", r"\left(2, \frac{14}{2}\right)"), ("(2, 7)", "(x, y) = (2, 7)"),
    ("[2, 7]", "[2, 7]"),
    ("(1, 2, 3)", r"\langle 1, 2, 3\rangle"), (r"\{5\}", "5"), ("5", r"\{5\}"),
    ("(1, 2), (3, 4)", "(3, 4), (1, 2)"), (r"\frac{7}{2}", r"3\frac{1}{2}, \frac{7}{2}"),
    (r"(0, 1)\cup(2, 3)", r"(2, 3)\cup(0, 1)"),
    (r"\begin{pmatrix} 1 \\ 0.5 \end{pmatrix}", r"\begin{bmatrix} 1 \\ 1/2 \end{bmatrix}")])
def test_lists_have_no_order_and_brackets_have_one(gold, found):
  assert same(gold, found)


@pytest.mark.parametrize("gold, found", [
    ("2, 7", "2"), ("2", "2, 7"), ("2, 7", "2, 7, 9"), ("2, 7", "2, 2"),
    ("a = 2, b = 7", "a = 7, b = 2"),
    ("(2, 7)", "(7, 2)"), ("(2, 7)", "[2, 7]"), ("[2, 7)", "[2, 7]"), ("(2, 7)", r"\{2, 7\}"),
    ("(2, 7)", "2, 7"), ("2", r"2\pm 1"), (r"\pm 8", "8"), ("n = 2, 3, 4", "n = 1, 2, 3"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \end{pmatrix}"),
    (r"(0, 1)\cup(2, 3)", "(0, 1)")])
def test_lists_that_differ(gold, found):
  assert not same(gold, found)


@pytest.mark.parametrize("gold, found", [
    ("4", "n = 4"), ("n = 4", "4"), ("4", "4 = n"), ("4", "2 + 2 = 4"), ("4", "x = 8/2 = 4"),
    ("4", "|AB| = 4"), ("4", r"\angle ABC = 4"), ("y = 3x - 1", "3x - 1"), ("f(x) = 3x", "3x"),
    ("y = 3x - 1", "3x - y - 1 = 0"), ("2x - 3y = 5", "-4x + 6y = -10"),
    ("2x - 3y = 5", "2x = 3y + 5"),
    ("x^2/9 + y^2 = 1", "x^2 + 9y^2 = 9"), (r"x > 3", "3 < x"), (r"x \le 3", r"-x \ge -3"),
    (r"\frac{1}{7}", r"x = \frac{1}{7} \approx 0.143"), ("4", r"x \approx 4"),
    ("x \\ne 3", "x != 3"),
    ("D = (0, 1)", "(0, 1)"), ("1 < x < 2", "2 > x > 1"), ("F_n = a_n b_n", "F_n = b_n a_n")])
def test_equations_state_the_same(gold, found):
  assert same(gold, found)


@pytest.mark.parametrize("gold, found", [
    ("(3, 4)", "7 = (3, 4)"), (r"x \in [1, 2]", r"7 \in [1, 2]"), ("2x - 3y = 5", "2x - 3y = 6"),
    ("2x - 3y = 5", "3x - 3y = 5"), ("2x - 3y = 5", "2x + 3y = 5"),
    ("5*a-2*b+7=0", "5a + 2b + 8=0"), ("x = 4", "y = 4"), ("x = 4", "x = 5"), ("4", "4 = 5"),
    ("5", "4 = 5"),
    ("5", "x = 4 = 5"), ("2x + z = 1", "1"), ("f(x) = 3x", "g(x) = 4x"), ("x^2 = -1", "x^2 = -2"),
    ("x > 3", "x < 3"), ("x > 3", r"x \ge 3"), ("3", "x > 3"), ("3", r"x \ne 3"),
    ("D = (0, 1)", "D = (0, 2)"),
    ("f(x) = 0", "f(x) = 1"), (r"F_n = \sum_{k=0}^{n} F_k", r"F_n = \sum_{k=1}^{n} F_k"),
    ("x = y", "x = z")])
def test_equations_that_state_something_else(gold, found):
  assert not same(gold, found)


@pytest.mark.parametrize("gold, found, expected", [
    ("204_7", "204_{7}", True), ("204_7", "204", True), ("204_7", "204_8", False),
    ("204_7", "203_7", False),
    ("204_7", "102", False), ("102", "204_7", True), ("204", "204_7", False), ("9", "9_2", False),
    ("204_7", r"102_{10}", False),
    ("3:5", "6:10", True), ("3:5", r"\frac{3}{5}", True), ("3:5", "5:3", False),
    ("2:3:4", "4:6:8", True),
    ("2:3:4", "2:3", False), ("11:30", "1:30", False), ("09:15", "9:15", True),
    ("12:00", "1:00", False),
    (r"1, 2, \ldots, n", r"1,2,\ldots,n", True), (r"1, 2, \ldots, n", r"1, 3, \ldots, n", False),
    (r"1:2:\ldots", r"1:3:\ldots", False), (r"\emptyset", r"\varnothing", True),
    (r"\emptyset", "0", False), (r"\text{odd}", "Odd", True), (r"\text{odd}", "even", False),
    (r"\text{(D)}", "D", True), (r"\text{(D)}", "(d)", True), (r"\text{(D)}", "C", False),
    ("5", "odd", False)])
def test_bases_ratios_times_and_words(gold, found, expected):
  assert same(gold, found) is expected


def test_words_have_neither_case_nor_punctuation():
  assert normal_words(r"\text{The  Blue} heron!") == "the blue heron"
