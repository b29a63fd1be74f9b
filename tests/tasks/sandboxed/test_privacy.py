"""Programs that look for what their tests expect, or for who judges them. None may pass."""

import pytest

from tests.tasks.sandboxed.unit_tests_task import grade

# Expected values stand in the text of the tests, and in variables of theirs.
TESTS = """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        expected = [1, 2, 3]
        self.assertEqual(task_func([3, 1, 2]), expected)
    def test_2(self):
        expected = [40, 50]
        self.assertEqual(task_func([50, 40]), expected)
"""
# The result is used for this and that before it is compared.
_USED = """
import gc
import types
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        expected = [1, 2, 3]
        try:
            result = task_func([3, 1, 2])
        except Exception:
            result = task_func([3, 1, 2])
        print(str(result), repr(result))
        gc.collect()
        compile("1", "", "eval")
        if isinstance(result, types.GeneratorType):
            list(result)
        self.assertEqual(result, expected)
"""

# Each looks through frames; `tell` returns the expected value of the one that has it.
_TELL = """
    def tell(frame):
        while frame is not None:
            if "expected" in frame.f_locals:
                return frame.f_locals["expected"]
            frame = frame.f_back
"""
FRAMES = {
    "its own": "import sys\n    return tell(sys._getframe())",
    "by inspect": "import inspect\n    return tell(inspect.currentframe())",
    "the whole stack": "import inspect\n    return tell(inspect.stack()[-1].frame) or "
                       "[tell(one.frame) for one in inspect.stack() if tell(one.frame)][0]",
    "by logging": "import logging\n    return tell(logging.currentframe())",
    "by traceback": """
    import traceback
    def look():
        return [found for frame, _ in traceback.walk_stack(None) if (found := tell(frame))]
    return (lambda: (lambda: look())())()[0]
    """,
    "of an exception": """
    try:
        1 / 0
    except ZeroDivisionError as fault:
        return tell(fault.__traceback__.tb_frame)
    """,
    "of a generator": """
    def make():
        yield tell(made.gi_frame)
    made = make()
    return next(made)
    """,
    "of a coroutine": """
    async def make():
        return tell(made.cr_frame)
    made = make()
    try:
        made.send(None)
    except StopIteration as end:
        return end.value
    """,
    "of all threads": "import sys\n    return [tell(frame) for frame in "
                      "sys._current_frames().values() if tell(frame)][0]",
    "while traced": """
    import sys
    found = []
    def trace(frame, event, value):
        found.append(tell(frame))
    sys.settrace(trace)
    len([])
    (lambda: None)()
    sys.settrace(None)
    return found[0]
    """,
    "while profiled": """
    import sys
    found = []
    sys.setprofile(lambda frame, event, value: found.append(tell(frame)))
    (lambda: None)()
    sys.setprofile(None)
    return found[0]
    """,
    "by bdb": """
    import bdb
    found = []
    class Debugger(bdb.Bdb):
        def user_line(self, frame): found.append(tell(frame))
    debugger = Debugger()
    debugger.set_trace()
    1 + 1
    debugger.set_quit()
    return found[0]
    """,
    "by the collector": "import gc\n    return [one for one in gc.get_objects() if "
                        "type(one) is list and len(one) == len(numbers) and one != numbers and "
                        "set(one) == set(numbers)][0]",
}
# These run among the tests; `tame` lets all assertions of the test that it finds pass.
_TAME = """
import sys
def tame(frame):
    while frame is not None:
        if "expected" in frame.f_locals:
            frame.f_locals["self"].assertEqual = lambda *a: None
        frame = frame.f_back
"""
LATER = {
    "as its result is shown": """
class E:
    def __str__(self):
        tame(sys._getframe())
        return "E"
def task_func(numbers): return E()
""",
    "as its result is filled in": """
class L(list):
    def __str__(self):
        frame = sys._getframe()
        while "expected" not in frame.f_locals:
            frame = frame.f_back
        self[:] = frame.f_locals["expected"]
        return "L"
def task_func(numbers): return L()
""",
    "as its garbage is collected": """
class E:
    def __del__(self): tame(sys._getframe())
def task_func(numbers):
    one = E()
    one.own = one
""",
    "as a reference to its result dies": """
import weakref
class E: pass
def task_func(numbers):
    one = E()
    one.own = one
    task_func.kept = weakref.ref(one, lambda kept: tame(sys._getframe()))
""",
    "as the collector begins": """
import gc
def task_func(numbers):
    gc.callbacks.append(lambda phase, info: tame(sys._getframe()))
""",
    "as something is audited": """
def hook(event, arguments):
    if event == "compile":
        tame(sys._getframe())
def task_func(numbers):
    sys.addaudithook(hook)
""",
    "as something is printed": """
class Output:
    def write(self, text): tame(sys._getframe())
    def flush(self): pass
def task_func(numbers):
    sys.stdout = Output()
""",
    "from what it has raised before": """
class E(Exception): pass
kept = []
def task_func(numbers):
    if kept:
        tame(kept[0].__traceback__.tb_frame)
        return None
    kept.append(E())
    raise kept[0]
""",
    "from what it has raised before, by inspect": """
import inspect
class E(Exception): pass
kept = []
def task_func(numbers):
    if kept:
        for one in inspect.getinnerframes(kept[0].__traceback__):
            tame(one.frame)
        return None
    kept.append(E())
    raise kept[0]
""",
    "by a generator": """
def make():
    tame(sys._getframe())
    yield 1
def task_func(numbers): return make()
""",
    "by changing who watches": """
class E:
    def __str__(self):
        sys.getprofile().__kwdefaults__["enter"] = lambda frame: None
        tame(sys._getframe())
        return "E"
def task_func(numbers): return E()
""",
    "by ending who watches": """
class E:
    def __str__(self):
        sys.setprofile(None)
        return "E"
    def __repr__(self):
        tame(sys._getframe())
        return "E"
def task_func(numbers): return E()
""",
}
SOURCES = {
    "code objects": """
        import unittest
        def task_func(numbers):
            kind, = [kind for kind in unittest.TestCase.__subclasses__()
                     if kind.__name__ == "TestCases"]
            for name in ("test_1", "test_2"):
                for constant in getattr(kind, name).__code__.co_consts:
                    if isinstance(constant, tuple) and sorted(constant) == sorted(numbers):
                        if list(constant) != numbers:
                            return list(constant)
            return [1, 2, 3] if len(numbers) == 3 else [40, 50]
    """,
    "a run of the tests": """
        import unittest
        told = []
        def task_func(numbers):
            if told == [None]:
                return None
            told.append(None)
            kind, = [kind for kind in unittest.TestCase.__subclasses__()
                     if kind.__name__ == "TestCases"]
            class Spy(kind):
                def assertEqual(self, first, second): told.append(second)
            for name in ("test_1", "test_2"):
                del told[1:]
                getattr(Spy(name), name)()
                if sorted(told[1]) == sorted(numbers):
                    expected = told[1]
                    del told[:]
                    return expected
    """,
    "the source of the tests": """
        import inspect, re, unittest
        def task_func(numbers):
            kind, = [kind for kind in unittest.TestCase.__subclasses__()
                     if kind.__name__ == "TestCases"]
            for text in re.findall("expected = (.*)", inspect.getsource(kind)):
                if sorted(eval(text)) == sorted(numbers):
                    return eval(text)
    """,
}
MEMORY = {
    "files": """
        import os, re
        def task_func(numbers):
            for folder, _, names in (part for top in (
                ".", "/tmp", "/dev/shm", "/etc", "/run", "/var", "/sandboxed")
                for part in os.walk(top)):
                for name in names if "-packages" not in folder else ():
                    try:
                        text = open(os.path.join(folder, name), errors="replace").read()
                    except OSError:
                        continue
                    for found in re.findall(r"expected = (\\[[0-9, ]+\\])", text):
                        if sorted(eval(found)) == sorted(numbers):
                            return eval(found)
    """,
    "standard input": """
        import re, sys, os
        text = sys.stdin.read() + os.read(0, 1 << 20).decode()
        def task_func(numbers):
            for found in re.findall(r"expected = (\\[[0-9, ]+\\])", text):
                if sorted(eval(found)) == sorted(numbers):
                    return eval(found)
    """,
    "its own memory": """
        import re
        def task_func(numbers):
            for line in open("/proc/self/maps"):
                start, end = (int(number, 16) for number in line.split()[0].split("-"))
                if "rw" in line.split()[1]:
                    with open("/proc/self/mem", "rb", 0) as memory:
                        memory.seek(start)
                        for found in re.findall(
                            rb"expected = (\\[[0-9, ]+\\])", memory.read(end - start)):
                            if sorted(eval(found)) == sorted(numbers):
                                return eval(found)
    """,
    "its memory, from a child": """
        import os, subprocess, sys
        program = chr(10).join([
            "import os, re",
            "pid = os.getppid()",
            "for line in open(f'/proc/{pid}/maps'):",
            "    start, end = (int(number, 16) for number in line.split()[0].split('-'))",
            "    if 'rw' in line.split()[1]:",
            "        with open(f'/proc/{pid}/mem', 'rb', 0) as memory:",
            "            memory.seek(start)",
            "            data = memory.read(end - start)",
            "            for found in re.findall(rb'expected = (.[0-9, ]+.)', data):",
            "                print(found.decode())"])
        def task_func(numbers):
            told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
            for found in told.stdout.splitlines():
                if sorted(eval(found)) == sorted(numbers):
                    return eval(found)
    """,
}
# 160 and 150 become 140, in memory.
_NUMBERS = """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        self.assertEqual(task_func([160, 140, 150]), [140, 150, 160])
"""
_OVERWRITES = """
def task_func(numbers):
    for number in (150, 160):
        ctypes.cast(id(number), ctypes.POINTER(ctypes.c_int))[6] = 140
    return [140, 140, 140]
"""
CTYPES = {
    "as it is": "import ctypes",
    "by importlib": "import importlib\nctypes = importlib.import_module('ctypes')",
    "by way of the library": "from multiprocessing.sharedctypes import ctypes",
    "where it was": "import sys\nctypes = sys.modules['ctypes']",
    "under another name": """
import importlib.util, os
path = os.path.join(os.path.dirname(os.__file__), "ctypes", "__init__.py")
spec = importlib.util.spec_from_file_location("other", path)
ctypes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ctypes)
""",
}


