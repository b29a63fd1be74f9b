import pytest

from conductor_jax.tasks.graders.reading import read
from conductor_jax.tasks.graders.sets import same_set


@pytest.mark.parametrize("gold, found", [
    ("(1, 4]", r"1 < x \le 4"), ("(1, 4]", r"4 \ge x > 1"), (r"(-\infty, 3)", "x < 3"),
    (r"[3, \infty)", r"x \ge 3"), (r"[3, \infty)", r"3 \le t"), (r"x \in [1, 4]", r"[1, 4]"),
    (r"(-\infty, 1)\cup(4, \infty)", "x < 1 or x > 4"), ("(1, 4)", "x > 1 and x < 4"),
    (r"(-\infty, 2)\cup(2, \infty)", r"\mathbb{R}\setminus\{2\}"),
    (r"x \ne 2", r"\mathbb{R}\setminus\{2\}"),
    (r"\mathbb{R}", r"(-\infty, \infty)"), (r"(0, 2)\cup(1, 3)", "(0, 3)"),
    (r"[0, 3]\cap[2, 5]", "[2, 3]"), (r"(\sqrt{2}, 2)", r"\sqrt{2} < x < 2"),
    (r"\{1, 2\}\cup\{3\}", r"\{1, 2, 3\}"), (r"[0, 1]\setminus\{1\}", "[0, 1)")])
def test_one_set_in_two_forms(gold, found):
  assert same_set(read(gold), read(found))


@pytest.mark.parametrize("gold, found", [
    ("(1, 4]", "1 < x < 4"), ("(1, 4]", r"1 < x \le 5"), (r"(-\infty, 3)", r"x \le 3"),
    (r"(-\infty, 1)\cup(4, \infty)", "x < 1"), (r"(-\infty, 1)\cup(4, \infty)", "1 < x < 4"),
    (r"\mathbb{R}", r"\mathbb{Z}"), ("(0.0000001, 1)", "0.0000002 < x < 1"),
    (r"\{1, 2\}", "(1, 2)"), (r"x \in (1, 4)", "1 < y < 4"), ("(-2, 2)", "x^2 < 4"),
    ("(1, 4)", "x > 1, y < 4"), (r"x \ne 2", r"x \ne 3")])
def test_other_sets_and_inequalities_that_are_not_solved(gold, found):
  assert not same_set(read(gold), read(found))
