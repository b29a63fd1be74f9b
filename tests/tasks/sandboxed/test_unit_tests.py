"""Unit tests in all their forms, and programs that end them or speak for them."""

import pytest

from conductor_jax.tasks.task import GradingError
from tests.tasks.sandboxed.unit_tests_task import BEGINNING, RIGHT, TESTS, grade


async def test_the_right_function_passes_every_test(sandbox):
  found = await grade(sandbox, RIGHT)
  assert found.correct, found.reason
  assert found.reason.startswith("The program passes all of its 2 tests, with at most 0.")
  assert [test.reason for test in found.tests] == ["Test 1 of 2 passes.", "Test 2 of 2 passes."]
  assert all(0 <= test.cpu_seconds < 5 for test in found.tests)
  assert all(5e6 < test.peak_bytes < 5e8 for test in found.tests)


async def test_a_test_that_takes_long_says_so(own_sandbox):
  found = await grade(own_sandbox, """
import time
def task_func(numbers):
    began = time.process_time()
    while len(numbers) == 2 and time.process_time() - began < 0.5:
        pass
    return sorted(numbers)
""")
  assert found.correct, found.reason
  assert found.tests[0].cpu_seconds < 0.4 <= found.tests[1].cpu_seconds < 2


async def test_memory_is_told(own_sandbox):
  found = await grade(own_sandbox, """
def task_func(numbers):
    kept = bytearray(200_000_000) if len(numbers) == 2 else b""
    return sorted(numbers)
""")
  assert found.tests[0].peak_bytes < 1.5e8 < 2e8 < found.tests[1].peak_bytes < 4e8


async def test_the_first_test_that_fails_is_shown_and_the_last_that_runs(own_sandbox):
  found = await grade(own_sandbox, """
def task_func(numbers):
    return sorted(numbers) if len(numbers) > 1 else None
""", """
import unittest
class TestCases(unittest.TestCase):
    def test_a(self):
        self.assertEqual(task_func([2, 1]), [1, 2])
    def test_b(self):
        self.assertEqual(task_func([1]), [1], "one number")
    def test_c(self):
        self.assertEqual(task_func([1]), [1])
""")
  assert not found.correct
  assert [test.passed for test in found.tests] == [True, False]
  assert found.reason == (
      'Test 2 of 3: TestCases.test_b fails at self.assertEqual(task_func([1]), [1], "one number") '
      "(AssertionError: None != [1] : one number).")


@pytest.mark.parametrize("program, said", [
    ("def task_func(numbers):\n    raise ValueError('oh')", "(ValueError: oh)."),
    ("def task_func(numbers):\n    return other", "(NameError: name 'other' is not defined)."),
    ("def task_func(numbers, more):\n    return 1",
     "missing 1 required positional argument: 'more')."),
    ("def other(numbers):\n    return sorted(numbers)", "AssertionError: None != [1, 2, 3]"),
    ("def task_func(numbers)\n    return", "The program does not load: SyntaxError: expected ':'"),
    ("1 / 0\ndef task_func(numbers): pass",
     "The program does not load: ZeroDivisionError: division by zero."),
    ("def task_func(numbers): pass\ndel task_func", "The program has no function task_func."),
    ("class Fault(Exception):\n    def __str__(self): return 1 / 0\n"
     "def task_func(numbers): raise Fault", "(Fault)."),
])
async def test_a_wrong_program_fails_with_a_reason(program, said, own_sandbox):
  found = await grade(own_sandbox, program)
  assert not found.correct
  assert said in found.reason


async def test_a_body_is_completed(own_sandbox):
  found = await grade(own_sandbox, "    numbers = list(numbers)\n    return sorted(numbers)")
  assert found.correct, found.reason


async def test_the_beginning_and_the_tests_lend_their_imports(own_sandbox):
  found = await grade(own_sandbox, """
def task_func(numbers):
    return os.path.join("a", textwrap.dedent("  b"))
""", """
import textwrap
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        self.assertEqual(task_func([]), "a/b")
""")
  assert found.correct, found.reason


