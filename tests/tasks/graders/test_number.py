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
    ("145.0", "145"),
    ("145", "145.0"),
    (r"\boxed{1\frac{1}{2}}", "1.5"),
    (r"\boxed{3 + 4 = 7}", "7"),
    (r"\boxed{7 \text{ apples}}", "7"),
    (r"\boxed{7\text{ cm}^2}", "7"),
    (r"\boxed{7^\circ}", "7"),
    ("<answer>$1,200</answer>", "1200"),
    ("<answer>He has 7 apples.</answer>", "7"),
    ("The total is 3 million", "3000000"),
    ("In 2 or 3 days they need 7", "7"),
    ("The answer is 1/2.", "0.5"),
    ("The answer is 2e3.", "2000"),
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
    ("3 million", "3"),
    (r"\boxed{5, 6, 7}", "7"),
    (r"\boxed{5} or \boxed{7}", "7"),
    (r"\boxed{5 \text{ or } 7}", "7"),
    ("#### 5, 7", "7"),
    ("<answer>5 or 7</answer>", "7"),
    ("The answer is 5 or 7.", "7"),
    ("The answer is 5, 6, or 7.", "7"),
    (r"\boxed{7x}", "7"),
    (r"\boxed{7\sqrt{2}}", "7"),
    (r"\boxed{7\pi}", "7"),
    (r"\boxed{7!}", "7"),
    (r"\boxed{2^7}", "7"),
    (r"\boxed{3+7}", "7"),
    (r"\boxed{not 7}", "7"),
    (r"\boxed{\ge 7}", "7"),
    (r"\boxed{1:7}", "7"),
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


@pytest.mark.parametrize("answer, extracted", [
    ("The final answer is 64 dollars for 16 glasses.", "64"),
    ("**Answer: 45** minutes (0.75 hours)", "45"),
    ("Answer:\n\n$1,234.50 in 12 months", "$1,234.50"),
    ("The answer is 5. Check: 10/2 is 5, and 2 of 4 remain.", "5"),
    ("The answer to question 3 is a total of 9 eggs over 7 days.", "9"),
    ("Antwort: 6 Tage mit 8 Stunden", "6"),
    ("The answer is 3.\nThe answer is 4 for 2 people.", "4"),
    # Where it is not clear that the first number is meant.
    ("The answer is 5 + 3 = 8", "8"),
    ("The answer is 2 times 3, which is 6.", "6"),
    ("The answer is 30 out of 50, which is 0.6", "0.6"),
    ("The answer is 5. Wait, that forgets 2 eggs, so 7.", "7"),
    ("The answer must be more than 5, so 6 it is.", "6"),
    ("Answer: Let's see. 48 and 24 make 72", "72"),
    ("Answer: We sell 3 eggs.\nThat makes 12 dollars.", "12"),
    ("I know the answer.\nThere are 3 eggs at 4 dollars, which makes 12.", "12"),
    (r"The answer is 3 in all, \boxed{4}, for 5 people", "4"),
])
def test_what_is_stated_comes_before_the_last_number_of_the_text(answer, extracted):
  assert number.grade("0", answer).extracted == extracted


def test_a_long_answer_full_of_statements_is_read():
  assert number.grade("7", "The answer is 5 or so. " * 100_000 + "Answer: 7 in all").correct


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


def test_what_is_no_plain_number_is_shown_in_the_reason():
  verdict = number.grade("7", r"\boxed{5, 7}")
  assert (verdict.correct, verdict.extracted) == (False, "5, 7")
  assert verdict.reason == ("The answer ends in '5, 7', which is not one plain number such as the "
                            "reference 7.")
