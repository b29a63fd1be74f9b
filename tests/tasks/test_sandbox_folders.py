"""The one folder that a program may fill is bounded, and what it does there ends with its run."""

import json
from dataclasses import replace

import pytest

from conductor_jax.tasks.sandbox import Limits
from tests.tasks.attack import LIMITS, attack

FOLDER = replace(LIMITS, folder_bytes=16 << 20, file_bytes=8 << 20, files=2000)


@pytest.mark.parametrize("program, outcome, said", [
    ("open('big', 'wb').write(bytes(9 << 20))", "exited", "File too large"),
    ("import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
     "open('big', 'wb').write(bytes(9 << 20))", "file limit", ""),
    ("for n in range(100): open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))", "exited",
     "No space left"),
    ("for n in range(100): open(f'/dev/shm/{n}', 'wb').write(bytes(1 << 20))", "exited",
     "No space left"),
    # Empty ones take no room of the folder's.
    ("n = 0\nwhile True:\n  open(str(n), 'w').close()\n  n += 1", "folder limit", ""),
    ("import os\nn = 0\nwhile True:\n  os.mkdir(str(n))\n  n += 1", "folder limit", ""),
    ("import os\nwhile True:\n  os.mkdir('d')\n  os.chdir('d')", "folder limit", ""),
    ("import os\nn = 0\nwhile True:\n  os.symlink('x' * 60, f'/dev/shm/{n}')\n  n += 1",
     "folder limit", ""),
], ids=["big", "big and killed", "many", "shared memory", "empty", "folders", "deep", "links"])
async def test_a_full_folder_ends_a_run_and_spares_the_next(sandbox, program, outcome, said):
  run = await attack(sandbox, program, limits=FOLDER)
  assert run.outcome == outcome and run.status != 0 and said in run.errors, run


LOOK = """
import json, os
print(json.dumps([os.listdir("."), open("solution.py").read()[:20],
                  len([name for name in os.listdir("/tmp") if len(name) == 16]),
                  os.listdir("/dev/shm"), oct(os.stat("/tmp").st_mode)]))
"""


@pytest.mark.parametrize("program", [
    "import os\nos.unlink('solution.py')",
    "import os, shutil\nshutil.rmtree(os.getcwd())",
    "import os\nos.rename(os.getcwd(), '/tmp/elsewhere')",
    "import os\nhere = os.getcwd()\nos.rename(here, '/tmp/elsewhere')\nos.symlink('/usr', here)",
    "import os\nhere = os.getcwd()\nos.rename(here, '/tmp/elsewhere')\nopen(here, 'w').close()",
    "import os\nos.unlink('solution.py')\nos.mkdir('solution.py')",
    "import os\nos.mkdir('d')\nopen('d/f', 'w').close()\nos.chmod('d', 0)",
    # Only where the folder is its own.
    "import os\nfor path in ('.', '/tmp', '/dev/shm'):\n  try:\n    os.chmod(path, 0)\n"
    "  except PermissionError: pass",
    "open('/tmp/left', 'w').close()",
    "open('/dev/shm/left', 'w').close()",
    "import os\nfor n in range(200): os.mkdir('/tmp/' + f'{n:016x}')",
    "import os\nos.mkfifo('/tmp/pipe')\nos.mkfifo('pipe')",
], ids=["program", "folder", "moved", "link", "file", "replaced", "closed", "all closed", "left",
        "shared memory", "guessed", "pipes"])
async def test_a_run_finds_nothing_of_the_one_before(sandbox, program):
  async with sandbox.session({"solution.py": program, "look.py": LOOK}) as session:
    first = await session.run("solution.py")
    told = await session.run("look.py")
  assert (first.outcome, first.status) == ("exited", 0), first
  listing, begin, folders, shared, mode = json.loads(told.output)
  assert sorted(listing) == ["look.py", "solution.py"] and program.startswith(begin)
  assert (folders, shared, mode) == (1, [], "0o40777")


async def test_runs_that_leave_nothing_share_a_sandbox_and_others_do_not(sandbox):
  files = {"where.py": "import os; print(os.readlink('/proc/self/ns/pid'))",
           "leave.py": "open('left', 'w').close()"}
  async with sandbox.session(files, Limits()) as session:
    first, again = await session.run("where.py"), await session.run("where.py")
    await session.run("leave.py")
    other = await session.run("where.py")
  assert first.output == again.output != other.output


async def test_every_run_has_the_room_that_is_said(sandbox):
  # Each takes more than half of it.
  files = {"fill.py": "for n in range(10): open(str(n), 'wb').write(bytes(1 << 20))"}
  async with sandbox.session(files, FOLDER) as session:
    for _ in range(3):
      run = await session.run("fill.py")
      assert (run.outcome, run.status) == ("exited", 0), run