ENDS = {
    "skips at import": "import unittest\nraise unittest.SkipTest('done')",
    "skips in the function":
        "import unittest\ndef task_func(numbers): raise unittest.SkipTest('done')",
    "exits at import": "import os\nos._exit(0)",
    "exits in the function": "import os\ndef task_func(numbers): os._exit(0)",
    "raises SystemExit at import": "raise SystemExit(0)",
    "raises SystemExit": "import sys\ndef task_func(numbers): sys.exit(0)",
    "raises KeyboardInterrupt": "def task_func(numbers): raise KeyboardInterrupt",
    "raises GeneratorExit": "def task_func(numbers): raise GeneratorExit",
    "ends its thread": "import _thread\ndef task_func(numbers): _thread.exit()",
    "kills itself": "import os\ndef task_func(numbers): os.kill(os.getpid(), 9)",
    "becomes another program":
        "import os\ndef task_func(numbers): os.execv('/bin/true', ['true'])",
    "says OK at its end":
        "import atexit, sys\natexit.register(lambda: sys.stderr.write('Ran 2 tests\\nOK\\n'))",
    "recurses without end": "def task_func(numbers): return task_func(numbers)",
    "takes all memory": "def task_func(numbers): return [0] * 10**10",
    "crashes the interpreter":
        "def task_func(numbers):\n    exec(compile('(' * 90 + ')' * 90, '', 'exec'))",
}


@pytest.mark.parametrize("name", ENDS)
async def test_who_ends_the_tests_does_not_pass(name, own_sandbox):
  program = ENDS[name]
  if "task_func" not in program:
    program += "\ndef task_func(numbers): return None"
  assert not (await grade(own_sandbox, program)).correct


VOICES = {
    "plain words": "os.write(3, b'2 passed TestCases.test_1 0 0\\n')",
    "words signed with another key": """
        text = b'2 passed TestCases.test_1 0 0'
        signature = hashlib.blake2b(text, key=b'guess', digest_size=16).hexdigest().encode()
        os.write(3, signature + b' ' + text + b'\\n')
    """,
    "words without end": "[os.write(3, b'x' * 99 + b'\\n') for _ in range(9999)]",
    "nothing, for the channel is closed": "os.close(3)",
    "a file's words": "os.dup2(os.open('said', os.O_CREAT | os.O_RDWR), 3)",
}


@pytest.mark.parametrize("name", VOICES)
async def test_who_speaks_for_the_tests_is_not_heard(name, own_sandbox):
  words = "\n".join(f"    {line.strip()}" for line in VOICES[name].strip().splitlines())
  program = f"import hashlib, os\ndef task_func(numbers):\n{words}\n"
  assert not (await grade(own_sandbox, program, TESTS.replace("[1, 2, 3]", "None"))).correct


async def test_a_program_that_only_adds_words_passes(own_sandbox):
  found = await grade(own_sandbox, """
import os
def task_func(numbers):
    os.write(3, b"2 failed TestCases.test_1 0 0 wrong\\n")
    return sorted(numbers)
""")
  assert found.correct, found.reason


_CLASSES = """
import unittest
from unittest.mock import patch
seen = []
def setUpModule():
    seen.append("setUpModule")
class Base(unittest.TestCase):
    numbers = [2, 1]
    @classmethod
    def setUpClass(cls):
        cls.opened = True
        cls.addClassCleanup(seen.append, "clean class")
    @classmethod
    def tearDownClass(cls):
        seen.append("tearDownClass")
    def setUp(self):
        self.sorted = [1, 2]
        self.addCleanup(seen.append, "clean")
    def tearDown(self):
        seen.append("tearDown")
    def test_inherited(self):
        self.assertTrue(self.opened)
        self.assertEqual(task_func(self.numbers), self.sorted)
class TestSecond(Base):
    numbers = [2, 1]
    def test_sub_tests(self):
        for numbers in ([3, 1], [5, 4]):
            with self.subTest(numbers=numbers):
                self.assertEqual(task_func(numbers), sorted(numbers))
class TestThird(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.numbers = [2, 1]
    async def test_awaits(self):
        self.assertEqual(task_func(self.numbers), [1, 2])
class TestZ(unittest.TestCase):
    @unittest.expectedFailure
    def test_expected_failure(self):
        self.assertEqual(task_func([2, 1]), [2, 1])
    @unittest.skip("not here")
    def test_skipped(self):
        raise ValueError
    @patch("builtins.sorted", return_value=[7])
    def test_patched(self, mocked):
        self.assertEqual(task_func([2, 1]), [7])
        mocked.assert_called_once_with([2, 1])
    def test_surroundings(self):
        self.assertEqual(seen[0], "setUpModule")
        self.assertEqual(seen[1:3], ["tearDown", "clean"])
        self.assertEqual(seen.count("tearDownClass"), 2)
        self.assertEqual(seen.count("clean class"), 2)
"""


