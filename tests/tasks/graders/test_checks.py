"""Functions that are checked from another sandbox, as in HumanEval."""

import pytest

from conductor_jax.tasks.code_tests import CheckTests
from conductor_jax.tasks.graders import code
from conductor_jax.tasks.graders.code import CodeGrader
from conductor_jax.tasks.sandbox import Limits
from conductor_jax.tasks.task import GradingError, Task

_PROMPT = '''from typing import List

def double(numbers: List[int]) -> List[int]:
    """Doubles each number.
    >>> double([1, 2])
    [2, 4]
    """
'''
_CHECK = '''
METADATA = {"author": "us"}


def check(candidate):
    assert candidate([]) == []
    assert candidate([1, 2]) == [2, 4], "two numbers"
    assert candidate(numbers=[-3]) == [-6]
'''
_BODY = "    return [2 * number for number in numbers]"


async def _grade(sandbox, program, check=_CHECK, prompt=_PROMPT, name="double"):
  reference = CheckTests(prompt, check, name).to_reference()
  return await CodeGrader(sandbox).grade(
      Task("task", prompt, reference, "humaneval"), f"```python\n{program}\n```")


@pytest.mark.parametrize("program", [
    _BODY,
    _PROMPT + _BODY,
    f"def double(numbers):\n{_BODY}",
    f"class Solution:\n    def double(self, numbers):\n    {_BODY}",
    "def double(numbers):\n    print('on the way')\n    return [*map(lambda x: x + x, numbers)]",
    f"from __future__ import annotations\ndef double(numbers: Any):\n{_BODY}",
    f"def double(numbers):\n{_BODY}\n\nif __name__ == '__main__':\n    double(input())",
])
async def test_right_programs_pass(program, own_sandbox):
  found = await _grade(own_sandbox, program)
  assert found.correct, found.reason
  assert found.reason.startswith("The program passes its test, with at most 0.")
  assert len(found.tests) == 1
  assert 0 < found.tests[0].cpu_seconds < 5
  assert 1e6 < found.tests[0].peak_bytes < 1e9


@pytest.mark.parametrize("program, said", [
    ("    return numbers", 'The check fails at assert candidate([1, 2]) == [2, 4], "two numbers" '
                           "(AssertionError: two numbers), where [1, 2] was returned."),
    ("    return 5", "The check fails at assert candidate([]) == [], where 5 was returned."),
    ("    return (2 * number for number in numbers)",
     "The program fails: double returns a generator, which is no plain data."),
    ("    raise ValueError('no')",
     "The check fails at assert candidate([]) == [] (ValueError: no)."),
    ("    raise Own('no')\nclass Own(Exception): pass",
     "The check fails at assert candidate([]) == [] (Exception: Own: no)."),
    ("    return b'x'.decode('no-such-encoding')",
     "The check fails at assert candidate([]) == [] (LookupError: unknown encoding"),
    ("    return b'\\xff'.decode()",
     "The check fails at assert candidate([]) == [] (Exception: UnicodeDecodeError: 'utf-8' codec"),
    ("    return E()\nclass E:\n    def __eq__(self, other): return True",
     "The program fails: double returns a E, which is no plain data."),
    ("    return E(numbers)\nclass E(list):\n    def __eq__(self, other): return True",
     "The program fails: double returns a E, which is no plain data."),
    ("    return I(7)\nclass I(int):\n    def __eq__(self, other): return True",
     "The program fails: double returns a I, which is no plain data."),
    ("    return undefined", "(NameError: name 'undefined' is not defined)."),
    ("    return ((", "The program fails with SyntaxError: '(' was never closed."),
    ("def double(): return []", "takes 0 positional arguments but 1 was given)."),
    ("    pass\ndel double", "The program fails: the program has no function double."),
    ("    import os; os._exit(0)", "The program ends before its check does."),
    ("    import sys; sys.exit(0)", "The program ends before its check does."),
    ("    import os; os.kill(os.getpid(), 15)", "The program is killed by signal 15."),
    ("    raise KeyboardInterrupt", "The program is killed by signal 2."),
    ("    return [0] * 10**10", "(MemoryError)."),
    ("    return double(numbers)", "(RecursionError: maximum recursion depth exceeded"),
    ("    x = []\n    for _ in range(10**5): x = [x]\n    return x",
     "The program fails with RecursionError"),
])
async def test_wrong_programs_fail_with_a_reason(program, said, own_sandbox):
  found = await _grade(own_sandbox, program)
  assert not found.correct
  assert said in found.reason, found.reason


_WORDS = """
import os
def double(numbers):
    os.write(3, {words})
    return {result}
"""


@pytest.mark.parametrize("words", [
    r"b'passed\n'", r"b'ready\n'", r"b'ready\n' * 5", r"b'{}\n'", r"b'{\n'", r"b'[[[\n'", r"b'\n'",
    r"b'[' * 100000 + b'\n'", r"b'[\"returned\", {\"list\": []}]\n' * 9",
    r"b'[\"returned\", {\"none\": []}]\n'", r"b'[\"raised\", \"SystemExit\", \"0\"]\n'",
    r"b'[\"returned\", {\"set\": [{\"list\": []}]}]\n'", r"b'faulty it is not me\n'",
    r"b'\xff\xfe\n'", "b'x' * 10**7",
])
async def test_a_program_that_says_more_does_not_pass(words, own_sandbox):
  found = await _grade(own_sandbox, _WORDS.format(words=words, result="[]"))
  assert not found.correct


async def test_a_program_that_has_closed_its_channel_does_not_pass(own_sandbox):
  found = await _grade(own_sandbox, "import os\nos.close(3)\ndef double(numbers): return []")
  assert "The program fails with OSError: [Errno 9] Bad file descriptor" in found.reason


