"""Benchmarks' own answers are right, and functions that do nothing are not."""

import random

import pytest

from conductor_jax.tasks.code_tests import CheckTests, UnitTests
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.sandbox import Sandbox
from conductor_jax.tasks.sources import load_tasks
from conductor_jax.tasks.task import Task
from experiments.benchmarks import gold

# The first look up names on the internet, and the last compares the time of two calls.
_UNSTEADY = ("176", "314", "1005", "229")


@pytest.fixture(scope="module")
def sandbox():
  return Sandbox(sessions=4)


def _check(solution, check="assert f(2) == 3"):
  return Task("check", "?", CheckTests(
      "def f(x):\n", f"def check(f):\n  {check}", "f").to_reference(),
      "humaneval", {"canonical_solution": solution})


def _unit_test(imports, libs=()):
  return Task("unit", "?", UnitTests(
      "import os\ndef task_func(x):\n", f"{imports}\nimport unittest\n"
      "class TestCases(unittest.TestCase):\n  def test_1(self):\n"
      "    self.assertEqual(task_func(2), 3)", "task_func").to_reference(),
      "bigcodebench", {"libs": list(libs), "canonical_solution": "    return x + 1"})


async def test_answers_are_counted(sandbox):
  tasks = [_check("    return x + 1"), _check("    return x"), _unit_test("import re"),
           Task("number", "?", "1234", "gsm8k", {"solution": "So.\n#### 1,234"}),
           Task("letter", "?", "B", "mmlu", {"choices": list("abcd")}),
           Task("expression", "?", r"\frac{1}{2}", "math500"), _check("    return x", "pass")]
  async with Graders(sandbox=sandbox) as graders:
    counts, lines = await gold.count(graders, tasks, empty=False)
    assert (counts["answers"], counts["right"], counts["ungraded"]) == (7, 5, 1)
    assert sorted(lines) == [
        "check: The check fails at assert f(2) == 3, where 2 was returned.",
        "task check: the check cannot be used: it never calls the function"]
    counts, lines = await gold.count(graders, tasks[:3], empty=True)
    assert (counts["answers"], counts["right"]) == (3, 0)


def test_only_tasks_that_tell_their_answers_are_graded():
  told, untold = _check("    return x"), _check(None)
  number = Task("number", "?", "5", "svamp")
  stdin = Task("stdin", "?", "…", "livecodebench")
  packages = _unit_test("import numpy.linalg"), _unit_test("from yaml import load"), _unit_test(
      "", ["requests"])
  tasks = [told, untold, number, stdin, *packages, _unit_test("import xml.dom")]
  assert gold.graded_tasks(tasks, packages=False, empty=False) == [told, number, tasks[-1]]
  assert gold.graded_tasks(tasks, packages=True, empty=False) == [
      told, number, *packages, tasks[-1]]
  assert gold.graded_tasks(tasks, packages=False, empty=True) == [told, tasks[-1]]


@pytest.mark.integration
async def test_all_solutions_of_humaneval_are_right(benchmarks, sandbox):
  tasks = load_tasks(benchmarks, ["humaneval"], "test")
  async with Graders(sandbox=sandbox) as graders:
    counts, lines = await gold.count(graders, tasks, empty=False)
  assert (counts["right"], lines) == (164, [])


@pytest.fixture(scope="module")
def standard_tasks(benchmarks):
  tasks = gold.graded_tasks(load_tasks(benchmarks, ["bigcodebench"], "test"), False, False)
  assert len(tasks) == 300
  steady = [task for task in tasks if not task.id.endswith(tuple(f"/{one}" for one in _UNSTEADY))]
  return random.Random(0).sample(steady, 40)


@pytest.mark.integration
async def test_solutions_of_bigcodebench_are_right(standard_tasks, sandbox):
  async with Graders(sandbox=sandbox) as graders:
    counts, lines = await gold.count(graders, standard_tasks, empty=False)
  assert (counts["right"], lines) == (40, [])


@pytest.mark.integration
async def test_functions_that_do_nothing_are_not(standard_tasks, sandbox):
  async with Graders(sandbox=sandbox) as graders:
    counts, lines = await gold.count(graders, standard_tasks[:20], empty=True)
  assert (counts["right"], len(lines)) == (0, 20)
