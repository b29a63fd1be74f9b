"""The comparison itself, in this process: nothing here may hang."""

import pytest

from conductor_jax.tasks.graders.math import final_expression, grade
from conductor_jax.tasks.task import GradingError


@pytest.mark.parametrize("reference, answer", [
    (r"\dfrac{9}{7}", r"\boxed{\dfrac{9}{7}}"),
    (r"\frac{1}{2}", "So it is 0.5."),
    (r"\frac{1}{3}", r"\boxed{0.333333}"),
    ("5", "$5$"),
    ("5", "x=5"),
    ("x=5", r"\boxed{5}"),
    ("1,234", "1234"),
    (r"\{1,2\}", r"\boxed{2,1}"),
    (r"\text{Evelyn}", "Evelyn"),
    (r"\text{Evelyn}", "<answer>evelyn</answer>"),
    ("5", r"<answer>The answer is \boxed{5}.</answer>"),
    ("90^\\circ", r"\boxed{90}"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"\boxed{(3, \pi/2)}"),
    (r"\sin^2 x + \cos^2 x", r"\boxed{1}"),
    ("0", r"\boxed{\sin(\pi)}"),
    (r"2\mathrm{e}", r"\boxed{2e}"),
    (r"\frac{1}{\mathrm{e}}", r"\boxed{\frac{1}{ e }}"),
    ("1+i", r"\boxed{1+\mathrm{i}}"),
    (r"\sqrt{2}", r"\boxed{\sqrt(2)}"),
    (r"\sqrt{1/n}", r"$\frac{1}{\sqrt{n}}$"),
    (r"\sqrt{x^2}", "|x|"),
    ("204_5", r"\boxed{204_{5}}"),
    ("204_5", r"\boxed{204}"),
    (r"\boxed{7}", "7"),
])
def test_right_answers(reference, answer):
  assert grade(reference, answer)[0] is True


@pytest.mark.parametrize("reference, answer", [
    ("3*x-1*y+13=0", "3x + 4y + 14=0"),
    (r"$\frac{1}{2004!}$", r"$\frac{1}{2006!}$"),
    (r"$1 - \frac{1}{\mathrm{e}}$", r"$1 + \frac{1}{\mathrm{e}}$"),
    ("$4$", r"$4\sqrt(2)$"),
    ("10^{-7}", r"\boxed{2\cdot 10^{-7}}"),
    ("0.0000001", r"\boxed{0.0000002}"),
    (r"(0.0000001, 1)", r"\boxed{(0.0000002, 1)}"),
    ("10^{20}+1", r"\boxed{10^{20}+2}"),
    (r"\frac{x}{10^{20}}", r"\boxed{\frac{2x}{10^{20}}}"),
    (r"\frac13", "0.333"),
    ("|x|", "x"),
    ("x", "|x|"),
    (r"\sqrt{x^2}", "x"),
    (r"\ln(x^2)", r"2\ln(x)"),
    ("204_5", r"\boxed{204_6}"),
    ("204_5", r"\boxed{203_5}"),
    ("(1,2)", r"\boxed{(1,3)}"),
    ("6", r"It is \boxed{6}, or rather \boxed{5}"),
])
def test_wrong_answers(reference, answer):
  assert grade(reference, answer)[0] is False


def test_a_tower_of_powers_is_refused_without_evaluation():
  tower = r"5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)}"
  assert grade("$4$", rf"\boxed{{\dfrac{{{tower} - 5}}{{16}}}}")[0] is False


@pytest.mark.parametrize("answer", ["", "I am not sure"])
def test_an_answer_without_an_expression_is_unparsed(answer):
  correct, extracted, reason = grade("5", answer)
  assert (correct, extracted) == (False, None)
  assert "unparsed" in reason


def test_the_reason_names_both_sides():
  assert grade("6", r"\boxed{5}") == (False, "5", "The answer 5 is not the reference 6.")


@pytest.mark.parametrize("reference", ["", "???", r"\frac{"])
def test_an_unreadable_reference_is_a_grading_error(reference):
  with pytest.raises(GradingError, match="not a mathematical expression"):
    grade(reference, "5")


@pytest.mark.parametrize("answer, expected", [
    (r"\boxed{1} then \boxed{\frac{1}{2}}.", (r"\frac{1}{2}", True)),
    (r"<answer>$x+1$</answer>", ("x+1", True)),
    (r"\[ x+1 \]", ("x+1", True)),
    ("2x + 3y = 4", ("2x + 3y = 4", True)),
    ("It is 5.", ("It is 5.", False)),
    ("$1$ and $2$", ("$1$ and $2$", False)),
    ("<think>\\boxed{3}</think>4", ("4", True)),
])
def test_the_final_expression(answer, expected):
  assert final_expression(answer) == expected


def test_of_a_long_text_the_last_lines_count():
  text, whole = final_expression("We know that.\n" * 1000 + "So it is 5.")
  assert not whole
  assert len(text) <= 1000
  assert text.endswith("So it is 5.")