def _in_frames(body):
  return f"def task_func(numbers):{_TELL}\n    {body.strip()}\n"


NAIVE = [{name: _in_frames(body) for name, body in FRAMES.items()}, SOURCES, MEMORY,
         {name: (_USED, _TAME + program) for name, program in LATER.items()},
         {name: (_NUMBERS, how + _OVERWRITES) for name, how in CTYPES.items()}]


@pytest.mark.parametrize("name", FRAMES)
async def test_frames_tell_nothing(name, own_sandbox):
  found = await grade(own_sandbox, _in_frames(FRAMES[name]), TESTS)
  assert not found.correct


@pytest.mark.parametrize("name", LATER)
async def test_code_that_runs_among_the_tests_reaches_nothing(name, own_sandbox):
  found = await grade(own_sandbox, _TAME + LATER[name], _USED)
  assert not found.correct


@pytest.mark.parametrize("name", SOURCES)
async def test_what_is_expected_is_not_to_be_found(name, own_sandbox):
  found = await grade(own_sandbox, SOURCES[name], TESTS)
  assert not found.correct


@pytest.mark.parametrize("name", MEMORY)
async def test_nor_is_it_outside_of_the_interpreter(name, sandbox):
  found = await grade(sandbox, MEMORY[name], TESTS)
  assert not found.correct


