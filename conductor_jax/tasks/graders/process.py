"""Calls one function in child processes that can be killed.

The children come from a process of their own, see `nursery.py`, which is a plain interpreter, not a
fork of this one and not `multiprocessing`: a fork is unsafe beside the parent's threads, and the
other start methods import the parent's main module, and with it JAX, into every child.

A call that takes long gives up its place: another child takes over the calls behind it, and the
long one goes on at the lowest priority. So calls that hang cost others `patience` seconds of one
place each, and not the time limit.
"""

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conductor_jax.errors import UserError
from conductor_jax.tasks.task import GradingError

_LONG_CALLS = 4  # that go on at once; later ones are stopped and begun again when there is room
_LOWEST_PRIORITY = 19
_LOOKS = 4  # at a call that seems to take long, before it counts as one that does


class _Nursery:
  """The process that forks the children; started when first needed."""

  def __init__(self, function: str, time_limit: float, rehearsals: Sequence[Sequence[Any]]):
    self._function = function
    self._code = (f"from {__package__}.nursery import nurse; "
                  f"nurse({function!r}, {time_limit!r}, {json.loads(json.dumps(rehearsals))!r})")
    self._lock = threading.Lock()
    self._process: subprocess.Popen | None = None
    self._control: socket.socket | None = None

  def child(self) -> "_Child":
    """A new child, which may not have started yet."""
    return _Child(self)

  def connect(self) -> tuple[socket.socket, subprocess.Popen]:
    """The channel to a new child, and the process that is to fork it."""
    ours, theirs = socket.socketpair()
    with theirs, self._lock:
      if self._process is None or self._process.poll() is not None:
        self._start()
      with contextlib.suppress(BrokenPipeError):  # it has just died; the child will not start
        socket.send_fds(self._control, [b"+"], [theirs.fileno()])
      return ours, self._process

  def _start(self) -> None:
    if self._control is not None:
      self._control.close()
    self._control, theirs = socket.socketpair()
    paths = os.pathsep.join(str(Path(path).absolute()) for path in sys.path)
    with theirs:
      self._process = subprocess.Popen(
          [sys.executable, "-P", "-c", self._code], stdin=theirs, stdout=2, start_new_session=True,
          env={**os.environ, "PYTHONPATH": paths})

  def no_child(self, status: int) -> UserError:
    """The error that says why no child started."""
    return UserError(f"the process of the grader {self._function} did not start (exit status "
                     f"{status}): see standard error for what it lacks")

  def close(self) -> None:
    with self._lock:
      if self._control is not None:
        self._control.close()
        self._process.wait()


class _Child:
  """One child process."""

  def __init__(self, nursery: _Nursery):
    self._nursery = nursery
    self._connect()
    self._pid: int | None = None
    self.slowed = False  # behind all other processes, for good

  def _connect(self) -> None:
    self._channel, self._parent = self._nursery.connect()
    self._lines = self._channel.makefile("rw", encoding="utf-8")

  def send(self, arguments: tuple) -> None:
    """Begins a call; waits for the child's start.

    Raises:
      UserError: it did not start.
      GradingError: it died as it started.
    """
    if self._pid is None:
      line = self._lines.readline()
      if not line and self._parent.wait() < 0:  # it was killed as it was asked, or before
        self.close()
        self._connect()
        line = self._lines.readline()
      if not line:
        self.close()
        raise self._nursery.no_child(self._parent.wait())
      if not line.strip():
        status = self.reply()["exit"]
        self.close()
        raise GradingError(f"the grader's process died (exit status {status})")
      self._pid = json.loads(line)["pid"]
    with contextlib.suppress(BrokenPipeError):  # it died while idle, and the reply says so
      self._lines.write(json.dumps(arguments) + "\n")
      self._lines.flush()

  def has_replied(self, patience: float) -> bool:
    """Waits for a reply, or the child's end, until the child took so many seconds of a processor.

    On a busy machine, or where processes do not tell what they took, that is up to four times as
    many by the clock.
    """
    began = self._processor_seconds()
    for _ in range(_LOOKS):
      if select.select([self._channel], [], [], patience)[0]:
        return True
      now = self._processor_seconds()
      if began is not None and now is not None and now - began >= 0.9 * patience:
        return False
    return False

  def _processor_seconds(self) -> float | None:
    try:
      fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
      return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

  def reply(self) -> dict[str, Any]:
    """The value, the error or the child's exit status, waited for."""
    with contextlib.suppress(ConnectionResetError):
      for line in self._lines:
        with contextlib.suppress(json.JSONDecodeError):  # it died within a line; its end follows
          return json.loads(line)
    return {"exit": None}  # the nursery has ended too

  def slow_down(self) -> None:
    """Lets every other process go first."""
    self.slowed = True
    with contextlib.suppress(ProcessLookupError):
      os.setpriority(os.PRIO_PROCESS, self._pid, _LOWEST_PRIORITY)

  def kill(self) -> None:
    if self._pid is not None:
      with contextlib.suppress(ProcessLookupError):
        os.kill(self._pid, signal.SIGKILL)

  def end(self) -> None:
    """Ends the child and waits for its end."""
    self.kill()
    while "exit" not in self.reply():
      pass
    self.close()

  def close(self) -> None:
    """Gives up the channel to a child that has ended."""
    with contextlib.suppress(BrokenPipeError):  # the rest of a request that nobody will read
      self._lines.close()
    self._channel.close()


