"""Tasks in LiveCodeBench's columns, solved in both of their forms."""

import asyncio

import pytest

from conductor_jax.tasks.graders.code import CodeGrader
from conductor_jax.tasks.sources import load_tasks
from tests.tasks.graders.small_programs import PROGRAMS


@pytest.fixture(scope="module")
def tasks(benchmarks):
  files = [f"lcb_style/exercism_{form}.jsonl.gz" for form in ("functional", "stdin")]
  loaded = load_tasks(benchmarks, ["livecodebench"], "test",
                      files=[("livecodebench", file) for file in files])
  assert len(loaded) == 150
  return loaded


def _of(tasks, name, form):
  found, = (task for task in tasks if task.id.endswith(f"exercism_{name}_{form}"))
  return found


@pytest.mark.parametrize("form", ["func", "stdin"])
async def test_right_programs_pass_in_both_forms(form, tasks, own_sandbox):
  grader = CodeGrader(own_sandbox)
  grades = await asyncio.gather(*(
      grader.grade(_of(tasks, name, form), program.answer(form))
      for name, program in PROGRAMS.items()))
  assert {name: grade.reason for name, grade in zip(PROGRAMS, grades, strict=True)
          if not grade.correct} == {}
  assert all(len(grade.tests) >= 4 for grade in grades)


@pytest.mark.parametrize("form", ["func", "stdin"])
async def test_programs_with_a_fault_fail_in_both_forms(form, tasks, own_sandbox):
  grader = CodeGrader(own_sandbox)
  grades = await asyncio.gather(*(
      grader.grade(_of(tasks, name, form), program.answer(form, faulty=True))
      for name, program in PROGRAMS.items()))
  assert [name for name, grade in zip(PROGRAMS, grades, strict=True) if grade.correct] == []
  assert all(grade.reason == grade.tests[-1].reason for grade in grades)
  assert all("is expected" in grade.reason or "takes longer" in grade.reason for grade in grades)
