"""Dispatch, to every grader and past none."""

import asyncio

import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks.graders import GRADERS, KINDS, Graders
from conductor_jax.tasks.task import GradingError, Task

# SymPy looks for its antiderivative for minutes.
HANGS = r"\boxed{\int_0^{\pi} \frac{\sin(x^3)}{1+x^5} dx}"


@pytest.fixture(scope="module")
def graders():
  graders = Graders()
  yield graders
  graders.close()


def task(kind, reference="5", **metadata):
  return Task("t", "?", reference, kind, metadata)


@pytest.mark.parametrize("kind, reference, answer", [
    ("gsm8k", "29", "$29.00"), ("multiarith", "29", "So 29."), ("mmlu", "C", "The answer is C."),
    ("math500", r"\frac{1}{2}", r"\boxed{0.5}"), ("svamp", "29", "29.0"), ("aime25", "029", "29"),
    ("gpqa", "C", "Answer: C"), ("aqua", "C", "(C)"), ("rlpr", "2.5 kg", "2.5 kilograms"),
    ("arithmetic", "12", "12"), ("words", "tac", "<answer>TAC</answer>"),
    ("almanac", "Oslo", "oslo."), ("sorting", "1 2", "1  2"), ("two-hop", "x", "X")])
async def test_every_kind_has_its_grader(kind, reference, answer, graders):
  assert (await graders.grade(task(kind, reference), answer)).correct
  assert not (await graders.grade(task(kind, reference), "17")).correct


def test_the_kinds_are_these():
  assert set(KINDS) == {
      "gsm8k", "multiarith", "svamp", "aime25", "mmlu", "gpqa", "aqua", "math500", "rlpr",
      "livecodebench", "humaneval", "bigcodebench", "bigcodebench-hard",
      "arithmetic", "words", "almanac", "sorting", "two-hop"}
  assert set(KINDS.values()) == set(GRADERS)


@pytest.mark.parametrize("name, reference, right, wrong", [
    ("number", "1/2", "0.5", "0.6"), ("integer", "7", "007", "7.5"), ("choice", "B", "B", "A"),
    ("math", "2x", "x+x", "x"), ("short_answer", "the sun", "Sun", "moon"),
    ("text", "a", "A", "b"),
])
async def test_a_task_may_name_its_grader(name, reference, right, wrong, graders):
  assert (await graders.grade(task("mine", reference, grader=name), right)).correct
  assert not (await graders.grade(task("gsm8k", reference, grader=name), wrong)).correct


async def test_an_unknown_grader_is_a_user_error_that_lists_the_graders(graders):
  with pytest.raises(UserError, match="no grader 'essay'.*number.*short_answer.*code"):
    await graders.grade(task("mine", grader="essay"), "5")


async def test_there_are_as_many_letters_as_choices(graders):
  five = task("aqua", "E", choices=["1", "2", "3", "4", "5"])
  assert (await graders.grade(five, "The answer is E.")).correct
  four = task("mmlu", "D", choices=["1", "2", "3", "4"])
  assert (await graders.grade(four, "The answer is E.")).extracted is None
  unlisted = task("mine", "F", grader="choice")
  assert (await graders.grade(unlisted, "The answer is F.")).correct
  assert (await graders.grade(task("gpqa", "A"), "The answer is E.")).extracted is None


async def test_an_unknown_kind_is_a_user_error_that_lists_the_kinds(graders):
  with pytest.raises(UserError, match="no grader for the kind 'poetry'.*gsm8k"):
    await graders.grade(task("poetry"), "5")


async def test_a_math_answer_that_hangs_is_a_grading_error_and_the_next_is_graded():
  async with Graders(time_limit=1.0) as graders:
    await graders.grade(task("math500"), "5")
    with pytest.raises(GradingError, match="longer than 1 s"):
      await graders.grade(task("math500"), HANGS)
    assert (await graders.grade(task("math500"), "5")).correct


async def test_an_unreadable_math_reference_is_a_grading_error(graders):
  with pytest.raises(GradingError, match="not a mathematical expression"):
    await graders.grade(task("math500", "???"), "5")


async def test_a_tower_of_powers_is_wrong_and_no_grading_error():
  async with Graders(time_limit=1.0) as graders:
    verdict = await graders.grade(task("math500"), r"\boxed{9^{9^{9^9}}}")
  assert not verdict.correct and "beyond all measure" in verdict.reason


async def test_answers_that_hang_hold_up_no_others():
  async with Graders(time_limit=60.0) as graders:
    hanging = [asyncio.create_task(graders.grade(task("math500"), HANGS)) for _ in range(3)]
    verdicts = await asyncio.gather(
        *(graders.grade(task("math500", str(i)), rf"\boxed{{{i + i % 2}}}") for i in range(60)))
    assert not any(waiting.done() for waiting in hanging)
  assert [verdict.correct for verdict in verdicts] == [True, False] * 30
  await asyncio.gather(*hanging, return_exceptions=True)