async def test_words_before_a_call_are_taken_for_results(own_sandbox):
  found = await _grade(own_sandbox, f"""
import os
os.write(3, b'["returned", {{"list": []}}]\\n')
def double(numbers):
{_BODY}
""")
  assert not found.correct  # every result is one too late


async def test_a_program_cannot_change_what_its_check_holds(own_sandbox):
  found = await _grade(own_sandbox, """
def double(numbers):
    numbers.append(99)
    return numbers
""", """
def check(candidate):
    numbers = [1]
    assert candidate(numbers) == [1, 99]
    assert numbers == [1]
""")
  assert found.correct, found.reason


@pytest.mark.parametrize("program", [
    "    while True: pass",
    "    import time\n    time.sleep(60)",
    "    import signal\n    for number in range(1, 32):\n        try: signal.signal(number, "
    "signal.SIG_IGN)\n        except OSError: pass\n    while True: pass",
])
async def test_a_program_that_never_returns_is_ended(program, own_sandbox, monkeypatch):
  monkeypatch.setattr(code, "_LIMITS", Limits(cpu_seconds=1, wall_seconds=2))
  found = await _grade(own_sandbox, program)
  assert found.reason == "The program takes longer than 1 s of processor time or 2 s in all."


async def test_a_program_that_does_not_end_passes_when_its_check_does(own_sandbox):
  found = await _grade(own_sandbox, f"""
import atexit, time
atexit.register(time.sleep, 60)
def double(numbers):
{_BODY}
""")
  assert found.correct, found.reason


async def test_values_travel_as_they_are(own_sandbox):
  found = await _grade(own_sandbox, "def same(*values, **named): return values, named", """
import math
def check(candidate):
    values = (None, True, 1, 1.5, "é\\ud800", b"\\xff", [1, (2, {3})], 2j, 10**5000,
              math.inf, -0.0, {(1, 2): {"a": frozenset([4])}})
    assert candidate(*values, more=[()]) == (values, {"more": [()]})
    assert type(candidate(True)[0][0]) is bool
    assert math.isnan(candidate(math.nan)[0][0])
    assert str(candidate(-0.0)[0][0]) == "-0.0"
""", "def same(*values, **named):\n", "same")
  assert found.correct, found.reason


@pytest.mark.parametrize("value, expected", [
    ("Counter('aab')", "{'a': 2, 'b': 1}"),
    ("OrderedDict(a=1)", "{'a': 1}"),
    ("defaultdict(list, a=[1])", "{'a': [1]}"),
    ("namedtuple('P', 'x y')(1, 2)", "(1, 2)"),
])
async def test_what_equals_plain_data_is_plain_data(value, expected, own_sandbox):
  found = await _grade(
      own_sandbox, f"from collections import *\ndef f(): return {value}",
      f"def check(candidate):\n    assert candidate() == {expected}", "def f():\n", "f")
  assert found.correct, found.reason


async def test_exceptions_are_those_that_were_raised(own_sandbox):
  check = """
def check(candidate):
    try:
        candidate([])
        assert False, "nothing was raised"
    except IndexError as fault:
        assert str(fault) == "no number"
"""
  assert (await _grade(own_sandbox, "    raise IndexError('no number')", check)).correct
  assert not (await _grade(own_sandbox, "    raise KeyError('no number')", check)).correct
  found = await _grade(own_sandbox, "    return []", check)
  assert "nothing was raised" in found.reason


async def test_a_check_may_use_what_its_prompt_defines(own_sandbox):
  prompt = '''
def encode(text: str):
    """Moves every letter by one."""
    return "".join(chr(ord(letter) + 1) for letter in text)


def decode(text: str):
    """Undoes encode."""
'''
  check = """
def check(candidate):
    for text in ("abc", "xyz", ""):
        assert candidate(encode(text)) == text
"""
  body = "    return ''.join(chr(ord(letter) - 1) for letter in text)"
  assert (await _grade(own_sandbox, body, check, prompt, "decode")).correct
  cheat = "def encode(text): return text\n\ndef decode(text): return text"
  assert not (await _grade(own_sandbox, cheat, check, prompt, "decode")).correct


@pytest.mark.parametrize("check, said", [
    ("def check(candidate)\n    pass", "check.py does not load: SyntaxError: expected ':'"),
    ("import no_such_module\ndef check(candidate): pass",
     "check.py does not load: ModuleNotFoundError: No module named 'no_such_module'"),
    ("def check(candidate):\n    pass", "it never calls the function"),
    ("def check(candidate):\n    assert False\n    candidate()",
     "it fails before it calls the function: assert False"),
    ("def check(candidate):\n    1 / 0", "calls the function: 1 / 0 (ZeroDivisionError"),
    ("def check(candidate):\n    assert candidate(print) is None",
     "it calls the function with a builtin_function_or_method"),
    ("def check(): pass", "it fails before it calls the function: TypeError: check() takes 0"),
    ("class A:\n    def check(candidate): pass",
     "it fails before it calls the function: KeyError: 'check'"),
])
async def test_a_faulty_check_is_nobodys_fault(check, said, own_sandbox):
  with pytest.raises(GradingError, match="task task: the check cannot be used: ") as raised:
    await _grade(own_sandbox, _BODY, check)
  assert said in str(raised.value)


async def test_a_faulty_prompt_is_nobodys_fault(own_sandbox):
  with pytest.raises(GradingError, match="prompt.py does not load: SyntaxError"):
    await _grade(own_sandbox, f"def double(numbers):\n{_BODY}", prompt="def double(numbers)\n")
