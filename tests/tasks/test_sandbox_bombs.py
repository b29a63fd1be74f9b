"""Programs that make too many processes, threads or file descriptors."""

from dataclasses import replace

import pytest

from tests.tasks.attack import LIMITS, attack


@pytest.mark.parametrize("program, outcome", [
    # Each process makes another one, as fast as it can.
    ("import os\nwhile True:\n  try:\n    os.fork()\n  except OSError: pass", "time limit"),
    # Slowly, and each in a session of its own.
    ("import os, time\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n"
     "  except OSError: pass\n  time.sleep(0.02)", "time limit"),
    # By another program, which gives up once it cannot fork.
    ("import os\nos.execv('/bin/sh', ['sh', '-c', 'f() { f | f & f; }; f'])", "exited"),
    # Threads.
    ("import threading, time\nwhile True:\n  try:\n"
     "    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
     "  except RuntimeError: pass", "time limit"),
], ids=["exponential", "slow", "shell", "threads"])
async def test_a_fork_bomb_stays_small_and_ends(sandbox, program, outcome):
  run = await attack(sandbox, program, limits=replace(LIMITS, processes=32, wall_seconds=3.0))
  assert run.outcome == outcome and run.cpu_seconds < LIMITS.cpu_seconds + 1, run


MANY = """
import os, time
made = 0
try:
  while made < 200:
    if os.fork() == 0:
      time.sleep(1000)
    made += 1
except BlockingIOError:
  print(made)
"""


async def test_processes_and_threads_are_as_many_as_is_said(sandbox):
  run = await attack(sandbox, MANY, limits=replace(LIMITS, processes=20))
  assert (run.outcome, run.output) == ("exited", "19\n"), run


async def test_the_processor_time_of_all_processes_counts(sandbox):
  program = "import os\nfor _ in range(8): os.fork()\nwhile True: pass"
  limits = replace(LIMITS, cpu_seconds=1.0, wall_seconds=20.0, processes=300)
  run = await attack(sandbox, program, limits=limits)
  assert run.outcome == "time limit" and 1.0 < run.cpu_seconds < 3.0, run
  assert run.wall_seconds < 10


async def test_file_descriptors_are_bounded(sandbox):
  program = """
import os
held = []
try:
  while True:
    held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as fault:
  print(len(held), fault.strerror)
"""
  run = await attack(sandbox, program, limits=replace(LIMITS, open_files=100))
  assert run.output == "96 Too many open files\n", run  # and four that it began with
