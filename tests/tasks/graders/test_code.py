"""Programs that read standard input, and functions whose results are compared."""

import json

import pytest

from conductor_jax.tasks.code_tests import FunctionTests, StdinTests
from conductor_jax.tasks.graders import code
from conductor_jax.tasks.graders.code import CodeGrader
from conductor_jax.tasks.sandbox import Limits
from conductor_jax.tasks.task import GradingError, Task

_DOUBLE = "print(2 * int(input()))"


async def _grade(sandbox, program, tests):
  return await CodeGrader(sandbox).grade(
      Task("task", "?", tests if isinstance(tests, str) else tests.to_reference(), "livecodebench"),
      f"```python\n{program}\n```")


async def _stdin(sandbox, program, *pairs):
  inputs, outputs = zip(*pairs, strict=True)
  return await _grade(sandbox, program, StdinTests(inputs, outputs))


async def _call(sandbox, program, arguments, expected):
  return await _grade(sandbox, program, FunctionTests("f", (arguments,), (expected,)))


async def test_a_right_program_passes_all_tests(own_sandbox):
  found = await _stdin(own_sandbox, _DOUBLE, ("3\n", "6\n"), ("4", "8.0"), ("0", "0"))
  assert found.correct
  assert found.extracted.strip() == _DOUBLE
  assert found.reason.startswith("The program passes all of its 3 tests, with at most 0.")
  assert found.reason.endswith(" MB.")
  assert [test.passed for test in found.tests] == [True] * 3
  assert all(0 < test.cpu_seconds < 5 and 1e6 < test.peak_bytes < 1e9 for test in found.tests)


async def test_a_wrong_program_stops_at_the_first_test_that_fails(own_sandbox):
  found = await _stdin(own_sandbox, "print(6)", ("3", "6"), ("4", "8"), ("5", "10"))
  assert not found.correct
  assert [test.passed for test in found.tests] == [True, False]
  assert found.reason == ("Test 2 of 3: for the input 4 the program prints 6, and 8 is expected.")
  assert found.tests[0].reason == "Test 1 of 3 passes."


@pytest.mark.parametrize("program, said", [
    ("print(", "The program fails with SyntaxError: '(' was never closed."),
    ("1 / 0", "The program fails with ZeroDivisionError: division by zero."),
    ("int('x')", "The program fails with ValueError: invalid literal for int() with base 10: 'x'."),
    ("input(); input()", "The program fails with EOFError: EOF when reading a line."),
    ("import sys; sys.exit('no way')", "The program fails: no way."),
    ("import sys; sys.exit(3)", "The program fails: exit status 3."),
    ("import os; os.abort()", "The program is killed by signal 6."),
    ("x = [0] * 10**9", "The program fails with MemoryError."),
    ("pass", "For the input 3 the program prints '', and 6 is expected."),
    ("print('a' * 500)", f"For the input 3 the program prints {'a' * 200}…, and 6 is expected."),
    ("print(5); print(6)", r"For the input 3 the program prints '5\n6', and 6 is expected."),
])
async def test_a_reason_says_what_happened(program, said, own_sandbox):
  found = await _stdin(own_sandbox, program, ("3", "6"))
  assert (found.correct, found.reason) == (False, said)


@pytest.mark.parametrize("program", [
    "import sys\nprint(2 * int(sys.stdin.readline()))",
    "import sys\nprint(2 * int(sys.stdin.buffer.readline()))",
    "print(2 * sum(int(line) for line in sys.stdin))",
    "print(2 * int(open(0).read()))",
    "def main():\n  print(2 * int(input()))\nif __name__ == '__main__':\n  main()",
    "class Solution:\n  def f(self, x): return 2 * x\nprint(Solution().f(int(input())))",
    "from __future__ import annotations\nprint(2 * int(input()))",
    "n = int(input())\ndef double():\n  global n\n  n *= 2\ndouble()\nprint(n)",
    "from dataclasses import dataclass\n@dataclass\nclass A:\n  x: 'int'\n"
    "print(2 * A(int(input())).x)",
    "print(2 * int(input()), flush=True)\nexit()",
    "import os\nos.write(1, b'%d' % (2 * int(input())))",
    "def f(n): return 0 if n == 0 else 1 + f(n - 1)\nf(20_000)\nprint(2 * int(input()))",
    "from functools import cache\n@cache\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)\n"
    "f(20_000)\nprint(2 * int(input()))",
    "import threading\ndef main(): print(2 * int(input()))\n"
    "threading.stack_size(2**26)\nthread = threading.Thread(target=main)\n"
    "thread.start()\nthread.join()",
    "print(2 * int(input()))\nclass E:\n  def __del__(self): raise ValueError\nE()",
])
async def test_programs_of_all_kinds_run_as_scripts(program, own_sandbox):
  found = await _stdin(own_sandbox, program, ("3", "6"))
  assert found.correct, found.reason


