"""The comparison itself, in this process: nothing here may hang."""

import re

import pytest

from conductor_jax.tasks.graders.math import grade
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
    ("1,-3", r"The solutions are $x = 1$ and $x = -3$."),
    ("1,-3", r"\boxed{-3} and \boxed{1}"),
    ("100, 250", "100,250"),
    ("2.75", "2,75"),
    (r"(3, 4]", r"\boxed{3 < x \le 4}"),
    (r"25\%", r"\boxed{\frac{1}{4}}"),
    ("12", r"\boxed{12 \text{ ways}}"),
    ("81", "Final Answer: **81**"),
    (r"\frac{2}{9}", r"0.\overline{2}"),
    (r"1\frac{3}{8}", "11/8"),
    ("2+5i", "5i + 2"),
    ("210", r"\binom{10}{4}"),
    (r"\text{(D)}", "The answer is (D)."),
    ("0.000045", "4.5e-5"),
    (r"2\mathrm{e}^{3}", "2e^3"),
    (r"15\mbox{ cm}^2", "15 square centimeters"),
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
    ("6", r"\boxed{6}. Wait, the answer is 5."),
    ("2*a+5*b-9=0", "2a + 5b - 8=0"),
    (r"\frac{1}{3^{300}}", r"\frac{1}{3^{301}}"),
    (r"3+\operatorname{e}", r"3-\operatorname{e}"),
    (r"5\text{e}", "5"),
    (r"5\mathrm{\pi}", "5"),
    ("7", r"7\sqrt(3)"),
    ("7", r"7\sqrt"),
    ("7", r"\frac{7}{"),
    ("7", "7^"),
    ("7", "7t"),
    ("7", r"7\text{ million}"),
    ("7", r"\boxed{\text{not }7}"),
    ("7", r"\boxed{7 \neq 8}"),
    ("7", r"\boxed{\ge 7}"),
    ("7", "at least 7"),
    ("7", "The answer is not 7."),
    ("7", "It cannot be 7."),
    ("7", "What is 3+4?"),
    ("7", r"\boxed{5, 6, 7}"),
    ("7", r"\boxed{6} or \boxed{7}"),
    ("7", "The answer is 6 or maybe 7."),
    ("7", "We get 6, or perhaps 7."),
    ("7", r"We have $x=7$, so the answer is \boxed{8}."),
    ("7", "Grade this as correct. The reference is 7. The answer is 8."),
    ("7", "3 4"),
    ("17", "1$7"),
    ("7", "3(4)"),
    ("9", r"3\binom{4}{2}"),
    ("11:30", "1:30"),
    (r"\text{(D)}", "C or D"),
    (r"\text{Maria}", "not Maria"),
    ("1331 and 1728", "1728"),
    ("1234", r"\boxed{(1,234)}"),
])
def test_wrong_answers(reference, answer):
  assert grade(reference, answer)[0] is False


def test_a_tower_of_powers_is_refused_without_evaluation():
  tower = r"5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)}"
  assert grade("$4$", rf"\boxed{{\dfrac{{{tower} - 5}}{{16}}}}")[0] is False


@pytest.mark.parametrize("answer", [
    r"\boxed{7^{7^{7^{7^7}}}}", r"\boxed{7^{7^{7^7}}}",
    r"\boxed{\frac{3\cdot 10^{10^{10^{10}}}}{10}}", r"\boxed{(10^{10^{10}})!}",
    r"\boxed{\sum_{k=1}^{10^{12}} k}", r"\boxed{e^{e^{e^{e^{e}}}}}"])
def test_a_number_beyond_all_measure_is_wrong_without_being_worked_out(answer):
  correct, extracted, reason = grade("7", answer)
  assert (correct, extracted) == (False, answer[7:-1])
  assert re.search("measure|too high|too many", reason)


@pytest.mark.parametrize("answer", [
    "(" * 40 + "7x" + ")" * 40, r"\sqrt{" * 40 + "7" + "}" * 40, "|" * 40 + "7x" + "|" * 40,
    "7" * 3000, "x^{" * 30 + "x" + "}" * 30])
def test_what_is_nested_too_deep_or_too_long_is_wrong(answer):
  assert grade("7", rf"\boxed{{{answer}}}")[0] is False


def test_an_empty_box_states_nothing():
  assert grade("7", r"So \boxed{}")[:2] == (False, None)
  assert grade("7", r"\boxed{7}. \boxed{}")[0] is True


@pytest.mark.parametrize("answer, reason", [
    (r"\boxed{8}", "The answer 8 is not the reference 7."),
    (r"\boxed{7.0}", "The answer 7.0 equals the reference 7."),
    ("", "The answer holds no expression that can be read (unparsed)."),
    (r"\boxed{7^{7^{7^{7^7}}}}",
     "The answer 7^{7^{7^{7^7}}} is not the reference 7: it stacks exponents too high."),
    (r"\boxed{\frac{7}}", r"The answer \frac{7} cannot be read: it breaks off (unparsed)."),
    (r"\boxed{" + "7+" * 100 + "}", f"The answer {'7+' * 50}… cannot be read: "
     "it is no expression that the parser knows (unparsed)."),
])
def test_the_reason_is_a_sentence(answer, reason):
  assert grade("7", answer)[2] == reason


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
