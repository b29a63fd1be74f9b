"""A sandbox ends with what it was made for, however that ends."""

import asyncio
import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from conductor_jax.tasks.sandbox import Limits, Sandbox, SandboxError

_PR_SET_CHILD_SUBREAPER = 36
SLEEP = {"sleep.py": "import time\ntime.sleep(1000)", "say.py": "print('right')"}


@pytest.fixture
def left():
  """What processes of ours there are: orphans come to this one, so that none is overlooked."""
  libc = ctypes.CDLL(None)
  libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
  before = set(psutil.Process().children(recursive=True))

  def is_alive(process):
    try:
      return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
      return False

  def find():
    return [child for child in psutil.Process().children(recursive=True)
            if child not in before and is_alive(child)]

  yield find
  libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
  for child in set(psutil.Process().children(recursive=True)) - before:
    child.kill()
    child.wait()


def gone(left):
  """Waits for processes to go, which is the kernel's work."""
  give_up = time.monotonic() + 30
  while left() and time.monotonic() < give_up:
    time.sleep(0.02)
  return not left()


async def hold(sandbox, running):
  async with sandbox.session(SLEEP) as session:
    running.set()
    await session.run("sleep.py")


async def test_a_cancelled_run_leaves_no_process_and_frees_its_place(left):
  sandbox, running = Sandbox(sessions=1), asyncio.Event()
  task = asyncio.create_task(hold(sandbox, running))
  await running.wait()
  await asyncio.sleep(0.1)
  assert len(left()) >= 2
  task.cancel()
  with pytest.raises(asyncio.CancelledError):
    await task
  assert not left()
  async with sandbox.session(SLEEP) as session:
    assert (await session.run("say.py")).output == "right\n"


async def test_a_sandbox_that_is_killed_leaves_no_process(left):
  async with Sandbox().session(SLEEP) as session:
    run = asyncio.create_task(session.run("sleep.py"))
    await asyncio.sleep(0.2)
    assert len(left()) == 3  # bubblewrap, process 1 and the program
    session._process.kill()
    async with asyncio.timeout(30):
      with pytest.raises(SandboxError, match="the sandbox was lost"):
        await run
    assert gone(left)
    assert (await session.run("say.py")).output == "right\n"


async def test_a_session_goes_on_after_a_run_that_was_cancelled(own_sandbox):
  async with own_sandbox.session(SLEEP) as session:
    with pytest.raises(TimeoutError):
      async with asyncio.timeout(0.2):
        await session.run("sleep.py")
    assert (await session.run("say.py")).output == "right\n"


async def test_sandboxes_that_are_cancelled_at_any_moment_of_their_start_leave_no_process(left):
  sandbox, choose = Sandbox(sessions=4), random.Random(0)
  async with sandbox.session(SLEEP):
    pass  # proven
  for _ in range(60):
    task = asyncio.create_task(hold(sandbox, asyncio.Event()))
    await asyncio.sleep(choose.uniform(0, 0.04))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
  assert gone(left)


async def test_sessions_beyond_the_places_wait_their_turn():
  sandbox, inside, most = Sandbox(sessions=2), 0, 0

  async def one(number):
    nonlocal inside, most
    async with sandbox.session({"add.py": "print(int(input()) + 1)"}) as session:
      inside += 1
      most = max(most, inside)
      run = await session.run("add.py", given=f"{number}\n")
      inside -= 1
    return int(run.output)

  assert await asyncio.gather(*map(one, range(8))) == list(range(1, 9))
  assert most == 2


async def test_an_exception_in_a_session_ends_it_and_frees_its_place(left):
  sandbox = Sandbox(sessions=1)
  for _ in range(3):
    with pytest.raises(ZeroDivisionError):
      async with sandbox.session(SLEEP) as session:
        await session.run("say.py")
        raise ZeroDivisionError
  assert not left()


async def test_many_sessions_leave_no_descriptor(own_sandbox):
  async def one(script):
    async with own_sandbox.session(SLEEP, Limits(wall_seconds=0.3)) as session:
      await session.run(script)

  await one("say.py")
  before = len(os.listdir("/proc/self/fd"))
  await asyncio.gather(*(one(script) for script in ("say.py", "sleep.py") * 10))
  # One that is left in the middle of what it says.
  async with own_sandbox.session({"say.py": "import os\nfor _ in range(50): os.write(3, LINE)"
                                            .replace("LINE", "b'x' * 9999 + b'\\n'")}) as session:
    with pytest.raises(TimeoutError):
      async with asyncio.timeout(1):
        await session.run("say.py", answer=lambda line: asyncio.sleep(1000))
  await asyncio.sleep(0.1)  # the event loop closes what has ended
  assert len(os.listdir("/proc/self/fd")) == before


def test_a_sandbox_serves_one_event_loop_after_another_and_several_at_once(left):
  sandbox, outputs = Sandbox(sessions=1), []

  async def one():
    async with sandbox.session(SLEEP) as session:
      outputs.append((await session.run("say.py")).output)

  asyncio.run(one())
  asyncio.run(one())
  threads = [threading.Thread(target=asyncio.run, args=(one(),)) for _ in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert outputs == ["right\n"] * 5
  assert not left()


PARENT = """
import asyncio, sys
from conductor_jax.tasks.sandbox import Sandbox

async def main():
  async with Sandbox(unsafe=sys.argv[1] == "unsafe").session({"program.py": PROGRAM}) as session:
    async def tell(line):
      print("running", flush=True)
      if sys.argv[2] == "closed":
        asyncio.get_running_loop().stop()
    await session.run("program.py", answer=tell)

PROGRAM = '''
import os, time
if os.fork() == 0:
  os.setsid()
  if os.fork():
    os._exit(0)
os.write(3, b"x\\\\n")
while True: time.sleep(1)
'''
if sys.argv[2] == "closed":
  loop = asyncio.new_event_loop()
  task = loop.create_task(main())
  loop.run_forever()
  loop.close()
else:
  asyncio.run(main())
"""


def start_parent(mode, end, folder):
  parent = subprocess.Popen([sys.executable, "-c", PARENT, mode, end], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2],
                            env={**os.environ, "TMPDIR": str(folder)})
  assert parent.stdout.readline() == b"running\n"
  return parent


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("mode", ["sandbox", "unsafe"])
def test_a_parent_that_is_killed_in_the_middle_leaves_nothing(left, tmp_path, mode, number):
  parent = start_parent(mode, "killed", tmp_path)
  assert len(left()) >= 3
  parent.send_signal(number)
  parent.wait()
  parent.stdout.close()
  assert gone(left)
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["sandbox", "unsafe"])
def test_an_event_loop_that_is_closed_in_the_middle_leaves_nothing(left, tmp_path, mode):
  parent = start_parent(mode, "closed", tmp_path)
  parent.wait()
  parent.stdout.close()
  assert gone(left)
  assert list(tmp_path.iterdir()) == []
