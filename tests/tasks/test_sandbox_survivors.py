"""Nothing that a program starts outlives its run, and no signal of its stops or spares anything."""

import asyncio
import os
from dataclasses import replace

import pytest

from tests.tasks.attack import LIMITS, attack, report


@pytest.mark.parametrize("program", [
    # Of another module than os, which harnesses replace.
    "import posix\nif posix.fork() == 0:\n  while True: pass",
    # A module that was taken away, and is imported again.
    "import sys, subprocess\nsys.modules.pop('subprocess')\nimport subprocess\n"
    "subprocess.Popen(['sleep', '1000'])",
    # A daemon: another session, and a parent that is gone.
    "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n"
    "    os.chdir('/')\n    os.closerange(0, 100)\n    time.sleep(1000)\n  os._exit(0)\nos.wait()",
    # Sleeping grandchildren that hold the standard pipes and the channel open.
    "import os, time\nfor _ in range(4):\n  if os.fork() == 0:\n    if os.fork() == 0:\n"
    "      time.sleep(1000)\n    os._exit(0)",
    # A chain: each starts the next and ends.
    "import os, time\nif os.fork() == 0:\n  os.setsid()\n  while True:\n"
    "    if os.fork(): os._exit(0)\n    time.sleep(0.001)",
    # Threads that never end, in a program that does.
    "import os, threading, time\nfor _ in range(20):\n"
    "  threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    # Children that ignore every signal.
    "import os, signal, time\nif os.fork() == 0:\n  for number in range(1, 65):\n    try:\n"
    "      signal.signal(number, signal.SIG_IGN)\n    except (OSError, ValueError):\n      pass\n"
    "  while True: time.sleep(1)",
    # Stopped children.
    "import os, signal\nif os.fork() == 0:\n  os.kill(os.getpid(), signal.SIGSTOP)",
], ids=["posix.fork", "subprocess again", "daemon", "grandchildren", "chain", "threads",
        "ignores signals", "stopped"])
async def test_what_a_program_leaves_ends_with_it(sandbox, program):
  run = await attack(sandbox, f"{program}\nprint('right', flush=True)")
  assert (run.outcome, run.status, run.output) == ("exited", 0, "right\n"), run
  assert run.wall_seconds < LIMITS.wall_seconds


IGNORING = """
import os, signal, sys, time
print("begun", flush=True)
for number in range(1, 65):
  try:
    signal.signal(number, signal.SIG_IGN)
  except (OSError, ValueError):
    pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
signal.alarm(0)
"""


async def test_a_program_that_ignores_everything_is_ended_at_its_limit(sandbox):
  ends = [
      "while True: time.sleep(1000)", "while True: pass", "os.kill(os.getpid(), signal.SIGSTOP)",
      "while True:\n  try:\n    time.sleep(1000)\n  except BaseException:\n    pass",
      # In C, where Python sees to no signal.
      "sum(range(10 ** 12))", "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')",
      "os.read(os.pipe()[0], 1)", "pow(7, 10 ** 9)"]
  limits = replace(LIMITS, cpu_seconds=0.4, wall_seconds=2.0)
  for run in await asyncio.gather(*(
      attack(sandbox, IGNORING + end, limits=limits) for end in ends)):
    assert (run.outcome, run.status, run.output) == ("time limit", -9, "begun\n"), run
    assert run.wall_seconds < limits.wall_seconds + 2


KILLING = """
import os, signal
killed = []
for pid in {1, os.getppid()}:
  for number in range(1, 65):
    try:
      os.kill(pid, number)
      signal.pidfd_send_signal(os.pidfd_open(pid), number)
    except OSError:
      pass
for pid in range(2, 100):
  if pid != os.getpid():
    try:
      os.kill(pid, signal.SIGKILL)
      killed.append(pid)
    except ProcessLookupError:
      pass
print(killed, flush=True)
"""


async def test_process_1_cannot_be_killed_stopped_or_interrupted(sandbox):
  run = await attack(sandbox, KILLING)
  assert (run.outcome, run.status, run.output) == ("exited", 0, "[]\n"), run


async def test_killing_all_kills_no_more_than_the_program(sandbox):
  # A signal to -1 goes to all but its sender and process 1: there is nobody.
  run = await attack(sandbox, "import os\nos.kill(-1, 9)")
  assert (run.outcome, run.status) == ("exited", 1) and "ProcessLookupError" in run.errors, run
  # Like one that the kernel has killed when it was out of memory.
  run = await attack(sandbox, "import os\nos.kill(0, 9)")
  assert (run.outcome, run.status) == ("memory limit", -9), run


async def test_zombies_are_gone_after_a_run(sandbox):
  program = """
import os, time
for _ in range(30):
  if os.fork() == 0:
    if os.fork() == 0:
      os._exit(0)
    time.sleep(0.05)
    os._exit(0)
time.sleep(0.3)
print("right")
"""
  run = await attack(sandbox, program)
  assert (run.outcome, run.output) == ("exited", "right\n"), run


NAMESPACES = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
done = []

def attempt(name, value):
  if value not in (-1, None):
    done.append(name)

for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
  attempt(f"unshare {flag:x}", libc.unshare(flag))
  attempt(f"clone {flag:x}", libc.syscall(NUMBERS["clone"], flag | 17, 0, 0, 0, 0))
attempt("mount", libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
attempt("bind", libc.mount(b"/", b"/tmp", None, 4096, None))
attempt("remount", libc.mount(None, b"/usr", None, 32, None))
attempt("umount", libc.umount2(b"/proc", 2))
attempt("chroot", libc.chroot(b"."))
attempt("pivot_root", libc.syscall(NUMBERS["pivot_root"], b".", b"."))
attempt("setns", libc.setns(os.open("/proc/self/ns/mnt", os.O_RDONLY), 0))
attempt("trace me", libc.ptrace(0, 0, 0, 0))
attempt("setuid", libc.setuid(0))
attempt("setgid", libc.setgid(0))
attempt("hostname", libc.sethostname(b"x", 1))
attempt("keys", libc.syscall(NUMBERS["add_key"], b"user", b"x", b"x", 1, -3))
attempt("bpf", libc.syscall(NUMBERS["bpf"], 0, 0, 0))
attempt("io_uring", libc.syscall(425, 8, b"\\0" * 200))
attempt("userfaultfd", libc.syscall(NUMBERS["userfaultfd"], 1))
attempt("perf", libc.syscall(NUMBERS["perf_event_open"], b"\\0" * 200, 0, -1, -1, 0))
attempt("newer than is known", libc.syscall(467, -100, b".", 0x80000, 0, 0))
print(json.dumps(done))
"""
NUMBERS = {
    "x86_64": dict(clone=56, pivot_root=155, add_key=248, bpf=321, userfaultfd=323,
                   perf_event_open=298),
    "aarch64": dict(clone=220, pivot_root=41, add_key=217, bpf=280, userfaultfd=282,
                    perf_event_open=241)}


@pytest.mark.skipif(os.uname().machine not in NUMBERS, reason="there is no sandbox here")
async def test_namespaces_mounts_tracing_and_risky_system_calls_are_refused(sandbox):
  program = NAMESPACES.replace("NUMBERS", repr(NUMBERS[os.uname().machine]))
  assert await report(sandbox, program) == []
