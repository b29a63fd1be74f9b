"""Programs that do something out of turn. None may pass."""

import pytest

from tests.tasks.sandboxed.unit_tests_task import RIGHT, grade

_TESTS = """
import time
import types
import unittest
class TestCases(unittest.TestCase):
    def setUp(self):
        pass
    def test_1(self):
        result = task_func([3, 1, 2])
        time.sleep(0.05)
        print(result, flush=True)
        self.assertEqual(result, [1, 2, 3])
"""

# `gadget` makes a function, not written in Python, that calls another one and keeps the result.
_GADGET = """
import functools, itertools, sys, types, unittest
kept = []
def gadget(function, *arguments):
    return functools.partial(kept.extend, itertools.starmap(function, [arguments]))
"""
OUT_OF_TURN = {
    "a thread that changes an assertion back and forth": """
        import sys, threading, unittest
        def change():
            right = unittest.TestCase.assertEqual
            while True:
                unittest.TestCase.assertEqual = "".format
                unittest.TestCase.assertEqual = right
        def task_func(numbers):
            sys.setswitchinterval(1e-9)
            threading.Thread(target=change, daemon=True).start()
    """,
    "a thread without an object": """
        import _thread, unittest
        def change():
            right = unittest.TestCase.assertEqual
            while True:
                unittest.TestCase.assertEqual = "".format
                unittest.TestCase.assertEqual = right
        def task_func(numbers):
            _thread.start_new_thread(change, ())
    """,
    "a result before its time": """
        import sys, unittest
        def task_func(numbers):
            frame = sys._getframe()
            while "results" not in frame.f_locals:
                frame = frame.f_back
            right = unittest.TestCase.assertEqual
            frame.f_locals["results"].put((None, None))
            while True:
                unittest.TestCase.assertEqual = "".format
                unittest.TestCase.assertEqual = right
    """,
    "a result of another form": """
        import sys
        def task_func(numbers):
            frame = sys._getframe()
            while "results" not in frame.f_locals:
                frame = frame.f_back
            frame.f_locals["results"].put(5)
    """,
    "the names of what stands in its place": """
        import unittest
        def task_func(numbers):
            for kind in unittest.TestCase.__subclasses__():
                if kind.__name__ == "TestCases":
                    names = kind.setUp.__globals__["task_func"].__globals__["__builtins__"]
                    names.update(next=lambda *a: None, map=lambda *a: [], all=lambda *a: True)
            unittest.TestCase.assertEqual = lambda *a: None
    """,
    "what stands in its place": """
        import unittest
        def task_func(numbers):
            for kind in unittest.TestCase.__subclasses__():
                if kind.__name__ == "TestCases":
                    cross = kind.setUp.__globals__["task_func"].__kwdefaults__["_cross"]
                    for cell in cross.__closure__:
                        if isinstance(cell.cell_contents, list):
                            cell.cell_contents.clear()
            unittest.TestCase.assertEqual = lambda *a: None
    """,
    "the class of its exception": """
        def task_func(numbers):
            for kind in BaseException.__subclasses__():
                if kind.__name__ == "Interference":
                    raise kind("x")
    """,
    "a profile that is ended by print": _GADGET + """
class E:
    def __str__(self):
        return "E"
def task_func(numbers):
    sys.stdout = types.SimpleNamespace(write=len, flush=gadget(sys.setprofile, None))
    return E()
""",
    "a frame that print keeps": _GADGET + """
def tame(*arguments):
    frame = kept[0]
    while frame is not None:
        if "self" in frame.f_locals:
            frame.f_locals["self"].assertEqual = "".format
        frame = frame.f_back
def task_func(numbers):
    sys.stdout = types.SimpleNamespace(write=len, flush=gadget(sys._getframe, 0))
""",
    "a key that print keeps": _GADGET + """
def task_func(numbers):
    stands_in = [kind for kind in unittest.TestCase.__subclasses__()
                 if kind.__name__ == "TestCases"][0].setUp.__globals__["task_func"]
    sys.stdout = types.SimpleNamespace(
        write=len, flush=gadget(getattr, stands_in, "__kwdefaults__"))
""",
    "a hook that print adds": _GADGET + """
def task_func(numbers):
    sys.stdout = types.SimpleNamespace(write=len, flush=gadget(sys.addaudithook, print))
""",
    "an assertion that print exchanges": _GADGET + """
def task_func(numbers):
    sys.stdout = types.SimpleNamespace(
        write=len, flush=gadget(setattr, unittest.TestCase, "assertEqual", "".format))
""",
    "code that print exchanges": _GADGET + """
def tame(self, first, second, msg=None): pass
def task_func(numbers):
    sys.stdout = types.SimpleNamespace(write=len, flush=gadget(
        setattr, unittest.TestCase.assertEqual, "__code__", tame.__code__))
""",
    "a test that is told of by a callback": """
        import unittest
        def task_func(numbers):
            unittest.TestCase.failureException = ZeroDivisionError
    """,
}


