"""A task with unit tests, for programs that try to pass them without doing it."""

import textwrap

from conductor_jax.tasks.code_tests import UnitTests
from conductor_jax.tasks.graders.code import CodeGrader
from conductor_jax.tasks.task import Task

BEGINNING = "import os\nimport random\ndef task_func(numbers):\n"
# The second test sees what a program leaves changed after the first.
TESTS = """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        expected = [1, 2, 3]
        self.assertEqual(task_func([3, 1, 2]), expected)
    def test_2(self):
        result = task_func([50, 40])
        self.assertIsInstance(result, list)
        self.assertEqual(result, [40, 50])
"""
RIGHT = "def task_func(numbers):\n    return sorted(numbers)\n"


def fenced(program):
  return f"```python\n{textwrap.dedent(program).strip()}\n```"


async def grade(sandbox, program, tests=TESTS, beginning=BEGINNING):
  """The grade of a program on unit tests."""
  reference = UnitTests(beginning, textwrap.dedent(tests), "task_func").to_reference()
  return await CodeGrader(sandbox).grade(
      Task("task", "Sort.", reference, "bigcodebench"), fenced(program))
