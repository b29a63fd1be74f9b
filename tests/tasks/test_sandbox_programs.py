"""What runs in a sandbox is run as Python runs it, and what it comes to is told as it is."""

import json

import numpy
import pytest

from conductor_jax.tasks.sandbox import Limits
from tests.tasks.attack import attack


async def run(sandbox, program, *arguments, given="", answer=None, limits=Limits()):  # noqa: B008
  async with sandbox.session({"solution.py": program}, limits) as session:
    return await session.run("solution.py", *arguments, given=given, answer=answer)


async def test_a_program_is_the_main_module_as_it_is_elsewhere(own_sandbox):
  program = """
import dataclasses, json, pickle, sys
@dataclasses.dataclass
class Point:
  x: int
def names():
  return __name__, __doc__, __file__, __package__, __spec__, sys.argv
if __name__ == "__main__":
  print(json.dumps([names(), pickle.loads(pickle.dumps(Point(3))).x, sys.path[0] == sys.argv[1],
                    sys.modules["__main__"].Point is Point, list(vars(sys.modules["__main__"]))]))
"""
  told = await run(own_sandbox, program, "argument")
  names, x, _, same, defined = json.loads(told.output)
  assert names == ["__main__", None, "solution.py", None, None, ["solution.py", "argument"]]
  assert (x, same) == (3, True)
  assert sorted(defined) == sorted([
      "__name__", "__file__", "__doc__", "__package__", "__spec__", "__loader__", "__builtins__",
      "dataclasses", "json", "pickle", "sys", "Point", "names"])


async def test_files_of_a_session_can_be_imported_and_packages_too(own_sandbox):
  files = {"solution.py": "import numpy, other; print(numpy.__version__, other.name)",
           "other.py": "name = 'ö'"}
  async with own_sandbox.session(files) as session:
    told = await session.run("solution.py")
  assert told.output == f"{numpy.__version__} ö\n", told


async def test_a_child_with_the_same_interpreter_has_the_packages(own_sandbox):
  program = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', " \
            "'import numpy, os; print(numpy.__version__, len(os.environ))'])\n" \
            "import os; print(len(os.environ))"
  told = await run(own_sandbox, program)
  assert told.output == f"{numpy.__version__} 12\n12\n", told


@pytest.mark.parametrize("program, status, said", [
    ("exit(3)", 3, ""), ("quit()", 0, ""), ("import sys\nsys.exit('enough')", 1, "enough"),
    ("import os\nos._exit(7)", 7, ""), ("raise ValueError('no')", 1, "ValueError: no"),
    ("def broken(", 1, "SyntaxError"), ("print('a\0b')", 1, "null bytes"),
    ("print('a')\n\udcff\udcfe", 1, "can't decode"), ("# coding: no-such\n", 1, "no-such"),
    ("input()", 1, "EOFError"), ("def f(): f()\nf()", 1, "RecursionError"),
    ("import os\nos.abort()", -6, ""), ("import os\nos.kill(os.getpid(), 15)", -15, ""),
    ("import ctypes\nctypes.string_at(0)", -11, ""),
    ("import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x): return [f(x)]\nf(0)", None, ""),
    ("print(" + "(" * 500 + ")" * 500 + ")", 1, "SyntaxError"),
    ("x = " + "-" * 200_000 + "1", 1, ""), ("", 0, ""), ("import os\nos.close(1)\nexit(5)", 5, ""),
], ids=range(19))
async def test_the_end_of_a_program_is_told(own_sandbox, program, status, said):
  told = await run(own_sandbox, program)
  assert told.outcome in ("exited", "memory limit") and said in told.errors, told
  assert told.status == status if status is not None else told.status != 0, told


async def test_no_core_is_dumped(sandbox, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  program = "import ctypes, os, resource\nprint(resource.getrlimit(resource.RLIMIT_CORE))\n" \
            "if os.fork() == 0: ctypes.string_at(0)\nos.wait()\nprint(sorted(os.listdir('.')))"
  told = await attack(sandbox, program)
  assert told.output.splitlines() == ["(1, 1)", "['probe.py', 'solution.py']"], told
  assert list(tmp_path.iterdir()) == []


async def test_signals_are_what_they_are_at_the_start_of_a_python(own_sandbox):
  program = """
import signal
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler,
      [n for n in range(1, 32) if signal.getsignal(n) == signal.SIG_IGN and n not in (13, 25)])
"""
  assert (await run(own_sandbox, program)).output == "True []\n"


async def test_text_that_is_no_utf_8_comes_out_as_it_went_in(own_sandbox):
  program = "import sys\ndata = sys.stdin.buffer.read()\nsys.stdout.buffer.write(data)\n" \
            "sys.stderr.buffer.write(b'\\xff')"
  told = await run(own_sandbox, program, given="é€\0\r\n\U0001f600")
  assert told.output == "é€\0\r\n\U0001f600" and told.errors == "\udcff"
  printed = await run(own_sandbox, "print(input())", given="é€\U0001f600\n")
  assert printed.output == "é€\U0001f600\n"


async def test_lines_go_to_and_fro_by_the_channel(own_sandbox):
  program = """
import os
for number in range(3):
  os.write(3, b"ask %d\\n" % number)
  print(os.read(3, 100).decode(), end="")
os.write(3, b"bye\\nunfinished")
"""
  heard = []

  async def answer(line):
    heard.append(line)
    return None if line == b"bye" else line.replace(b"ask", b"answer")

  told = await run(own_sandbox, program, answer=answer)
  assert told.output == "answer 0\nanswer 1\nanswer 2\n"
  assert heard == [b"ask 0", b"ask 1", b"ask 2", b"bye"]


async def test_large_lines_go_to_and_fro_while_the_parent_is_slow(own_sandbox):
  program = """
import os
line = b"x" * 1_000_000 + b"\\n"
for _ in range(3):
  sent = 0
  while sent < len(line):
    sent += os.write(3, line[sent:])
total = 0
while total < 3 * (len(line) + 1):
  total += len(os.read(3, 1 << 20))
print(total)
"""
  async def answer(line):
    return line + b"y"

  told = await run(own_sandbox, program, answer=answer)
  assert told.output == "3000006\n", told


async def test_a_program_that_ends_without_listening_keeps_nobody_waiting(own_sandbox):
  # Its output waits for the parent, which waits for process 1 to take the answer.
  program = "import os\nos.write(3, b'x\\n')\nprint('y' * 3_000_000)"

  async def answer(line):
    return bytes(30_000_000)

  told = await run(own_sandbox, program, answer=answer)
  assert told.outcome == "exited" and told.output == "y" * 3_000_000 + "\n", told.outcome


async def test_what_a_fault_of_the_answers_leaves_is_another_sandbox(own_sandbox):
  async def answer(line):
    raise LookupError(line)

  files = {"ask.py": "import os, time\nos.write(3, b'x\\n')\ntime.sleep(1000)",
           "say.py": "print(1)"}
  async with own_sandbox.session(files) as session:
    with pytest.raises(LookupError):
      await session.run("ask.py", answer=answer)
    assert (await session.run("say.py")).output == "1\n"


async def test_time_and_memory_are_measured(own_sandbox):
  program = """
import time
began = time.process_time()
held = bytearray(b"x") * (50 << 20)
while time.process_time() - began < 0.5: pass
time.sleep(0.5)
"""
  told = await run(own_sandbox, program)
  assert told.outcome == "exited"
  assert 0.5 <= told.cpu_seconds < 2 and told.wall_seconds >= 1.0
  assert 50 << 20 < told.peak_bytes < 90 << 20
