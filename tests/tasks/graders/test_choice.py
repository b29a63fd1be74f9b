import pytest

from conductor_jax.tasks.graders import choice
from conductor_jax.tasks.task import GradingError


@pytest.mark.parametrize("answer", [
    "C", "C.", "(C)", "c", "**C**", "C. Paris", "(C) Paris",
    "The answer is C.",
    "The answer is C because a car moves.",
    "The answer is C and A is wrong.",
    "the correct choice is option C",
    "The answer is therefore C",
    "The best option is (C).",
    "So the answer to the question is: C",
    "The answer is B. Wait, the answer is C.",
    "The answer is **C**. **A** is tempting.",
    "The correct answer is **C. Paris**",
    "Answer: C", "Answer:C", "answer: c", "Answer: C) Paris", "Answer = C",
    "**Answer: C**", "**Final Answer:** C", "### Answer\nC",
    "Final Answer\n\n$\\boxed{C}$",
    r"\boxed{\text{C}}", r"\boxed{C. Paris}", r"The answer is $\text{C}$",
    "<answer>C</answer>", "<answer>The answer is C.</answer>", "A or B? <answer>c</answer>",
    "C is the correct answer.",
    "I pick **C**, obviously",
    "Antwort:\n\nAntwort: C", "Réponse : C", "La respuesta es C", "答案：C", "答案是C",
    "<think>The answer is B</think>C",
    "The calculated answer is 11.\n\nAnswer seems to be A.\n\nAnswer: C\n",
    "Answer seems to be C.", "Antwort: Antwort: C", "The correct answer is c.",
    "ANSWER IS C. A is bad.",
    "I would pick C, a safe choice.", "I choose option C.", "I'd go with (C).", "C is correct.",
    "Option C is right, and A is not.", "Therefore, C.", "So option (C).",
    "The answer is not B, it's C.",
    "Answer: I think it's C", "The answer must be C", '{"answer": "C"}', "Answer to question 3: C",
    r"\boxed{\textbf{(C)}\ 17}", r"\boxed{C) 17}", r"\boxed{\text{\textbf{C}}}", r"$\mathbf{C}$",
    r"\boxed{C} and \boxed{C}", "Answer: C\n\nNote that B is correct only in winter.",
    "答案为C", "故选C", "最终答案：C。", "正解は C", "정답은 C", "Ответ: С", "答案：Ｃ",
    "الإجابة: ج",
    "Jawaban: C", "Respuesta correcta: C", "La risposta è C", "Resposta: C", "De antwoord is C",
])
def test_c_is_found(answer):
  assert choice.extract(answer) == "C"


@pytest.mark.parametrize("answer", [
    "", "I do not know", "The answer is a car", "The answer is Beautiful", "the answer is not C",
    "A. red\nB. green\nC. blue\nD. grey", "The answer is E", "<answer>E</answer>",
    "The answer is B or C", "Answer: A and B", "Answer: A/B", "Answer: A, B, C",
    r"The set is \boxed{4}", r"\boxed{A, C}", r"\boxed{A} or \boxed{C}", "I would not pick C",
    "Either A or C is correct.", "The answer is A, C", "It could be C.", "So a car moves",
    r"I think \boxed{C}. In fact \boxed{B, C}", "<answer>B or C</answer>", r"\boxed{}",
])
def test_no_single_option_is_none(answer):
  assert choice.extract(answer) is None


def test_a_hedge_does_not_fall_back_to_an_earlier_statement():
  assert choice.extract("The answer is A. No: the answer is B or C") is None


def test_more_letters_may_be_on_offer():
  assert choice.extract("The answer is E", letters="ABCDE") == "E"


def test_verdicts():
  assert choice.grade("C", "Answer: C").correct
  wrong = choice.grade("C", "Answer: B")
  assert (wrong.correct, wrong.extracted) == (False, "B")
  assert wrong.reason == "The answer is option B, the reference is C."
  none = choice.grade("C", "hm")
  assert (none.correct, none.extracted) == (False, None)
  assert "unparsed" in none.reason


@pytest.mark.parametrize("reference", ["", "E", "AB", "c"])
def test_a_reference_that_is_no_letter_is_a_grading_error(reference):
  with pytest.raises(GradingError, match="not one of the letters"):
    choice.grade(reference, "C")
