"""Programs that change what their tests are judged by. None may pass."""

import pytest

from tests.tasks.sandboxed.unit_tests_task import RIGHT, grade

_WRONG = "def task_func(numbers): return None"
_TESTS = """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        self.assertEqual(task_func([3, 1, 2]), [1, 2, 3])
    def test_2(self):
        result = task_func([50, 40])
        CHECK
"""
_EQUAL = "self.assertEqual(result, [40, 50])"

# At once, when the program is loaded.
WHEN_LOADED = {
    "the class of test cases": """
import unittest
class Tame(unittest.TestCase):
    def assertEqual(self, *a, **k): pass
    def assertIsInstance(self, *a, **k): pass
unittest.TestCase = Tame
""",
    "how classes are derived": """
import unittest
def tame(kind):
    kind._class_cleanups, kind._classSetupFailed = [], False
    for name in [name for name in vars(kind) if name.startswith("test_")]:
        setattr(kind, name, lambda self: None)
unittest.TestCase.__init_subclass__ = classmethod(tame)
""",
    "the loader": """
import unittest
unittest.TestLoader.loadTestsFromModule = lambda *a, **k: unittest.TestSuite()
unittest.TestLoader.loadTestsFromTestCase = lambda *a, **k: unittest.TestSuite()
unittest.TestLoader.getTestCaseNames = lambda *a, **k: []
""",
    "how classes are made": """
import builtins
make = builtins.__build_class__
def tame(function, name, *bases, **options):
    kind = make(function, name, *bases, **options)
    for test in [test for test in vars(kind) if test.startswith("test_")]:
        setattr(kind, test, lambda self: None)
    return kind
builtins.__build_class__ = tame
""",
    "how modules are imported": """
import builtins
load = builtins.__import__
def tame(name, *a, **k):
    module = load(name, *a, **k)
    if name == "unittest":
        module.TestCase.assertEqual = lambda *b, **c: None
    return module
builtins.__import__ = tame
""",
    "the module unittest": """
import sys, types
fake = types.ModuleType("unittest")
class TestCase(sys.modules["unittest"].TestCase if "unittest" in sys.modules else object):
    def assertEqual(self, *a): pass
fake.TestCase = TestCase
sys.modules["unittest"] = fake
""",
    "a module beside it": """
import importlib, sys, unittest
with open("unittest.py", "w") as file:
    file.write("import sys\\nclass TestCase(sys.right):\\n    def assertEqual(self, *a): pass")
sys.right = unittest.TestCase
sys.path.insert(0, "")
del sys.modules["unittest"]
importlib.invalidate_caches()
import unittest
""",
}
# At once, or in a call.
AT_ANY_TIME = {
    "assertEqual": """
import unittest
unittest.TestCase.assertEqual = lambda *a, **k: None
""",
    "all assertions": """
import unittest
for name in dir(unittest.TestCase):
    if name.startswith("assert"):
        setattr(unittest.TestCase, name, lambda *a, **k: None)
""",
    "run": """
import unittest
unittest.TestCase.run = lambda self, result=None: result
""",
    "how a method is called": """
import unittest
unittest.TestCase._callTestMethod = lambda self, method: None
""",
    "what failing raises": """
import unittest
unittest.TestCase.failureException = unittest.SkipTest
""",
    "the code of an assertion": """
import unittest
def tame(self, first, second, msg=None): pass
unittest.TestCase.assertEqual.__code__ = tame.__code__
""",
    "what an assertion uses": """
import unittest
unittest.TestCase._getAssertEqualityFunc = lambda *a: (lambda *b, **k: None)
""",
    "attributes of test cases": """
import unittest
unittest.TestCase.__getattribute__ = lambda self, name: (
    (lambda *a, **k: None) if name.startswith("assert") else object.__getattribute__(self, name))
""",
    "attributes of test cases, for another": """
import unittest
del unittest.TestCase.maxDiff
unittest.TestCase.__getattribute__ = lambda self, name: (
    (lambda *a, **k: None) if name.startswith("assert") else object.__getattribute__(self, name))
""",
    "the result": """
import unittest
unittest.TestResult.addFailure = lambda *a: None
unittest.TestResult.addError = lambda *a: None
""",
    "the outcome": """
import contextlib, unittest.case
unittest.case._Outcome.testPartExecutor = lambda *a, **k: contextlib.suppress(BaseException)
""",
    "a builtin's name in the module of test cases": """
import unittest.case
unittest.case.type = lambda one: list
unittest.case.getattr = lambda *a: (lambda *b, **k: None)
""",
}
# Builtins that a test uses, with what they come to.
BUILTINS = {
    "isinstance": ("True", "self.assertTrue(isinstance(result, list))"),
    "len": ("2", "self.assertEqual(len(result), 2)"),
    "all": ("True", "self.assertTrue(all(a < b for a, b in zip(result or [1], [2, 0])))"),
    "sorted": ("[40, 50]", "self.assertEqual(sorted(result), [40, 50])"),
    "type": ("list", "self.assertIs(type(result), list)"),
    "max": ("50", "self.assertEqual(max(result), 50)"),
}


