import pytest

from conductor_jax.tasks.graders import integer
from conductor_jax.tasks.task import GradingError


@pytest.mark.parametrize("answer", [
    "73", "073", r"\boxed{073}", r"\boxed{73}", "The answer is 73.", r"$m+n=\boxed{9+64=73}$",
    "73.0", "<answer>73</answer>", r"\boxed{\frac{146}{2}}"])
def test_73(answer):
  assert integer.grade("73", answer).correct
  assert integer.grade("073", answer).correct


@pytest.mark.parametrize("answer", [
    "74", "173", "-73", "73.5", r"\boxed{73, 74}", r"\boxed{72} or \boxed{73}", r"\boxed{73x}",
    r"\boxed{\frac{73}{2}}", r"\boxed{73\sqrt{3}}", "7300", r"\boxed{73\%} of 100 is \boxed{74}"])
def test_not_73(answer):
  assert not integer.grade("73", answer).correct


@pytest.mark.parametrize("answer, extracted, reason", [
    ("", None, "The answer holds no number (unparsed)."),
    (r"\boxed{74}", "74", "The answer's final number, 74, is not the reference 73."),
    (r"\boxed{73.5}", "73.5",
     "The answer ends in '73.5', which is not one whole number such as the reference 73."),
    (r"\boxed{5, 73}", "5, 73",
     "The answer ends in '5, 73', which is not one whole number such as the reference 73.")])
def test_the_reason_is_a_sentence(answer, extracted, reason):
  verdict = integer.grade("73", answer)
  assert (verdict.correct, verdict.extracted, verdict.reason) == (False, extracted, reason)


@pytest.mark.parametrize("reference", ["", "1000", "-1", "7.5", "x", "1/2"])
def test_a_reference_beyond_0_to_999_is_a_grading_error(reference):
  with pytest.raises(GradingError, match="not a whole number from 0 to 999"):
    integer.grade(reference, "5")
