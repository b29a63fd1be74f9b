"""The memory that a program can hold is bounded, whatever holds it."""

from dataclasses import replace

import pytest

from tests.tasks.attack import LIMITS, attack, report

SMALL = replace(LIMITS, memory_bytes=200 << 20, wall_seconds=10.0, cpu_seconds=8.0)


@pytest.mark.parametrize("program", [
    # One process.
    "held = []\nwhile True: held.append(bytearray(8 << 20))",
    # Many, each of which would be allowed.
    "import os, time\nfor _ in range(20):\n  if os.fork() == 0:\n"
    "    held = bytearray(40 << 20)\n    time.sleep(1000)\ntime.sleep(1000)",
    # In a daemon.
    "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    held = []\n"
    "    while True: held.append(bytearray(8 << 20))\n  os._exit(0)\ntime.sleep(1000)",
    # In a thread.
    "import threading\nheld = []\ndef fill():\n  while True: held.append(bytearray(8 << 20))\n"
    "threading.Thread(target=fill).start()",
    # In one that has made itself unreadable.
    "import ctypes\nctypes.CDLL(None).prctl(4, 0)\nheld = []\n"
    "while True: held.append(bytearray(8 << 20))",
    # In sockets' buffers, which count for no process.
    "import os, socket, time\nfor _ in range(20):\n  if os.fork() == 0:\n    held = []\n"
    "    for _ in range(100):\n      held.append(socket.socketpair())\n"
    "      held[-1][0].setblocking(False)\n      try:\n"
    "        while True: held[-1][0].send(bytes(1 << 16))\n      except BlockingIOError: pass\n"
    "    time.sleep(1000)\ntime.sleep(1000)",
], ids=["one process", "many processes", "daemon", "thread", "unreadable", "sockets"])
async def test_a_memory_bomb_ends_at_the_limit(sandbox, program):
  run = await attack(sandbox, program, limits=SMALL)
  assert (run.outcome, run.status) == ("memory limit", -9), run
  assert SMALL.memory_bytes < run.peak_bytes < 3 * SMALL.memory_bytes, run


async def test_memory_that_was_held_for_an_instant_counts(sandbox):
  # Given back between two looks, most likely: the kernel has counted it.
  program = """
import mmap
size = 201 << 20
held = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, size, 4096):
  held[at] = 1
held.close()
"""
  run = await attack(sandbox, program, limits=SMALL)
  assert run.outcome == "memory limit" and run.peak_bytes > SMALL.memory_bytes, run


async def test_pages_that_processes_share_count_once(sandbox):
  program = """
import mmap, os, time
held = bytearray(b"x") * (60 << 20)
children = []
for _ in range(8):
  children.append(os.fork())
  if children[-1] == 0:
    time.sleep(1)
    os._exit(0)
for child in children:
  os.waitpid(child, 0)
print(len(held))
"""
  run = await attack(sandbox, program, limits=SMALL)
  assert (run.outcome, run.output) == ("exited", f"{60 << 20}\n"), run
  assert run.peak_bytes < SMALL.memory_bytes


async def test_addresses_are_bounded(sandbox):
  run = await attack(sandbox, "held = bytearray(5 << 30)")
  assert (run.outcome, run.status) == ("exited", 1) and "MemoryError" in run.errors, run


# Ways to memory that stays when it is not mapped, or that counts for nobody.
UNSEEN = """
import ctypes, errno, json, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
made = []

def attempt(name, action, *arguments):
  try:
    if action(*arguments) not in (-1, 2 ** 64 - 1):
      made.append(name)
  except OSError:
    pass

SHARED, PRIVATE, ANONYMOUS, HUGE = 1, 2, 0x20, 0x40000
attempt("shared", mmap.mmap, -1, 1 << 20)
attempt("shared and validated", libc.mmap, None, 1 << 20, 3, 3 | ANONYMOUS, -1, 0)
attempt("huge", libc.mmap, None, 2 << 20, 3, PRIVATE | ANONYMOUS | HUGE, -1, 0)
attempt("/dev/zero", os.open, "/dev/zero", os.O_RDWR)
attempt("memfd", os.memfd_create, "x")
attempt("shmget", libc.shmget, 0, 1 << 20, 0o1600)
attempt("semget", libc.semget, 0, 32000, 0o1600)
attempt("msgget", libc.msgget, 0, 0o1600)
attempt("mq_open", libc.mq_open, b"/x", os.O_CREAT | os.O_RDWR, 0o600, None)
attempt("/dev/ptmx", os.open, "/dev/ptmx", os.O_RDWR)
attempt("mlock", libc.mlockall, 3)
attempt("private", lambda: mmap.mmap(-1, 1 << 20, PRIVATE | ANONYMOUS).close())
attempt("a file", lambda: mmap.mmap(os.open("/bin/true", os.O_RDONLY), 4096, SHARED, 1).close())
with open("mapped", "wb+") as file:
  file.truncate(1 << 20)
  attempt("a file of its own", lambda: mmap.mmap(file.fileno(), 1 << 20, SHARED).close())
print(json.dumps(made))
"""


async def test_memory_that_no_process_is_seen_to_hold_cannot_be_had(sandbox):
  assert await report(sandbox, UNSEEN) == ["private", "a file", "a file of its own"]


async def test_files_in_memory_are_bounded_with_their_folders(sandbox):
  program = """
import json, os
written = {}
for folder in (".", "/dev/shm"):
  total, number = 0, 0
  try:
    while True:
      descriptor = os.open(f"{folder}/{number}", os.O_CREAT | os.O_RDWR)
      os.unlink(f"{folder}/{number}")  # and yet it stays
      number += 1
      for _ in range(2):
        total += os.write(descriptor, bytes(1 << 20))
  except OSError:
    written[folder] = total >> 20
print(json.dumps(written))
"""
  limits = replace(SMALL, folder_bytes=64 << 20)
  told = await report(sandbox, program, limits=limits)
  assert 60 <= told["."] <= 64 and 14 <= told["/dev/shm"] <= 16


async def test_pipes_hold_little(sandbox):
  program = """
import fcntl, os
held, total = [], 0
try:
  while True:
    held.append(os.pipe())
    os.set_blocking(held[-1][1], False)
    try:
      fcntl.fcntl(held[-1][1], fcntl.F_SETPIPE_SZ, 1 << 20)
    except OSError:
      pass
    try:
      while True:
        total += os.write(held[-1][1], bytes(1 << 16))
    except BlockingIOError:
      pass
except OSError:
  print(total < 128 << 20, len(held))
"""
  run = await attack(sandbox, program, limits=SMALL)
  assert run.output == "True 126\n", run
