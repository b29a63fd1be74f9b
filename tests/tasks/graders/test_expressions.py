"""Where answers state their result."""

import pytest

from conductor_jax.tasks.graders.expressions import (
    clause,
    final_expression,
    stated_expression,
    stated_sentence,
)


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


@pytest.mark.parametrize("answer, expected", [
    (r"\boxed{2} and \boxed{8}", "2, 8"),
    (r"$\boxed{2}$, $\boxed{8}$", "2, 8"),
    (r"\boxed{2}. Then \boxed{8}", "8"),
    (r"\boxed{8} or \boxed{8}", "8"),
    (r"\boxed{2}. No, the answer is 8.", "8"),
    (r"\boxed{8}, so the answer is right.", "8"),
    (r"\boxed{\boxed{8}}", "8"),
    (r"\fbox{8}", "8"),
    (r"\boxed{8} \boxed{}", "8"),
    (r"\boxed{$8$}", "8"),
])
def test_the_last_boxes_count(answer, expected):
  assert final_expression(answer) == (expected, True)


@pytest.mark.parametrize("text, expected", [
    ("So the answer is 8.", "8"),
    ("The answer is $x = 8$, since $x > 3$.", "x = 8"),
    ("The answer is 8, because 3 + 5 = 8 and 9 is more.", "8"),
    ("The answer is 3 + 5 = 8 apples.", "8"),
    ("Answer: $2$ and $8$", "2, 8"),
    ("The answers are 2, 5, and 8.", "2, 5, and 8"),
    ("Final answer\n\n8", "8"),
    ("**Answer:**\n\n$8$", "8"),
    ("The answer is 2. Wait, the answer is 8.", "8"),
    ("The answer is not 2. The answer is 8.", "8"),
    ("The largest $n$ is 8.", "8"),
    ("Final Answer: The largest $n$ is 8.", "8"),
    ("The answer is \\frac{3}{8}.", "\\frac{3}{8}"),
    ("So the sum is \\frac{3}{8}", "\\frac{3}{8}"),
    ("We have $a = 2$ and so\n\\[\n b = 8\n\\]", "b = 8"),
    ("In all there are **8** of them.", "8"),
    ("The cost is 2√3.", "2√3"),
    ("Die Antwort ist 8.", "8"),
    ("答案是 8。", "8"),
    ("Since $x = 3$ the sum is 8", "8"),
    ("It costs $1,234$ in all", "1,234"),
])
def test_the_stated_expression(text, expected):
  assert stated_expression(text) == expected


@pytest.mark.parametrize("text", [
    "", "Nobody knows.", "It is not 8.", "It can't be 8.", "Is it 8?", "What is 3 + 5?",
    "There are at least 8.", "There are more than 8.", "It is 2 or perhaps 8.",
    "The answer is what we look for: 8?", "So \\text{nothing} follows"])
def test_a_text_that_states_nothing(text):
  assert stated_expression(text) is None


def test_a_sentence_ends_before_the_next_and_a_clause_before_its_reason():
  sentence = stated_sentence("The answer is work done by friction. It heats.")
  assert sentence == "work done by friction"
  assert clause(sentence) == "work done"
  assert stated_sentence("The answer is $1.5$. So") == "$1.5$"
  assert stated_sentence("The answer is not known.") is None
