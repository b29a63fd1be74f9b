"""Hostile and honest programs in one crowd: every verdict is exact, and nothing is left of any."""

import asyncio
import os
import random
from dataclasses import replace

import psutil

from conductor_jax.tasks.sandbox import Limits
from tests.tasks.attack import mounts

LIMITS = Limits(
    cpu_seconds=0.3, wall_seconds=1.2, memory_bytes=150 << 20, output_bytes=1 << 20, processes=24,
    folder_bytes=16 << 20, file_bytes=4 << 20, files=1000)
# Honest programs, which print the sum of their input, on a machine that others are wearing out.
PATIENT = replace(LIMITS, cpu_seconds=20.0, wall_seconds=120.0)
HONEST = [
    "print(sum(map(int, input().split())))",
    "import sys\ntotal = 0\nfor word in sys.stdin.read().split(): total += int(word)\nprint(total)",
    "from functools import reduce\nprint(reduce(lambda a, b: a + int(b), input().split(), 0))",
    "import json, subprocess, sys\nprint(subprocess.run([sys.executable, '-S', '-c', "
    "'print(sum(map(int, input().split())))'], input=input(), text=True, capture_output=True)"
    ".stdout, end='')"]
WRONG = ["print(sum(map(int, input().split())) + 1)", "print('')", "raise ValueError",
         "import os\nos._exit(0)", "print(input())"]
# (program, outcomes)
HOSTILE = [
    ("while True: pass", {"time limit"}),
    ("import time\ntime.sleep(1000)", {"time limit"}),
    ("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", {"time limit"}),
    ("import os\nfor _ in range(6): os.fork()\nimport time\ntime.sleep(1000)",
     {"time limit", "exited"}),
    ("held = []\nwhile True: held.append(bytearray(8 << 20))", {"memory limit", "time limit"}),
    ("while True: print('x' * 10_000)", {"output limit"}),
    ("import os\nwhile True: os.write(3, b'x\\n' * 1000)", {"output limit"}),
    ("n = 0\nwhile True:\n  open(str(n), 'w').close()\n  n += 1", {"folder limit", "time limit"}),
    ("open('big', 'wb').write(bytes(5 << 20))", {"exited"}),
    ("import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(1000)\n"
     "  os._exit(0)\nos.wait()", {"exited"}),
    ("import os, signal\nfor n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n"
     "  except (OSError, ValueError): pass\ntry: os.kill(1, 9)\nexcept OSError: pass\n"
     "while True: pass", {"time limit"}),
    ("import os\nos.kill(os.getpid(), 19)", {"time limit"}),
    ("import os, shutil\nshutil.rmtree(os.getcwd())\nos.chmod('/tmp', 0)", {"exited"}),
    ("import ctypes\nctypes.string_at(0)", {"exited"}),
    ("import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x): return [f(x)]\nf(0)",
     {"exited", "memory limit", "time limit"}),
    ("import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'0' * 32 + b' 2 5 4\\nendedexit')\n"
     "  except OSError: pass", {"exited"}),
    ("import socket\nsocket.create_connection(('127.0.0.1', 22), 1)", {"exited"}),
    ("import os\nheld = []\nwhile True: held.append(os.open('/dev/null', 0))", {"exited"})]


async def crowd(sandbox, count, seed):
  """Runs a mixture of programs; returns those whose verdict is not what it must be."""
  choose, wrong = random.Random(seed), []

  async def one(program, limits, passes, outcomes):
    numbers = [choose.randrange(1000) for _ in range(5)]
    async with sandbox.session({"solution.py": program}, limits) as session:
      run = await session.run("solution.py", given=" ".join(map(str, numbers)) + "\n")
    passed = (run.outcome, run.status, run.output) == ("exited", 0, f"{sum(numbers)}\n")
    if passed != passes or run.outcome not in outcomes:
      wrong.append((program, run))

  programs = []
  for number in range(count):
    if number % 2:
      programs.append((*choose.choice([(program, PATIENT, True) for program in HONEST]
                                      + [(program, PATIENT, False) for program in WRONG]),
                       {"exited"}))
    else:
      program, outcomes = HOSTILE[number // 2 % len(HOSTILE)]
      programs.append((program, LIMITS, False, outcomes))
  choose.shuffle(programs)
  await asyncio.gather(*(one(*program) for program in programs))
  return wrong


async def run_crowd(sandbox, count, seed=0):
  async with sandbox.session({}):
    pass
  processes, before = set(psutil.Process().children(recursive=True)), mounts()
  descriptors = len(os.listdir("/proc/self/fd"))
  wrong = await crowd(sandbox, count, seed)
  await asyncio.sleep(0.2)  # the event loop closes what has ended
  assert wrong == []
  assert set(psutil.Process().children(recursive=True)) == processes
  assert mounts() == before
  assert len(os.listdir("/proc/self/fd")) == descriptors


async def test_verdicts_in_a_crowd_are_exact_and_nothing_is_left(sandbox):
  await run_crowd(sandbox, 108)
