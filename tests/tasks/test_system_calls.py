"""The filter of system calls, run as a kernel would run it, and its numbers beside the kernel's."""

import platform
import re
import struct
from pathlib import Path

import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks import system_calls
from conductor_jax.tasks.system_calls import system_call_filter

ALLOWED, KILLED = 0x7FFF0000, 0x80000000
EPERM, ENOSYS, EAFNOSUPPORT, NOTHING = 0x50001, 0x50026, 0x50061, 0x50000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {
    "x86_64": dict(
        read=0, mmap=9, getpid=39, socket=41, setsockopt=54, clone=56, execve=59, ptrace=101,
        setpriority=141, mount=165, io_setup=206, prlimit64=302, sched_setaffinity=203, unshare=272,
        memfd_create=319, clone3=435, close_range=436, mseal=462),
    "aarch64": dict(
        read=63, mmap=222, getpid=172, socket=198, setsockopt=208, clone=220, execve=221,
        ptrace=117, setpriority=140, mount=40, io_setup=0, prlimit64=261, sched_setaffinity=122,
        unshare=97, memfd_create=279, clone3=435, close_range=436, mseal=462)}


def verdict(program, number, *arguments, architecture):
  """What a filter returns for a call (`man 2 seccomp`)."""
  data = struct.pack("<iIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
  instructions = list(struct.iter_unpack("<HBBI", program))
  at = held = 0
  while True:
    operation, if_true, if_false, value = instructions[at]
    at += 1
    if operation == 0x20:  # load
      held = struct.unpack_from("<I", data, value)[0]
    elif operation == 0x54:  # and
      held &= value
    elif operation == 0x06:  # return
      return value
    else:  # jump if equal, at least, any bit
      holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[operation]
      at += if_true if holds else if_false


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize("call, arguments, expected", [
    ("read", (0, 0, 100), ALLOWED), ("getpid", (), ALLOWED), ("execve", (0, 0, 0), ALLOWED),
    ("close_range", (4, 9, 0), ALLOWED), ("mseal", (), ALLOWED),
    ("ptrace", (16, 1), EPERM), ("mount", (), EPERM), ("io_setup", (1, 0), EPERM),
    ("unshare", (0,), EPERM), ("memfd_create", (0, 0), EPERM),
    ("clone", (17,), ALLOWED), ("clone", (0x3D0F00,), ALLOWED),  # fork and a thread
    ("clone", (0x10000000 | 17,), EPERM), ("clone", (0x20000 | 17,), EPERM),
    ("clone", (0x40000000 | 17,), EPERM), ("clone3", (0, 88), ENOSYS),
    ("mmap", (0, 4096, 3, 0x22), ALLOWED), ("mmap", (0, 4096, 3, 0x01), ALLOWED),
    ("mmap", (0, 4096, 3, 0x02), ALLOWED), ("mmap", (0, 4096, 3, 0x21), EPERM),
    ("mmap", (0, 4096, 3, 0x23), EPERM), ("mmap", (0, 4096, 3, 0x8021), EPERM),
    ("mmap", (0, 4096, 3, 0x40022), EPERM), ("mmap", (0, 4096, 3, 0x40002), EPERM),
    ("socket", (1, 1), ALLOWED), ("socket", (2, 1), ALLOWED), ("socket", (10, 2), ALLOWED),
    ("socket", (16, 3), ALLOWED), ("socket", (40, 1), EAFNOSUPPORT),
    ("socket", (38, 5), EAFNOSUPPORT), ("socket", (0, 1), EAFNOSUPPORT),
    ("setsockopt", (3, 1, 2), ALLOWED), ("setsockopt", (3, 1, 7), NOTHING),
    ("setsockopt", (3, 1, 8), NOTHING), ("setsockopt", (3, 6, 7), ALLOWED),
    ("prlimit64", (0, 7), ALLOWED), ("prlimit64", (1, 7), EPERM),
    ("sched_setaffinity", (0, 8), ALLOWED), ("sched_setaffinity", (1, 8), EPERM),
    ("setpriority", (0, 0, 5), ALLOWED), ("setpriority", (0, 1, 19), EPERM),
    ("setpriority", (1, 0, 19), EPERM), ("setpriority", (2, 0, 19), EPERM)])
def test_calls_are_refused_by_name_and_by_argument(monkeypatch, machine, call, arguments, expected):
  monkeypatch.setattr(platform, "machine", lambda: machine)
  given = verdict(system_call_filter(), NUMBERS[machine][call], *arguments,
                  architecture=ARCHITECTURES[machine])
  assert given == expected, hex(given)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_calls_of_another_architecture_kill_and_unknown_ones_do_not_exist(monkeypatch, machine):
  monkeypatch.setattr(platform, "machine", lambda: machine)
  program, own = system_call_filter(), ARCHITECTURES[machine]
  assert verdict(program, 0, architecture=0x40000003) == KILLED  # of 32-bit programs
  assert verdict(program, 463, architecture=own) == ENOSYS
  assert verdict(program, 0x40000000 | 41, architecture=own) == ENOSYS  # x32
  assert verdict(program, -1, architecture=own) == ENOSYS


def test_a_machine_that_is_not_known_has_no_filter(monkeypatch):
  monkeypatch.setattr(platform, "machine", lambda: "ppc64le")
  with pytest.raises(UserError, match="no filter of system calls for ppc64le: use one of x86_64"):
    system_call_filter()


@pytest.mark.parametrize("column, header", [
    (0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), (1, "/usr/include/asm-generic/unistd.h")])
def test_numbers_are_those_of_the_kernels_headers(column, header):
  if not Path(header).exists():
    pytest.skip(f"{header} is not installed")
  theirs = {}
  defined = re.compile(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\n")
  for name, number in defined.findall(Path(header).read_text()):
    theirs.setdefault(name, int(number))
  ours = {**system_calls._REFUSED, **system_calls._OF_ONESELF,
          **{name[1:].lower(): getattr(system_calls, name)
             for name in ("_SETPRIORITY", "_CLONE", "_CLONE3", "_MMAP", "_SOCKET", "_SETSOCKOPT")}}
  known = {name: numbers[column] for name, numbers in ours.items() if name in theirs or column == 0}
  assert len(known) > 60
  # Headers may be older than a call.
  assert {name: theirs.get(name, number) for name, number in known.items()} == known