@pytest.mark.parametrize("name", WHEN_LOADED | AT_ANY_TIME)
async def test_what_is_changed_at_import_helps_nobody(name, own_sandbox):
  change = (WHEN_LOADED | AT_ANY_TIME)[name]
  found = await grade(own_sandbox, f"{change}\n{_WRONG}", _TESTS.replace("CHECK", _EQUAL))
  assert not found.correct


@pytest.mark.parametrize("name", AT_ANY_TIME)
async def test_nor_does_what_is_changed_in_a_call(name, own_sandbox):
  change = "\n".join(f"        {line}" for line in AT_ANY_TIME[name].strip().splitlines())
  found = await grade(own_sandbox, f"""
def task_func(numbers):
    if len(numbers) == 3:
{change}
        return [1, 2, 3]
""", _TESTS.replace("CHECK", _EQUAL))
  assert not found.correct


@pytest.mark.parametrize("name", BUILTINS)
@pytest.mark.parametrize("place", ["builtins", "__builtins__", "sys.modules[TestCase.__module__]"])
async def test_builtins_may_not_be_exchanged(name, place, own_sandbox):
  value, check = BUILTINS[name]
  found = await grade(own_sandbox, f"""
import builtins, sys
from unittest import TestCase
def task_func(numbers):
    if len(numbers) == 3:
        setattr({place}, {name!r}, lambda *a: {value})
        return [1, 2, 3]
""", _TESTS.replace("CHECK", check))
  assert not found.correct


_SLOW = """
import time
import unittest
class TestCases(unittest.TestCase):
    def setUp(self):
        pass
    def test_1(self):
        result = task_func([3, 1, 2])
        time.sleep(0.6)
        self.assertEqual(result, [1, 2, 3])
    def test_2(self):
        result = task_func([50, 40])
        time.sleep(0.6)
        self.assertEqual(result, [40, 50])
"""
IN_A_CALL = {
    "an assertion, until it is used": """
        import unittest
        def task_func(numbers):
            right = unittest.TestCase.assertEqual
            def tame(*a, **k):
                unittest.TestCase.assertEqual = right
            unittest.TestCase.assertEqual = tame
    """,
    "an assertion, until it is used once more": """
        import unittest
        import threading, time
        def change():
            right = unittest.TestCase.assertEqual
            def tame(*a, **k):
                unittest.TestCase.assertEqual = right
            time.sleep(0.3)
            unittest.TestCase.assertEqual = tame
        def task_func(numbers):
            threading.Thread(target=change, daemon=True).start()
    """,
    "what an assertion asks for, until it is asked": """
        import builtins, unittest.case
        def task_func(numbers):
            def tame(*a):
                if a[0] is not None:
                    return type(*a)
                unittest.case.__dict__.pop("type", None)
                class Same:
                    def __eq__(self, other): return True
                return Same
            unittest.case.type = tame
            right = unittest.TestCase._baseAssertEqual
            def let(*a, **k):
                unittest.TestCase._baseAssertEqual = right
            unittest.TestCase._baseAssertEqual = let
    """,
    "the test that follows": """
        import unittest
        def task_func(numbers):
            for kind in unittest.TestCase.__subclasses__():
                if kind.__name__ == "TestCases":
                    kind.test_2 = lambda self: None
            return sorted(numbers)[:3] if len(numbers) == 3 else None
    """,
    "the test that follows, by the names of its module": """
        def task_func(numbers):
            kind = globals().get("TestCases")
            if kind:
                kind.test_2 = lambda self: None
            return sorted(numbers) if len(numbers) == 3 else None
    """,
    "the set-up of the test that follows": """
        import unittest
        def task_func(numbers):
            for kind in unittest.TestCase.__subclasses__():
                if kind.__name__ == "TestCases":
                    kind.setUp = lambda self: setattr(self, "assertEqual", lambda *a: None)
            return sorted(numbers) if len(numbers) == 3 else numbers
    """,
}


