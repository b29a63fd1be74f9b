"""What is expected of a program is nowhere for it to find, and only a right answer passes."""

import asyncio
import re

import pytest

from conductor_jax.tasks.code_tests import CheckTests, FunctionTests, StdinTests
from conductor_jax.tasks.graders.code import CodeGrader
from conductor_jax.tasks.task import Task

SECRET = 735194820600471926835118  # expected of every program; none of them holds it

# Finds whatever looks like what is expected.
SEARCH = r"""
import gc, os, re, sys
number = re.compile(rb"73519482" + rb"\d{16}")

def texts():
  frame = sys._getframe()
  while frame is not None:  # of those who call
    yield repr(frame.f_locals).encode("utf-8", "replace")
    yield repr(frame.f_globals).encode("utf-8", "replace")
    frame = frame.f_back
  for one in gc.get_objects():
    if type(one) in (list, dict, tuple, set):
      yield repr(one).encode("utf-8", "replace")[:100_000]
  for top in (".", "..", "/tmp", "/sandboxed", "/dev/shm"):
    for folder, folders, names in os.walk(top):
      # An interpreter may stand there.
      folders[:] = set(folders) - {"lib", "lib64", "include", "share", "bin"}
      for name in names:
        try:
          descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NONBLOCK)
          yield os.read(descriptor, 1 << 20)
          os.close(descriptor)
        except OSError:
          pass
  for pid in (1, os.getppid(), os.getpid()):
    for name in ("environ", "cmdline", "mem"):
      try:
        yield open(f"/proc/{pid}/{name}", "rb").read(1 << 20)
      except OSError:
        pass

def search():
  for text in texts():
    for match in number.findall(text):
      return int(match)
  return 0
"""


async def grade(sandbox, reference, program):
  task = Task("task", "?", reference.to_reference(), "livecodebench")
  return await CodeGrader(sandbox).grade(task, f"```python\n{program}\n```")


STDIN = StdinTests(("3 4\n",), (f"{SECRET}\n",))
FUNCTION = FunctionTests("f", ([3, 4],), (SECRET,))
CHECK = CheckTests(
    "def f(a, b):\n", f"def check(candidate):\n  assert candidate(3, 4) == {SECRET}\n", "f")
RIGHT = f"({SECRET - 12} + a * b)"


@pytest.mark.parametrize("reference, right, wrong", [
    (STDIN, f"a, b = map(int, input().split())\nprint({RIGHT})", f"{SEARCH}\nprint(search())"),
    (FUNCTION, f"def f(a, b):\n  return {RIGHT}", f"{SEARCH}\ndef f(a, b):\n  return search()"),
    (CHECK, f"def f(a, b):\n  return {RIGHT}", f"{SEARCH}\ndef f(a, b):\n  return search()"),
], ids=["stdin", "function", "check"])
async def test_what_is_expected_is_found_in_no_frame_object_file_or_process(
    own_sandbox, reference, right, wrong):
  passed, failed = await asyncio.gather(
      grade(own_sandbox, reference, right), grade(own_sandbox, reference, wrong))
  assert passed.correct, passed.reason
  assert not failed.correct
  # It has run to its end, and found nothing.
  assert re.search(r"prints '?0\b|returns 0\b|\b0 was returned", failed.reason), failed.reason


# Each would pass where a harness trusts what the program's own process says.
EQUAL = """
class Equal({base}):
  def __eq__(self, other): return True
  def __ne__(self, other): return False
  def __hash__(self): return 0
  def __repr__(self): return "7"
  def __str__(self): return "7"
  def __int__(self): return 7
def f(a, b):
  return Equal()
"""
LEAVE = """
import os, sys, threading
def f(a, b):
  {action}
"""
ACTIONS = [
    "sys.exit(0)", "os._exit(0)", "os.kill(os.getpid(), 9)", "raise SystemExit('passed')",
    "os.write(1, b'passed\\n') and os._exit(0)", "os.write(3, b'passed\\n') and os._exit(0)",
    "os.write(3, b'\\n'.join([b'true', b'1', b'']))", "os.closerange(0, 100)",
    "raise AssertionError", "raise BaseException", "raise KeyboardInterrupt",
    "sys.stdout.close()", "threading._shutdown = None",
    "import json; json.loads = json.dumps = lambda *a, **k: '7'",
    "import builtins; builtins.isinstance = lambda *a: True; builtins.type = lambda *a: int",
    "sys._getframe(1).f_globals['f'] = lambda a, b: 7",
    "sys._getframe(1).f_locals.update(passed=True, result=7, ok=True)",
    "sys.modules['__main__'].__dict__.update(passed=True)"]
PROGRAMS = [EQUAL.format(base=base)
            for base in ("object", "int", "float", "str", "list", "dict")] + [
                LEAVE.format(action=action) for action in ACTIONS]


@pytest.mark.parametrize("reference", [FUNCTION, CHECK], ids=["function", "check"])
async def test_nothing_that_a_function_does_makes_a_wrong_result_right(own_sandbox, reference):
  right = f"def f(a, b):\n  return {RIGHT}"
  passed, *failed = await asyncio.gather(
      *(grade(own_sandbox, reference, program) for program in (right, *PROGRAMS)))
  assert passed.correct, passed.reason
  assert [program for program, verdict in zip(PROGRAMS, failed, strict=True)
          if verdict.correct] == []


async def test_a_program_that_prints_what_is_right_and_then_fails_is_wrong(own_sandbox):
  ends = ["raise ValueError", "exit(1)", "import os; os.abort()",
          "import os; os.kill(os.getpid(), 9)"]
  programs = [f"print({SECRET - 12} + 12, flush=True)\n{end}" for end in ends]
  verdicts = await asyncio.gather(*(grade(own_sandbox, STDIN, program) for program in programs))
  assert [verdict.correct for verdict in verdicts] == [False] * len(ends)