@dataclass(frozen=True)
class _LongCall:
  """A call that gave up its place: it goes on in the child, or begins again where that is None."""

  child: _Child | None
  arguments: tuple


class IsolatedFunction:
  """A function that runs in child processes, started when first needed and kept for later calls."""

  def __init__(self, function: str, time_limit: float, processes: int, patience: float = 0.5,
               rehearsals: Sequence[Sequence[Any]] = ()):
    """Prepares the calls; starts nothing.

    Args:
      function: "package.module:function"; arguments and result travel as JSON.
      time_limit: seconds per call, the child's start not included.
      processes: how many calls run at once, beside those that take long.
      patience: seconds of a processor after which a call takes long.
      rehearsals: arguments of calls made before all others, for what the function keeps of them.
    """
    self._time_limit = time_limit
    self._processes = processes
    self._patience = patience
    self._nursery = _Nursery(function, time_limit, rehearsals)
    self._threads = ThreadPoolExecutor(processes, thread_name_prefix="isolated")
    self._long_threads = ThreadPoolExecutor(_LONG_CALLS, thread_name_prefix="isolated-long")
    self._lock = threading.Lock()
    self._idle: list[_Child] = []
    self._long: set[_Child] = set()
    self._closed = False

  async def __call__(self, *arguments: Any) -> Any:
    """Calls the function.

    Raises:
      GradingError: it raised, crashed, ran into the time limit, or was stopped by `close`.
      UserError: the child process did not start.
    """
    loop = asyncio.get_running_loop()
    outcome = await loop.run_in_executor(self._threads, self._call, arguments)
    if isinstance(outcome, _LongCall):
      if self._closed:
        raise GradingError("grading was stopped")
      outcome = await loop.run_in_executor(self._long_threads, self._finish, outcome)
    return outcome

  def _call(self, arguments: tuple) -> Any:
    with self._lock:
      child = self._idle.pop() if self._idle else None
    child = child or self._nursery.child()
    child.send(arguments)
    if child.has_replied(self._patience):
      return self._result(child)
    with self._lock:
      goes_on = len(self._long) < _LONG_CALLS
      if goes_on:
        self._long.add(child)
    if goes_on:
      child.slow_down()
    else:
      child.end()
    return _LongCall(child if goes_on else None, arguments)

  def _finish(self, call: _LongCall) -> Any:
    child = call.child or self._nursery.child()
    try:
      if call.child is None:
        with self._lock:
          self._long.add(child)
        child.send(call.arguments)
        child.slow_down()
      return self._result(child)
    finally:
      with self._lock:
        self._long.discard(child)

  def _result(self, child: _Child) -> Any:
    result = child.reply()
    if "exit" in result:
      child.close()
      if result["exit"] == -signal.SIGALRM:
        raise GradingError(f"grading took longer than {self._time_limit:g} s")
      raise GradingError(f"the grader's process died (exit status {result['exit']})")
    with self._lock:
      kept = not child.slowed and len(self._idle) < self._processes
      if kept:
        self._idle.append(child)
    if not kept:
      child.end()
    if "error" in result:
      raise GradingError(result["error"])
    return result["value"]

  def close(self) -> None:
    """Waits for the calls under way, stops those that take long, then ends the children."""
    self._closed = True
    self._threads.shutdown(cancel_futures=True)
    with self._lock:
      for child in self._long:
        child.kill()
    self._long_threads.shutdown(cancel_futures=True)
    for children in (self._long, self._idle):  # long calls too that nobody waits for yet
      while children:
        children.pop().end()
    self._nursery.close()
