"""What the processes of a program hold, and their end."""

import _signal as signal
import posix as os
import resource
import time

_PAGE, _CLOCK = resource.getpagesize(), os.sysconf("SC_CLK_TCK")
_TO_KILL = 5.0  # seconds
# Bytes that a socket can hold in the kernel, in its buffers of the usual size.
_SOCKET = 1 << 19


class Processes:
  """A program's processes, those included that it has left to process 1.

  Args:
    alone: whether all processes that this one sees are a program's; otherwise those are that
      descend from it.
  """

  def __init__(self, alone):
    self._alone = alone
    # Process id -> exit status and usage, of those that have ended and were waited for.
    self.ended = {}

  def look(self):
    """Process id -> its fields in /proc/PID/stat from the third on, of those that there are."""
    found = _look()
    if self._alone:
      return found
    return {pid: fields for pid, fields in found.items() if _descends(pid, os.getpid(), found)}

  def memory(self, found):
    """Bytes that processes hold together; pages that they share count once for each."""
    return sum(int(fields[21]) for fields in found.values()) * _PAGE + self._sockets()

  def shared_memory(self, found):
    """As `memory`, with pages that processes share counted once; takes long."""
    return sum(_proportional(pid, fields) for pid, fields in found.items()) + self._sockets()

  def kill(self):
    """Kills them all, and waits for their end.

    Raises:
      TimeoutError: some cannot be killed; never where they are alone.
    """
    if self._alone:
      try:
        os.kill(-1, signal.SIGKILL)  # all of this process namespace but its process 1
      except ProcessLookupError:
        pass
      self._reap(0)
      return
    # The children of those that are killed become children of this one.
    give_up = time.monotonic() + _TO_KILL
    while not self._reap(os.WNOHANG):
      if time.monotonic() > give_up:
        raise TimeoutError("the program has started what cannot be killed")
      for pid in _children():
        try:
          os.kill(pid, signal.SIGKILL)
        except OSError:
          pass  # gone, or another user's

  def _reap(self, flags):
    """Waits for processes that have ended; whether there are no others left."""
    while True:
      try:
        pid, status, usage = os.wait4(-1, flags)
      except ChildProcessError:
        return True
      if not pid:
        return False
      self.ended[pid] = status, usage

  def _sockets(self):
    if not self._alone:
      return 0  # the network is not the program's own
    with open("/proc/net/sockstat", "rb") as file:
      return int(file.readline().split()[-1]) * _SOCKET


def processor_seconds(found):
  """What processes have used, and those of their children that they have waited for."""
  return sum(int(ticks) for fields in found.values() for ticks in fields[11:15]) / _CLOCK


def other_tasks():
  """Processes and threads that this one's user has beside it."""
  user, own, count = os.getuid(), str(os.getpid()), 0
  for name in os.listdir("/proc"):
    if name.isdigit() and name != own:
      try:
        if os.stat(f"/proc/{name}").st_uid == user:
          count += len(os.listdir(f"/proc/{name}/task"))
      except OSError:
        continue  # gone in between
  return count


def _look():
  own, found = str(os.getpid()), {}
  for name in os.listdir("/proc"):
    if name.isdigit() and name != own:
      try:
        with open(f"/proc/{name}/stat", "rb") as file:
          found[int(name)] = file.read().rpartition(b")")[2].split()
      except OSError:
        continue  # gone in between
  return found


def _children():
  own = os.getpid()
  try:
    with open(f"/proc/{own}/task/{own}/children", "rb") as file:
      return [int(pid) for pid in file.read().split()]
  except FileNotFoundError:  # of a kernel that does not tell
    return [pid for pid, fields in _look().items() if int(fields[1]) == own]


def _descends(pid, ancestor, found):
  while pid in found:
    pid = int(found[pid][1])
    if pid == ancestor:
      return True
  return False


def _proportional(pid, fields):
  try:
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
      for line in file:
        if line.startswith(b"Pss:"):
          return int(line.split()[1]) * 1024
  except PermissionError:
    return int(fields[21]) * _PAGE  # it has made itself unreadable
  except OSError:
    pass  # gone in between
  return 0
