"""One run of a program in a sandbox: its process, its pipes and its limits."""

import _signal as signal
import _socket as socket
import posix as os
import resource
import select
import time

from processes import other_tasks, processor_seconds

_PIPE = 1 << 16
_ERRORS = 4000  # bytes of standard error that are kept, the last ones
_LINE = 256  # bytes that a line of the channel counts at least: each is a message to the parent


class Execution:
  """A program from its start to its end.

  Attributes:
    outcome: the limit that ends it, None while there is none.
    exit: a descriptor that can be read when the program's first process has ended.
  """

  def __init__(self, processes, limits, tell):
    self._processes, self._limits, self._tell = processes, limits, tell
    self.outcome = None
    self._heard, self._to_say = b"", b""
    self._heard_bytes = self._peak = self._processor_seconds = 0

  def start(self, arguments, folder, environment, user, given):
    """Starts the program, as another user unless that is None."""
    channel, theirs = (end.detach() for end in socket.socketpair())
    read_in, self._input = os.pipe()
    self._output, write_out = os.pipe()
    self._errors, write_errors = os.pipe()
    self._channel = channel
    # Those that are still open at the program's end.
    self._open = {self._input, self._output, self._errors, channel}
    self._text = {self._output: bytearray(), self._errors: bytearray()}
    self._given = memoryview(given)
    self._began = time.monotonic()
    self._pid = os.fork()
    if not self._pid:
      try:
        self._become(arguments, folder, environment, user,
                     (read_in, write_out, write_errors, theirs))
      except BaseException as fault:
        os.write(2, f"cannot start: {fault}".encode())
      finally:
        os._exit(127)
    for descriptor in (read_in, write_out, write_errors, theirs):
      os.close(descriptor)
    self.exit = os.pidfd_open(self._pid)
    for descriptor in self._open:
      os.set_blocking(descriptor, False)

  def _become(self, arguments, folder, environment, user, descriptors):
    """The child: takes its pipes and its limits, and is the program from there on."""
    high = [os.dup(descriptor) for descriptor in descriptors]
    for number, descriptor in enumerate(high):
      os.dup2(descriptor, number, inheritable=True)
    os.closerange(len(high), 1 << 20)
    os.setsid()
    os.nice(5)  # what watches it goes first
    os.chdir(folder)
    if user is not None:
      os.setgroups([])
      os.setresgid(user, user, user)
      os.setresuid(user, user, user)
    limits = self._limits
    # Where programs share their user with others, these count, too.
    others = 0 if user is not None else other_tasks()
    for which, value in (
        # Beyond what `look` allows: it counts more exactly, and all processes together.
        (resource.RLIMIT_CPU, int(limits["cpu_seconds"]) + 2),
        (resource.RLIMIT_AS, limits["address_bytes"]),
        (resource.RLIMIT_NPROC, limits["processes"] + others),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        # A host's own handler of core dumps runs for 0, but not for 1 (`man 5 core`).
        (resource.RLIMIT_CORE, 1),
        (resource.RLIMIT_MSGQUEUE, 0)):
      hard = resource.getrlimit(which)[1]
      value = value if hard == resource.RLIM_INFINITY else min(value, hard)
      resource.setrlimit(which, (value, value))
    # What process 1 ignores, or whoever started the run, a program would ignore, too.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
      signal.signal(number, signal.SIG_DFL)
    os.execve(arguments[0], arguments, environment)

  def wanted(self):
    """(descriptor, events) to wait for."""
    yield self.exit, select.POLLIN
    for descriptor in self._open:
      if descriptor == self._input:
        yield descriptor, select.POLLOUT
      elif descriptor == self._channel and self._to_say:
        yield descriptor, select.POLLIN | select.POLLOUT
      else:
        yield descriptor, select.POLLIN

  def say(self, line):
    """Sends a line to the program's channel, as it takes it."""
    if self._channel in self._open:
      self._to_say += line + b"\n"

  def attend(self, ready):
    """Reads and writes what can be."""
    for descriptor in self._open & ready:
      if descriptor == self._input:
        self._given = self._given[_write_some(descriptor, self._given):]
        if not self._given:
          self._close(descriptor)
        continue
      if descriptor == self._channel:
        self._to_say = self._to_say[_write_some(descriptor, self._to_say):]
      if self._listen(descriptor) == b"":
        self._close(descriptor)

  def _close(self, descriptor):
    os.close(descriptor)
    self._open.discard(descriptor)

  def _listen(self, descriptor):
    """Reads what there is, as `_read_some` does."""
    data = _read_some(descriptor)
    if descriptor == self._channel:
      *lines, self._heard = (self._heard + (data or b"")).split(b"\n")
      self._heard_bytes += max(len(data or b""), _LINE * len(lines))
      for line in lines:
        self._tell(line)
    else:
      self._text[descriptor] += data or b""
      del self._text[self._errors][:-_ERRORS]
    most = self._limits["output_bytes"]
    if len(self._text[self._output]) > most or self._heard_bytes > most:
      self.outcome = "output limit"
    return data

  def look(self):
    """Bounds what no limit of the kernel's does: time, and what all processes hold together."""
    limits, found = self._limits, self._processes.look()
    self._processor_seconds = max(self._processor_seconds, processor_seconds(found))
    held = self._processes.memory(found)
    if held > limits["memory_bytes"]:
      held = self._processes.shared_memory(found)
    if held > limits["memory_bytes"]:
      # What one process leaves to others when it ends may have been counted for both.
      held = self._processes.shared_memory(self._processes.look())
    self._peak = max(self._peak, held)
    if time.monotonic() - self._began > limits["wall_seconds"]:
      self.outcome = "time limit"
    elif self._processor_seconds > limits["cpu_seconds"]:
      self.outcome = "time limit"
    elif held > limits["memory_bytes"]:
      self.outcome = "memory limit"
    elif len(found) > limits["processes"]:
      self.outcome = "process limit"

  def account(self):
    """What is told of a program whose processes have ended; closes its pipes.

    The fields are: outcome, status, CPU seconds, wall seconds, peak bytes, output, errors.
    """
    wall = time.monotonic() - self._began
    for descriptor in self._open - {self._input}:
      while self.outcome != "output limit" and self._listen(descriptor):
        pass
    for descriptor in (self.exit, *self._open):
      os.close(descriptor)
    status, usage = self._processes.ended.pop(self._pid)
    self._processes.ended.clear()
    cpu = max(usage.ru_utime + usage.ru_stime, self._processor_seconds)
    peak = max(self._peak, usage.ru_maxrss * 1024)
    outcome = self.outcome or _outcome(status, cpu, peak, self._limits)
    return (
        outcome.encode(),
        *(str(number).encode() for number in (os.waitstatus_to_exitcode(status), cpu, wall, peak)),
        bytes(self._text[self._output][:self._limits["output_bytes"]]),
        bytes(self._text[self._errors]))


def _outcome(status, cpu, peak, limits):
  number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
  if cpu > limits["cpu_seconds"]:
    return "time limit"
  # Killed, and not by process 1: by the kernel, which was out of memory.
  if number == signal.SIGKILL or peak > limits["memory_bytes"]:
    return "memory limit"
  return "file limit" if number == signal.SIGXFSZ else "exited"


def _read_some(descriptor):
  """Bytes that are there, b"" at the end, None if there are none yet."""
  try:
    return os.read(descriptor, _PIPE)
  except BlockingIOError:
    return None
  except OSError:
    return b""


def _write_some(descriptor, data):
  """How many bytes the program has taken; all of them once it no longer listens."""
  try:
    return os.write(descriptor, data[:_PIPE])
  except BlockingIOError:
    return 0
  except OSError:
    return len(data)
