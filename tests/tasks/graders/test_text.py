import pytest

from conductor_jax.tasks.graders import text
from conductor_jax.tasks.task import GradingError


@pytest.mark.parametrize("answer", [
    "blue  heron", " Blue Heron.\n", "I think so. <answer>blue heron</answer> Bye",
    "<answer>red</answer> no <ANSWER>\nBLUE\nheron.</ANSWER>", "<think>red?</think>blue heron"])
def test_case_spaces_and_a_full_stop_make_no_difference(answer):
  assert text.grade("Blue heron", answer).correct


@pytest.mark.parametrize("answer", [
    "It is the blue heron", "blueheron", "<answer>blue</answer> heron", "blue heron!",
    "<answer>blue heron</answer> <answer>red</answer>"])
def test_anything_else_is_wrong(answer):
  verdict = text.grade("Blue heron", answer)
  assert not verdict.correct
  assert verdict.reason == "The answer is not the reference 'Blue heron'."


@pytest.mark.parametrize("answer", ["", " \n", "<answer> </answer>"])
def test_an_empty_answer_is_unparsed(answer):
  verdict = text.grade("x", answer)
  assert (verdict.correct, verdict.extracted) == (False, None)
  assert "unparsed" in verdict.reason


def test_an_empty_reference_is_a_grading_error():
  with pytest.raises(GradingError, match="empty"):
    text.grade(" .", "x")