@pytest.mark.parametrize("program", ["while True: pass", "import time; time.sleep(60)"])
async def test_a_program_has_a_time_limit(program, own_sandbox, monkeypatch):
  monkeypatch.setattr(code, "_LIMITS", Limits(cpu_seconds=1, wall_seconds=2))
  found = await _stdin(own_sandbox, program, ("3", "6"))
  assert found.reason == (
      "The program takes longer than 1 s of processor time or 2 s in all.")


async def test_a_program_never_sees_what_is_expected(own_sandbox):
  program = """
import os, re, sys
packages = os.path.dirname(os.path.dirname(sys.executable))
texts = [str(dict(os.environ)), str(sys.argv), sys.stdin.read()]
for folder, _, names in (part for top in (".", "/tmp", "/dev/shm", "/proc/self", "/proc/1")
                         for part in os.walk(top)):
  for name in names if not folder.startswith(packages) else ():
    try:
      texts.append(open(os.path.join(folder, name), errors="replace").read(10**6))
    except (OSError, ValueError):
      pass
print(re.findall("48151[0-9]+", "".join(texts))[0])
"""
  assert (await _stdin(own_sandbox, program, ("4815162342", "4815162342"))).correct
  found = await _stdin(own_sandbox, program, ("3", "4815162342"))
  assert found.reason == "The program fails with IndexError: list index out of range."


async def test_many_lines_are_compared_at_once(own_sandbox):
  lines = "\n".join(map(str, range(100_000)))
  program = "for number in range(int(input())): print(number, '.0', sep='')"
  assert (await _stdin(own_sandbox, program, ("100000", lines))).correct
  found = await _stdin(own_sandbox, program, ("99999", lines))
  assert not found.correct
  assert len(found.reason) < 1000


@pytest.mark.parametrize("body, arguments, expected", [
    ("return 1.0", [], 1),
    ("return (1, (2, 3))", [], [1, [2, 3]]),
    ("return {1: 'a', 'b': [True]}", [], {"1": "a", "b": [True]}),
    ("return float('nan')", [], float("nan")),
    ("return Counter(x)", ["aab"], {"a": 2, "b": 1}),
    ("return x", [[[[[[[5]]]]]]], [[[[[[5]]]]]]),
    ("return x", [None], None),
    ("return 10**40", [], 10**40),
    ("return 'é\\n\\ud800'", [], "é\n\ud800"),
    ("import numpy; return numpy.arange(3)", [], [0, 1, 2]),
    ("import numpy as np; return [np.float64(2.5), np.bool_(1), np.int8(3)]", [], [2.5, True, 3]),
    ("x.append(1); return x", [[]], [1]),
    ("print('not what is returned'); return 5", [], 5),
    ("return deque([x, 2]).popleft() + gcd(4, 6) + inf", [1], float("inf")),
    ("return sorted(x, key=cmp_to_key(lambda a, b: b - a))", [[1, 3, 2]], [3, 2, 1]),
])
async def test_results_that_are_right(body, arguments, expected, own_sandbox):
  names = "self, x=None"
  program = f"class Solution:\n  def f({names}) -> Optional[List[int]]:\n    {body}"
  found = await _call(own_sandbox, program, arguments, expected)
  assert found.correct, found.reason
  program = f"def f(x=None):\n  {body}"
  assert (await _call(own_sandbox, program, arguments, expected)).correct


