"""The benchmark of the graders measures what it says."""

import pytest

from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from experiments.benchmarks import grading

TASKS = [Task(f"t{i}", "?", rf"\frac{{{i}}}{{7}}", "math500") for i in range(1, 9)]


async def test_half_of_the_answers_are_right_in_every_measurement():
  async with Graders() as graders:
    for addend in (0, 3):
      pairs = grading.answers(TASKS, 1, addend)
      assert [task for task, _ in pairs] == TASKS
      verdicts = [(await graders.grade(task, answer)).correct for task, answer in pairs]
      assert verdicts == [True, True, False, False] * 2


def test_an_addend_makes_every_answer_one_that_nobody_gave():
  given = {answer for addend in (0, 1, 2) for _, answer in grading.answers(TASKS, 1, addend)}
  assert len(given) == 3 * len(TASKS)


async def test_a_hanging_answer_takes_its_limit_and_is_not_counted():
  async with Graders(time_limit=1.0) as graders:
    pairs = grading.answers(TASKS, 1)
    rate, seconds = await grading.rate_beside_hanging(graders, pairs, 4, hanging=2)
  assert rate > 0
  assert len(seconds) == 2 and min(seconds) >= 1.0


async def test_an_answer_that_no_longer_hangs_is_an_error(monkeypatch):
  monkeypatch.setattr(grading, "_HANGS", r"\boxed{7}")
  async with Graders() as graders:
    with pytest.raises(RuntimeError, match="no longer hangs"):
      await grading.hang(graders)
