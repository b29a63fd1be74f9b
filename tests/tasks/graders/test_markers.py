import time

import pytest

from conductor_jax.tasks.graders import choice, number, text
from conductor_jax.tasks.graders.markers import (
  behind_boxes,
  boxes,
  last_boxes,
  last_tagged,
  statements,
  without_thinking,
)


def test_boxes_balance_their_braces():
  assert boxes(r"so \boxed{\frac{1}{2}} and \fboxed {x}, \boxed{\}") == [
      (3, r"\frac{1}{2}"), (27, "x")]


def test_boxes_come_in_order_of_their_starts():
  assert [content for _, content in boxes(r"\boxed{a \boxed{b}} \boxed{\{c}")] == [
      r"a \boxed{b}", "b", r"\{c"]


@pytest.mark.parametrize("answer, last", [
    (r"\boxed{1} and \boxed{2}", ["1", "2"]), (r"$\boxed{1}$, $\boxed{2}$", ["1", "2"]),
    (r"\boxed{1} \text{ or } \boxed{2}", ["1", "2"]),
    (r"\(\boxed{1}\) and \(\boxed{2}\)", ["1", "2"]),
    (r"\boxed{1}. \boxed{2}", ["2"]), (r"\boxed{1} then \boxed{2}", ["2"]),
    (r"\boxed{2} and \boxed{2}", ["2"]),
    (r"\boxed{b} \boxed{\boxed{d}}", ["d"]), (r"\boxed{1} \boxed{}", ["1"]), (r"\boxed{}", [""]),
    ("", [])])
def test_boxes_side_by_side_are_one_statement(answer, last):
  assert last_boxes(answer) == last


def test_what_stands_behind_the_last_box():
  assert behind_boxes(r"\boxed{1} a \boxed{2} b \boxed{ }") == r" b \boxed{ }"
  assert behind_boxes("no box") == "no box"


@pytest.mark.parametrize("answer, stated", [
    ("The answer is 4. So the answer is: 5", [" 4. So the answer is: 5", " 5"]),
    ("**Answer:** 5", ["** 5"]), ("La respuesta es 5", [" 5"]), ("最终答案：5", ["5"]),
    ("We answer in words", []), ("Answers vary", [])])
def test_statements_begin_behind_the_answer_is(answer, stated):
  assert statements(answer) == stated


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
