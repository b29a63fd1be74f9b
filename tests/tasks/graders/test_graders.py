"""Dispatch, and whole benchmarks where CONDUCTOR_BENCHMARKS names a directory of them."""

import asyncio

import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks.graders import KINDS, Graders
from conductor_jax.tasks.sources import load_tasks
from conductor_jax.tasks.task import GradingError, Task


def task(kind, reference="5"):
  return Task("t", "?", reference, kind)


@pytest.mark.parametrize("kind, reference, answer", [
    ("gsm8k", "29", "$29.00"), ("multiarith", "29", "So 29."), ("mmlu", "C", "The answer is C."),
    ("math500", r"\frac{1}{2}", r"\boxed{0.5}"),
    ("arithmetic", "12", "12"), ("words", "tac", "<answer>TAC</answer>"),
    ("almanac", "Oslo", "oslo."), ("sorting", "1 2", "1  2"), ("two-hop", "x", "X")])
async def test_every_kind_has_its_grader(kind, reference, answer):
  async with Graders() as graders:
    assert (await graders.grade(task(kind, reference), answer)).correct
    assert not (await graders.grade(task(kind, reference), "17")).correct


def test_the_kinds_are_these():
  assert set(KINDS) == {
      "gsm8k", "multiarith", "mmlu", "math500", "arithmetic", "words", "almanac", "sorting",
      "two-hop"}


async def test_an_unknown_kind_is_a_user_error_that_lists_the_kinds():
  async with Graders() as graders:
    with pytest.raises(UserError, match="no grader for the kind 'poetry'.*gsm8k"):
      await graders.grade(task("poetry"), "5")


async def test_a_math_answer_that_hangs_is_a_grading_error_and_the_next_is_graded():
  async with Graders(time_limit=1.0) as graders:
    await graders.grade(task("math500"), "5")
    with pytest.raises(GradingError, match="longer than 1 s"):
      await graders.grade(task("math500"), r"\boxed{9^{9^{9^9}}}")
    assert (await graders.grade(task("math500"), "5")).correct


async def test_an_unreadable_math_reference_is_a_grading_error():
  async with Graders() as graders:
    with pytest.raises(GradingError, match="not a mathematical expression"):
      await graders.grade(task("math500", "???"), "5")


async def test_all_gsm8k_solutions_are_right_by_their_own_reference(benchmarks):
  tasks = load_tasks(benchmarks, ["gsm8k"], "test")
  async with Graders() as graders:
    verdicts = [await graders.grade(t, t.metadata["solution"]) for t in tasks]
  assert sum(verdict.correct for verdict in verdicts) == len(tasks) == 1319


async def test_200_mmlu_references_are_right_and_their_neighbours_wrong(benchmarks):
  tasks = load_tasks(benchmarks, ["mmlu"], "test")[::70][:200]
  async with Graders() as graders:
    right = [await graders.grade(t, f"The answer is {t.reference}.") for t in tasks]
    wrong = [await graders.grade(t, f"Answer: {'BCDA'['ABCD'.index(t.reference)]}") for t in tasks]
  assert (len(tasks), sum(v.correct for v in right), sum(v.correct for v in wrong)) == (200, 200, 0)


async def test_all_math500_solutions_are_right_by_their_own_reference(benchmarks):
  tasks = load_tasks(benchmarks, ["math500"], "test")
  async with Graders() as graders:
    verdicts = await asyncio.gather(*(graders.grade(t, t.metadata["solution"]) for t in tasks))
  assert sum(verdict.correct for verdict in verdicts) == len(tasks) == 500


async def test_math500_references_are_wrong_for_other_questions(benchmarks):
  tasks = load_tasks(benchmarks, ["math500"], "test")
  pairs = [(a, b) for a, b in zip(tasks, tasks[1:], strict=False) if a.reference != b.reference]
  async with Graders() as graders:
    verdicts = await asyncio.gather(
        *(graders.grade(a, rf"\boxed{{{b.reference}}}") for a, b in pairs))
  # One neighbour answers "x=5" where 5 is asked for, and is right.
  assert sum(verdict.correct for verdict in verdicts) == 1
