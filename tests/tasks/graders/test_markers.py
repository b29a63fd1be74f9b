import time

import pytest

from conductor_jax.tasks.graders import choice, number, text
from conductor_jax.tasks.graders.markers import boxes, last_tagged, without_thinking


def test_boxes_balance_their_braces():
  assert boxes(r"so \boxed{\frac{1}{2}} and \fboxed {x}, \boxed{\}") == [
      (3, r"\frac{1}{2}"), (27, "x")]


def test_boxes_come_in_order_of_their_starts():
  assert [content for _, content in boxes(r"\boxed{a \boxed{b}} \boxed{\{c}")] == [
      r"a \boxed{b}", "b", r"\{c"]


def test_the_last_closed_tag_counts():
  assert last_tagged("<answer>1</answer><answer>2</answer> <answer>3") == (18, "2")
  assert last_tagged("<answer>1 <answer>2</Answer>") == (10, "2")
  assert last_tagged("</answer>") is None


def test_thinking_ends_at_the_last_closing_tag():
  assert without_thinking("<think>a</think>b") == "b"
  assert without_thinking("a</think>b</think>c") == "c"
  assert without_thinking("<think>a") == "<think>a"


@pytest.mark.parametrize("piece", [
    "answer ", "answer is ", "*", "\\boxed{", "<answer>", "</answer>", "**A ", "\n", "A)\n", "_",
    "1,111", "#### ", "1", "-$", "answer is is is is ", "or A "])
def test_no_text_of_40_thousand_characters_takes_a_second_of_processor_time(piece):
  answer = "answer is " + piece * (40_000 // len(piece))
  start = time.process_time()
  for grader, reference in ((choice, "A"), (number, "1"), (text, "x")):
    grader.grade(reference, answer)
  assert time.process_time() - start < 1