@pytest.mark.parametrize("name", OUT_OF_TURN)
async def test_what_is_done_out_of_turn_helps_nobody(name, own_sandbox):
  found = await grade(own_sandbox, OUT_OF_TURN[name], _TESTS)
  assert not found.correct


async def test_a_builtin_that_print_exchanges_helps_nobody(own_sandbox):
  found = await grade(own_sandbox, _GADGET + """
import builtins
def task_func(numbers):
    sys.stdout = types.SimpleNamespace(
        write=len, flush=gadget(setattr, builtins, "isinstance", "yes".format))
""", """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        result = task_func([3, 1, 2])
        print(flush=True)
        self.assertTrue(isinstance(result, list))
""")
  assert found.reason == (
      "The program interferes with its tests: it changes builtins.isinstance.")


_CALLBACK = """
import unittest
from unittest.mock import Mock
class TestCases(unittest.TestCase):
    def seen(self, number):
        self.numbers.append(number)
        return number
    def test_1(self):
        self.numbers = []
        kept = Mock(side_effect=self.seen)
        self.assertEqual(task_func([2, 1], self.seen, kept), [1, 2])
        self.assertEqual(self.numbers, [1, 2, 1, 2])
        self.assertEqual(kept.call_count, 2)
"""


@pytest.mark.parametrize("change", [
    "seen.__self__.assertEqual = print",
    "seen.__self__.__class__ = type('Tame', (type(seen.__self__),), {'assertEqual': print})",
    "type(seen.__self__).assertEqual = print",
    "type(seen.__self__).seen = print",
    "seen.__func__.__globals__['Mock'] = print",
    "seen.__func__.__code__ = (lambda self, number: number).__code__",
    "kept.assert_called = print",
    "names = seen.__func__.__globals__['task_func'].__globals__['__builtins__']\n"
    "    names.update(callable=lambda *a: False, vars=lambda *a: {})\n"
    "    seen.__self__.assertEqual = print",
])
async def test_what_a_test_hands_over_may_not_be_used_against_it(change, own_sandbox):
  found = await grade(own_sandbox, f"""
def task_func(numbers, seen, kept):
    {change}
""", _CALLBACK)
  assert not found.correct
  assert "interferes" in found.reason or "is refused" in found.reason, found.reason


async def test_callbacks_of_tests_work(own_sandbox):
  found = await grade(own_sandbox, """
def task_func(numbers, seen, kept):
    return [seen(number) for number in sorted(numbers)] and [kept(number) for number in [1, 2]]
""", _CALLBACK)
  assert found.correct, found.reason


async def test_context_goes_with_a_call_and_comes_back(own_sandbox):
  found = await grade(own_sandbox, """
from decimal import Decimal, getcontext
def task_func(numbers):
    result = Decimal(1) / Decimal(3)
    getcontext().prec = 4
    return result
""", """
import unittest
from decimal import Decimal, getcontext
class TestCases(unittest.TestCase):
    def test_1(self):
        getcontext().prec = 3
        self.assertEqual(task_func([]), Decimal("0.333"))
        self.assertEqual(Decimal(1) / Decimal(3), Decimal("0.3333"))
""")
  assert found.correct, found.reason