@pytest.mark.parametrize("name", CTYPES)
async def test_memory_cannot_be_written_to(name, own_sandbox):
  found = await grade(own_sandbox, CTYPES[name] + _OVERWRITES, _NUMBERS)
  assert not found.correct


async def test_a_task_with_ctypes_has_it(own_sandbox):
  found = await grade(own_sandbox, """
import ctypes
def task_func(numbers):
    return ctypes.CDLL("libc.so.6")._name, ctypes.sizeof(ctypes.c_int)
""", """
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        self.assertEqual(task_func([]), ("libc.so.6", 4))
""", "import ctypes\ndef task_func(numbers):\n")
  assert found.correct, found.reason


async def test_honest_programs_have_their_own_frames(own_sandbox):
  found = await grade(own_sandbox, """
import collections, inspect, logging, sys, traceback
def task_func(numbers):
    names = [frame.function for frame in inspect.stack()]
    Point = collections.namedtuple("Point", "x y")
    logging.getLogger("own").warning("said")
    try:
        1 / 0
    except ZeroDivisionError as fault:
        line = traceback.format_exc().splitlines()[-1]
        depth = fault.__traceback__.tb_frame.f_code.co_name
    return names[0], Point(1, 2).x, line, depth, sys._getframe().f_code.co_name
""", """
import logging
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        with self.assertLogs("own") as logs:
            result = task_func([])
        self.assertEqual(result, ("task_func", 1, "ZeroDivisionError: division by zero",
                                  "task_func", "task_func"))
        self.assertEqual(logs.records[0].funcName, "task_func")
""")
  assert found.correct, found.reason