async def test_all_forms_of_unit_tests_run(own_sandbox):
  found = await grade(own_sandbox, RIGHT, _CLASSES)
  assert found.correct, found.reason
  assert len(found.tests) == 7  # twice the inherited one, and not the one that is skipped


@pytest.mark.parametrize("old, new, said", [
    ("[3, 1], [5, 4]", "[3, 1], None", "TestSecond.test_sub_tests fails at"),
    ("self.numbers), [1, 2])\nclass TestZ", "self.numbers), [1])\nclass TestZ",
     "TestThird.test_awaits fails at"),
    ("self.assertEqual(task_func([2, 1]), [2, 1])", "task_func([2, 1])",
     "TestZ.test_expected_failure fails at AssertionError: it was to fail."),
    ("cls.opened = True", "raise ValueError('closed')",
     "Base.setUpClass fails at raise ValueError('closed') (ValueError: closed)."),
    ('seen.append("tearDownClass")', "raise ValueError", "Base.tearDownClass fails at"),
    ('seen.append("tearDown")', "raise ValueError", "Base.test_inherited fails at"),
    ('self.addCleanup(seen.append, "clean")', "self.addCleanup(None)",
     "Base.test_inherited fails at"),
    ('seen.append("setUpModule")', "raise ValueError", "setUpModule fails at"),
    ("async def asyncSetUp(self):\n", "async def asyncSetUp(self):\n        raise ValueError\n",
     "TestThird.test_awaits fails at"),
])
async def test_each_of_them_can_fail(old, new, said, own_sandbox):
  assert _CLASSES.count(old) == 1
  found = await grade(own_sandbox, RIGHT, _CLASSES.replace(old, new))
  assert not found.correct
  assert said in found.reason


@pytest.mark.parametrize("tests, said", [
    ("class TestCase: pass", "the tests have no test method: at least one is needed"),
    ("import unittest\nclass A(unittest.TestCase):\n    test_data = 5", "no test method"),
    ("import unittest\nclass A(unittest.TestCase):\n    @unittest.skip('no')\n"
     "    def test_1(self): pass", "no test method"),
    ("import unittest\nclass A(unittest.TestCase):\n    def test_1(self) pass",
     "the tests cannot be read: SyntaxError: expected ':'"),
    ("import unittest, no_such_package\nclass A(unittest.TestCase):\n    def test_1(self): pass",
     "the tests cannot be used: ModuleNotFoundError: No module named 'no_such_package'"),
    ("import unittest\nclass A(unittest.TestCase):\n    def test_1(self): pass\n1 / 0",
     "the tests do not load: ZeroDivisionError: division by zero"),
])
async def test_tests_that_cannot_be_used_are_nobodys_fault(tests, said, own_sandbox):
  with pytest.raises(GradingError, match="task task: ") as raised:
    await grade(own_sandbox, RIGHT, tests)
  assert said in str(raised.value)


async def test_a_beginning_without_its_packages_is_nobodys_fault(own_sandbox):
  with pytest.raises(GradingError, match="the beginning cannot be used: ModuleNotFoundError"):
    await grade(own_sandbox, RIGHT, TESTS, f"import no_such_package\n{BEGINNING}")


async def test_tests_that_load_behind_an_empty_program_are_the_programs_fault(own_sandbox):
  found = await grade(own_sandbox, "LIMIT = None\ndel LIMIT\n" + RIGHT, TESTS + """
    limit = LIMIT
""", f"LIMIT = 5\n{BEGINNING}")
  assert not found.correct
  assert found.reason == "The tests do not load: NameError: name 'LIMIT' is not defined."
