"""Ends a server, and all processes that it started, when the program that wanted it ends.

    python -m conductor_jax.sampling.guard [--parent ID] [--grace SECONDS] [--remove FOLDER]... \\
        -- COMMAND...

The program holds the write end of this process's standard input, and needs no chance to clean up:
however it ends, its end of the pipe is closed.

    standard input ends             the command's process group gets SIGTERM and after a grace
                                    period SIGKILL, and the folders are removed
    the same after a byte on it     the folders stay
    SIGTERM                         the group is ended; folders go when standard input has ended too
    the command ends by itself      this process ends with its status

A second process, the watcher, does what is left to do when this one ends, by SIGKILL too: it ends
the group, waits for the end of standard input, and removes the folders. Both hold standard output
and write nothing to it, so that its end says that nothing is left. What the command writes goes to
standard error.

Standard library only: it must start fast and come up in any environment.
"""

import argparse
import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

# From <linux/prctl.h>.
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
# Seconds after SIGKILL in which the kernel takes a process away.
_KILL_SECONDS = 10.0
_POLL_SECONDS = 0.1
# How often the guard looks for the end of a parent whose pipe another process holds open.
_PARENT_SECONDS = 1.0


def _process_control() -> Callable[..., int] | None:
  """Linux's prctl; None where there is no such call."""
  return ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def _group_lives(group: int) -> bool:
  # Processes that the group leaves behind are children of this process: it takes their status.
  with contextlib.suppress(ChildProcessError):
    while os.waitpid(-group, os.WNOHANG)[0]:
      pass
  try:
    os.killpg(group, 0)
  except ProcessLookupError:
    return False
  except PermissionError:  # macOS, of a group of which only zombies are left
    return False
  return sys.platform != "linux" or _has_more_than_zombies(group)


def _has_more_than_zombies(group: int) -> bool:
  # In a container the first process is often a program that takes nobody's status: the zombies of a
  # killed guard's group stay as long as the container.
  for name in filter(str.isdigit, os.listdir("/proc")):
    try:
      with open(f"/proc/{name}/stat", "rb") as file:
        state, _, its_group = file.read().rpartition(b")")[2].split()[:3]
    except (FileNotFoundError, ProcessLookupError):  # it has ended since
      continue
    if int(its_group) == group and state not in (b"Z", b"X"):
      return True
  return False


def end_group(group: int, grace: float) -> None:
  """Ends every process of a group, and returns when none is left.

  Args:
    group: its id.
    grace: seconds between SIGTERM and SIGKILL.
  """
  for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILL_SECONDS)):
    with contextlib.suppress(ProcessLookupError, PermissionError):
      os.killpg(group, number)
    deadline = time.monotonic() + seconds
    while _group_lives(group):
      if time.monotonic() > deadline:
        break
      time.sleep(_POLL_SECONDS)
    else:
      return
  print(f"guard: processes of group {group} outlived SIGKILL", file=sys.stderr, flush=True)


def remove_folders(folders: Sequence[str]) -> None:
  """Removes folders with all that is in them; one that is not there is as good as removed."""
  for folder in folders:
    try:
      shutil.rmtree(folder)
    except FileNotFoundError:
      continue
    except OSError as error:
      print(f"guard: {folder} is not removed: {error}", file=sys.stderr, flush=True)


def _read_to_the_end(descriptor: int) -> bytes:
  content = b""
  while part := os.read(descriptor, 4096):
    content += part
  return content


def _watch(pipe: int, grace: float, folders: Sequence[str]) -> None:
  """The watcher: waits for the guard's end, which is the pipe's, and does what it has not done."""
  message = _read_to_the_end(pipe).split()
  if b"done" in message or not message:
    return
  end_group(int(message[0]), grace)
  # The byte may have gone to the guard, just before it ended.
  if b"kept" not in message and not _read_to_the_end(0):
    remove_folders(folders)


def _start_watcher(grace: float, folders: Sequence[str]) -> int:
  """Returns the pipe that the guard writes to: the group's id, "kept" when folders are to stay, and
  "done" when nothing is left.
  """
  pipe, ours = os.pipe()
  if os.fork():
    os.close(pipe)
    return ours
  # In a session of its own, it is out of reach of whatever ends the guard's process group.
  os.setsid()
  os.close(ours)
  status = 1
  try:
    _watch(pipe, grace, folders)
    status = 0
  finally:
    os._exit(status)


def _start(command: Sequence[str]) -> subprocess.Popen:
  control, guard = _process_control(), os.getpid()

  def die_with_the_guard():
    # Not even a SIGKILL of guard and watcher leaves the command itself behind.
    control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
      os._exit(1)

  return subprocess.Popen(
      command, stdin=subprocess.DEVNULL, stdout=sys.stderr, process_group=0,
      preexec_fn=die_with_the_guard if control else None)


def _wait(child: subprocess.Popen, parent: int, pipe: int, wakeup: int, stopped: list) -> str:
  """What comes first: the "child" ends, or it is "closed", "kept" (so after a byte), "stopped"."""
  kept = False
  while True:
    if child.poll() is not None:
      return "child"
    if stopped:
      return "stopped"
    if os.getppid() != parent:
      return "closed"
    ready, _, _ = select.select([0, wakeup], [], [], _PARENT_SECONDS)
    if wakeup in ready:
      os.read(wakeup, 4096)
    if 0 in ready:
      if not os.read(0, 4096):
        return "kept" if kept else "closed"
      kept = True
      os.write(pipe, b"kept\n")


def guard(command: Sequence[str], parent: int, grace: float, folders: Sequence[str]) -> int:
  """Runs a command until it ends or must end.

  Args:
    command: what is started.
    parent: id of the program's process, which started this one.
    grace: seconds between SIGTERM and SIGKILL.
    folders: removed when the program ends.

  Returns:
    The exit status: the command's own when it ended by itself, else 0.
  """
  if control := _process_control():
    control(_PR_SET_NAME, b"conductor-guard")
    control(_PR_SET_CHILD_SUBREAPER, 1)
  stopped, (wakeup, wakeup_end) = [], os.pipe()
  os.set_blocking(wakeup_end, False)
  signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
  signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
  # Handlers, for the command would inherit what is ignored.
  for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda *_: None)
  pipe = _start_watcher(grace, folders)
  try:
    child = _start(command)
  except OSError as error:
    print(f"guard: {command[0]} cannot be started: {error}", file=sys.stderr, flush=True)
    return 127
  os.write(pipe, b"%d\n" % child.pid)
  reason = _wait(child, parent, pipe, wakeup, stopped)
  if reason == "child":
    return child.returncode if child.returncode >= 0 else 128 - child.returncode
  end_group(child.pid, grace)
  if reason == "stopped" and select.select([0], [], [], 0)[0]:
    reason = "kept" if _read_to_the_end(0) else "closed"
  if reason == "closed":
    remove_folders(folders)
  if reason != "stopped":
    os.write(pipe, b"done\n")
  return 0


def main(arguments: Sequence[str]) -> int:
  parser = argparse.ArgumentParser("guard", description="Ends a server with its program.")
  parser.add_argument("--parent", type=int, default=os.getppid(), metavar="ID")
  parser.add_argument("--grace", type=float, default=20.0, metavar="SECONDS")
  parser.add_argument("--remove", action="append", default=[], metavar="FOLDER")
  parser.add_argument("command", nargs="+")
  options = parser.parse_args(arguments)
  return guard(options.command, options.parent, options.grace, options.remove)


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
