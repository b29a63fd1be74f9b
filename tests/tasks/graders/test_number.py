import pytest

from conductor_jax.tasks.graders import number
from conductor_jax.tasks.task import GradingError


@pytest.mark.parametrize("answer, reference", [
    ("the total is $29.00.", "29"),
    ("The answer is 72, in total, so the farmer earns that much.", "72"),
    ("3 + 4 = 7", "7"),
    ("It costs $1,234.50", "1234.5"),
    ("70,000", "70000"),
    ("1{,}000", "1000"),
    (r"1\,000\,000", "1000000"),
    ("1\u202f000", "1000"),
    ("25%", "25"),
    ("x=-5", "-5"),
    ("-$5", "-5"),
    ("$-5", "-5"),
    ("\u22125", "-5"),
    ("10-5", "5"),
    (".5", "0.5"),
    ("0.50", "1/2"),
    ("1/2", "0.5"),
    (r"\boxed{\frac{3}{4}}", "0.75"),
    ("2e3", "2000"),
    ("5kg", "5"),
    (r"\$5", "5"),
    ("029", "29"),
])
def test_right_answers(answer, reference):
  verdict = number.grade(reference, answer)
  assert verdict.correct, verdict


@pytest.mark.parametrize("answer, reference", [
    ("0.333", "1/3"),
    ("29.0000000001", "29"),
    ("5", "-5"),
    ("1/0", "0"),
    ("1000", "100"),
    ("9" * 5000, "9"),
])
def test_wrong_answers(answer, reference):
  assert not number.grade(reference, answer).correct


@pytest.mark.parametrize("answer, extracted", [
    ("#### 18\nI used 2 steps.", "18"),
    ("<answer>7</answer> in 3 steps", "7"),
    (r"\boxed{7} in 3 steps", "7"),
    (r"\boxed{7}, or rather #### 8" "\nin 3 steps", "8"),
    (r"<answer>6</answer> no, \boxed{7} after 2 tries", "7"),
    (r"\boxed{7} or \boxed{none} of the 9", "7"),
    (r"\boxed{none} of the 9", "9"),
    ("<think>maybe 3</think>4", "4"),
])
def test_marks_come_before_the_last_number_of_the_text(answer, extracted):
  assert number.grade("0", answer).extracted == extracted


@pytest.mark.parametrize("answer", ["", "none", "<answer></answer>"])
def test_no_number_is_incorrect_and_unparsed(answer):
  verdict = number.grade("5", answer)
  assert (verdict.correct, verdict.extracted) == (False, None)
  assert "unparsed" in verdict.reason


def test_the_reason_names_both_numbers():
  assert number.grade("6", "#### 5").reason == (
      "The answer's final number, 5, is not the reference 6.")


@pytest.mark.parametrize("reference", ["", "twelve", "1/0", "3 apples"])
def test_a_reference_that_is_no_number_is_a_grading_error(reference):
  with pytest.raises(GradingError, match="not a number"):
    number.grade(reference, "5")
