"""Programs without isolation: only their limits, and an end that leaves nothing of them."""

import asyncio
import os
import tempfile
from dataclasses import replace

import psutil
import pytest

from conductor_jax.tasks.sandbox import Sandbox
from tests.tasks.attack import LIMITS


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
  """An unsafe one, whose folders are made in a folder of the test."""
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  monkeypatch.setenv("OPENAI_API_KEY", "canary")
  yield Sandbox(unsafe=True, sessions=2)
  assert list(tmp_path.iterdir()) == []
  assert not [one for one in psutil.process_iter(["cmdline"])
              if "sandboxed/program.py" in " ".join(one.info["cmdline"] or ())
              and str(tmp_path) in one.environ().get("HOME", "")]


async def run(sandbox, program, *arguments, limits=LIMITS, **options):
  async with sandbox.session({"solution.py": program}, limits) as session:
    return await session.run("solution.py", *arguments, **options)


async def test_a_program_runs_without_bubblewrap_and_without_the_environment(sandbox, monkeypatch):
  monkeypatch.setenv("PATH", "")
  program = ("import os, sys\n"
             "print(os.getuid(), input(), sys.argv[1], os.environ.get('OPENAI_API_KEY'))")
  told = await run(sandbox, program, "x", given="y\n")
  assert told.output == f"{os.getuid()} y x None\n", told


@pytest.mark.parametrize("program, limit, outcome, said", [
    ("while True: pass", {"cpu_seconds": 0.5}, "time limit", ""),
    ("import time\ntime.sleep(1000)", {"wall_seconds": 0.5}, "time limit", ""),
    ("held = []\nwhile True: held.append(bytearray(8 << 20))", {"memory_bytes": 100 << 20},
     "memory limit", ""),
    ("while True: print('x' * 10_000)", {"output_bytes": 1 << 20}, "output limit", ""),
    ("import os, time\nfor _ in range(50):\n  if os.fork() == 0:\n    os.setsid()\n"
     "    time.sleep(1000)\ntime.sleep(1000)", {"processes": 20}, "process limit", ""),
    ("held = bytearray(2 << 30)", {"address_bytes": 1 << 30}, "exited", "MemoryError"),
    ("open('big', 'wb').write(bytes(2 << 20))", {"file_bytes": 1 << 20}, "exited",
     "File too large"),
    ("import os\nheld = [os.open('.', 0) for _ in range(50)]", {"open_files": 30}, "exited",
     "Too many open files")],
    ids=["cpu", "wall", "memory", "output", "processes", "addresses", "file", "descriptors"])
async def test_limits_hold(sandbox, program, limit, outcome, said):
  told = await run(sandbox, program, limits=replace(LIMITS, **limit))
  assert told.outcome == outcome and told.status != 0 and said in told.errors, told


@pytest.mark.parametrize("daemon", [
    # It ignores signals.
    "for number in range(1, 32):\n    try:\n      signal.signal(number, signal.SIG_IGN)\n"
    "    except OSError: pass\n  while True: time.sleep(1)",
    # It lives on in a child, and that in one of its own, and so on.
    "while True:\n    if os.fork(): os._exit(0)",
    "os.kill(os.getpid(), signal.SIGSTOP)"], ids=["deaf", "chain", "stopped"])
async def test_what_a_program_leaves_ends_with_it(sandbox, daemon):
  program = f"""
import os, signal, time
if os.fork() == 0:
  os.setsid()
  if os.fork():
    os._exit(0)
  {daemon}
time.sleep(0.1)
"""
  told = await run(sandbox, program)
  # Those that have ended count until the program's end.
  assert told.outcome in ("exited", "process limit"), told


async def test_a_fork_bomb_ends(sandbox):
  # Of a breadth that a machine without limits of its own bears.
  program = "import os, time\nfor _ in range(9):\n  os.fork()\n  time.sleep(0.01)\ntime.sleep(1000)"
  told = await run(sandbox, program, limits=replace(LIMITS, processes=30))
  assert told.outcome == "process limit" or "Resource temporarily" in told.errors, told


async def test_a_run_finds_nothing_of_the_one_before(sandbox):
  files = {
      "leave.py": "import os\nfor path in ('', os.environ['TMPDIR'] + '/'):\n"
                  "  open(path + 'left', 'w').close()",
      "look.py": "import os\nprint([len(os.listdir(p)) for p in ('.', os.environ['TMPDIR'])])"}
  async with sandbox.session(files, LIMITS) as session:
    await session.run("leave.py")
    assert (await session.run("look.py")).output == "[2, 1]\n"


async def test_a_run_that_is_cancelled_leaves_nothing(sandbox):
  running = asyncio.Event()

  async def tell(line):
    running.set()

  task = asyncio.create_task(run(
      sandbox, "import os, time\nos.write(3, b'x\\n')\ntime.sleep(1000)", answer=tell))
  await running.wait()
  task.cancel()
  with pytest.raises(asyncio.CancelledError):
    await task