@pytest.mark.parametrize("body, expected, said", [
    ("return True", 1, "The call f(3) returns true, and 1 is expected."),
    ("return 1", True, "The call f(3) returns 1, and true is expected."),
    ("return 0.1 + 0.2", 0.3, "The call f(3) returns 0.30000000000000004, and 0.3 is expected."),
    ("pass", 0, "The call f(3) returns null, and 0 is expected."),
    ("return [1, 2]", [1], "The call f(3) returns [1, 2], and [1] is expected."),
    ("return {1, 2}", [1, 2], "The program fails: f returns a set, which is no plain data."),
    ("return (n for n in [1])", [1],
     "The program fails: f returns a generator, which is no plain data."),
    ("return {1.5: 2}", {"1.5": 2},
     "The program fails: f returns a dict with a float as a key, which is no plain data."),
    ("return E()", 5, "The program fails: f returns a E, which is no plain data."),
    ("return I(4)", 5, "The program fails: f returns a I, which is no plain data."),
    ("return [[I(4)]]", [[5]], "The program fails: f returns a I, which is no plain data."),
    ("return L([5])", [4], "The call f(3) returns [5], and [4] is expected."),
    ("return D(a=5)", {"a": 4}, 'The call f(3) returns {"a": 5}, and {"a": 4} is expected.'),
    ("return N()", 5, "The program fails with TypeError: tolist"),
    ("import unittest.mock as m; return m.ANY", 5,
     "The program fails: f returns a _ANY, which is no plain data."),
    ("x = []\n  for _ in range(10**5): x = [x]\n  return x", [],
     "The program fails with RecursionError"),
    ("return 10**5000", 5, "The program fails with ValueError: Exceeds the limit"),
    ("return f(x)", 5, "The program fails with RecursionError: maximum recursion depth exceeded"),
    ("raise KeyError(x)", 5, "The program fails with KeyError: 3."),
    ("import os; os._exit(0)", 5, "The call f(3) returns nothing."),
    ("import sys; sys.exit(0)", 5, "The call f(3) returns nothing."),
    ("import os; os.write(3, b'4\\n'); return 5", 5, "The call f(3) returns more than once."),
    ("import os; os.write(3, b'5\\n5\\n'); os._exit(0)", 5,
     "The call f(3) returns more than once."),
    ("import os; os.write(3, b'{\\n'); os._exit(0)", 5,
     "The call f(3) returns what cannot be read."),
    ("import os; os.write(3, b'[' * 10**5 + b'\\n'); os._exit(0)", 5,
     "The call f(3) returns what cannot be read."),
    ("import os; os.write(3, b'9' * 5000 + b'\\n'); os._exit(0)", 5,
     "The call f(3) returns what cannot be read."),
    ("import os; os.close(3); return 5", 5, "The program fails with OSError: [Errno 9]"),
])
async def test_results_that_are_not(body, expected, said, own_sandbox):
  found = await _call(own_sandbox, f"""
class E:
  def __eq__(self, other): return True
class I(int):
  def __eq__(self, other): return True
class L(list):
  def __iter__(self): return iter([4])
  def __eq__(self, other): return True
class D(dict):
  def items(self): return [("a", 4)]
class N:
  def tolist(self): raise TypeError("tolist")
N.__module__ = "numpy"
def f(x):
  {body}
""", [3], expected)
  assert not found.correct
  assert found.reason.startswith(said), found.reason


async def test_a_program_without_the_function_says_so(own_sandbox):
  found = await _call(own_sandbox, "def g(x): return x", [5], 5)
  assert found.reason == "The program fails: the program has no function f."


async def test_functions_are_called_anew_for_each_test(own_sandbox):
  program = "seen = []\ndef f(x):\n  seen.append(x)\n  return len(seen)"
  tests = FunctionTests("f", ([1], [2]), (1, 1))
  assert (await _grade(own_sandbox, program, tests)).correct


async def test_a_function_that_only_knows_some_tests_fails(own_sandbox):
  tests = FunctionTests("f", ([1], [2], [3]), (2, 4, 6))
  found = await _grade(own_sandbox, "def f(x): return {1: 2, 2: 4}.get(x)", tests)
  assert found.reason == "Test 3 of 3: the call f(3) returns null, and 6 is expected."


async def test_an_answer_without_a_program_is_unparsed(own_sandbox):
  task = Task("task", "?", StdinTests(("1",), ("2",)).to_reference(), "livecodebench")
  found = await CodeGrader(own_sandbox).grade(task, "It cannot be done.")
  assert (found.correct, found.extracted, found.tests) == (False, None, ())
  assert found.reason == "The answer holds no program (unparsed)."


@pytest.mark.parametrize("reference, said", [
    (json.dumps({"inputs": [], "outputs": []}), "there are no tests: at least one is needed"),
    ("no JSON", "the tests are not JSON"),
    ("{}", "the tests are in no form that is known"),
])
async def test_tests_that_cannot_be_read_are_a_grading_error(reference, said, own_sandbox):
  with pytest.raises(GradingError, match=f"task task: {said}"):
    await _grade(own_sandbox, _DOUBLE, reference)