@pytest.mark.parametrize("name", IN_A_CALL)
async def test_what_is_changed_for_a_while_helps_nobody(name, own_sandbox):
  found = await grade(own_sandbox, IN_A_CALL[name], _SLOW)
  assert not found.correct


_LIBRARY = """
import json
import os
import random
import unittest
from pathlib import Path
class TestCases(unittest.TestCase):
    def test_1(self):
        task_func("made.txt")
        self.assertTrue(os.path.exists("made.txt"))
    def test_2(self):
        task_func("also.txt")
        self.assertTrue(Path("also.txt").exists())
    def test_3(self):
        random.seed(5)
        expected = random.randint(0, 9)
        random.seed(5)
        self.assertEqual(task_func("third.txt"), expected)
"""


@pytest.mark.parametrize("change", [
    "os.path.exists = Path.exists = lambda *a, **k: True",
    "os.path.exists = lambda path: True\n    os.stat = lambda *a, **k: True",
    "random.randint = lambda *a: None",
    "sys.modules['random'] = None",
    "numbers = random.Random\n    random.seed = lambda *a: None",
])
async def test_functions_that_tests_use_may_not_be_exchanged(change, own_sandbox):
  found = await grade(own_sandbox, f"""
import os, random, sys
from pathlib import Path
def task_func(path):
    open(path, "w").close()
    result = random.randint(0, 9)
    {change}
    return result
""", _LIBRARY, "def task_func(path):\n")
  assert not found.correct
  assert "interferes with its tests: it changes" in found.reason


async def test_a_test_may_exchange_them_itself(own_sandbox):
  found = await grade(own_sandbox, """
import os, random
def task_func(path):
    return os.path.exists(path), random.random(), input()
""", """
import unittest
from unittest.mock import patch
class TestCases(unittest.TestCase):
    def test_1(self):
        with patch("os.path.exists", return_value=True), patch("random.random", return_value=2):
            with patch("builtins.input", side_effect=["yes"]):
                self.assertEqual(task_func("nowhere"), (True, 2, "yes"))
    @patch("os.path.exists", autospec=True)
    def test_2(self, exists):
        exists.return_value = "maybe"
        with patch("builtins.input", return_value=""):
            self.assertEqual(task_func("nowhere")[0], "maybe")
        exists.assert_called_once_with("nowhere")
""", "def task_func(path):\n")
  assert found.correct, found.reason


async def test_a_program_may_exchange_what_it_puts_back(own_sandbox):
  found = await grade(own_sandbox, """
from contextlib import redirect_stdout
from io import StringIO
from unittest.mock import patch
def task_func(numbers):
    with redirect_stdout(StringIO()), patch("random.random", return_value=0):
        print(numbers)
        return sorted(numbers)
""")
  assert found.correct, found.reason


async def test_the_right_program_passes_beside_them(own_sandbox):
  assert (await grade(own_sandbox, RIGHT)).correct