async def test_databases_are_used_on_both_sides(own_sandbox):
  found = await grade(own_sandbox, """
import sqlite3
def task_func(database):
    database.execute("insert into numbers values (5)")
    other = sqlite3.connect(":memory:")
    other.execute("create table numbers (number)")
    return other
""", """
import sqlite3
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        database = sqlite3.connect(":memory:")
        database.execute("create table numbers (number)")
        other = task_func(database)
        self.assertEqual(database.execute("select * from numbers").fetchall(), [(5,)])
        self.assertEqual(other.execute("select * from numbers").fetchall(), [])
""")
  assert found.correct, found.reason


async def test_programs_may_use_threads_and_signals(own_sandbox):
  found = await grade(own_sandbox, """
import asyncio, os, signal, threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pool
def double(number): return 2 * number
async def later(number):
    await asyncio.sleep(0.01)
    return number
def task_func(numbers):
    heard = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(frame.f_code.co_name))
    os.kill(os.getpid(), signal.SIGUSR1)
    with ThreadPoolExecutor() as pool:
        doubled = list(pool.map(double, numbers))
    executor = ThreadPoolExecutor()
    executor.submit(double, 5).result()
    with Pool(2) as pool:
        doubled += pool.map(double, numbers)
    return doubled, asyncio.run(later(7)), heard, threading.current_thread().name
""", """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        self.assertEqual(task_func([1, 2]), ([2, 4, 2, 4], 7, ["task_func"], "MainThread"))
""")
  assert found.correct, found.reason


async def test_a_task_about_threads_may_leave_one(own_sandbox):
  program = """
import threading, time
def task_func(numbers):
    def sort():
        time.sleep(1)
        numbers.sort()
    thread = threading.Thread(target=sort, daemon=True)
    thread.start()
    return thread
"""
  tests = """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        numbers = [2, 1]
        task_func(numbers).join()
        self.assertEqual(numbers, [1, 2])
"""
  assert (await grade(own_sandbox, program, tests, "import threading\ndef task_func(n):\n")).correct
  found = await grade(own_sandbox, program, tests)
  assert found.reason == ("The program interferes with its tests: a thread of its own goes on "
                          "behind it.")


async def test_what_is_exchanged_among_the_tests_for_one_use_helps_nobody(own_sandbox):
  found = await grade(own_sandbox, """
import builtins
class E:
    def __str__(self):
        right = builtins.isinstance
        def tame(*arguments):
            builtins.isinstance = right
            return True
        builtins.isinstance = tame
        return "E"
def task_func(numbers): return E()
""", """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        result = task_func([3, 1, 2])
        str(result)
        self.assertTrue(isinstance(result, list))
""")
  assert found.reason == (
      "The program interferes with its tests: it changes builtins.isinstance.")


async def test_what_a_thread_exchanges_for_one_use_helps_nobody(own_sandbox):
  found = await grade(own_sandbox, """
import threading, time, unittest
def change():
    right = unittest.TestCase.assertEqual
    def tame(*arguments):
        unittest.TestCase.assertEqual = right
    time.sleep(0.2)
    unittest.TestCase.assertEqual = tame
def task_func(numbers):
    threading.Thread(target=change, daemon=True).start()
""", """
import time
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        result = task_func([3, 1, 2])
        time.sleep(0.6)
        self.assertEqual(result, [1, 2, 3])
""", "import threading\ndef task_func(numbers):\n")
  assert found.reason == (
      "The program interferes with its tests: it changes unittest.case.TestCase.assertEqual.")


async def test_the_right_program_passes_beside_them(own_sandbox):
  assert (await grade(own_sandbox, RIGHT, _TESTS)).correct
