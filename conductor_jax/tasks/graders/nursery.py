"""The process that brings up the children which `process.py` calls.

It imports the function once and forks a child for every socket that it is sent, so that a child is
there at once. It has one thread. No child can outlive its time limit: the kernel's alarm stops a
call, so that neither a loop in C nor the death of the parent keeps it running.
"""

import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from conductor_jax.tasks.task import GradingError

_MEMORY_BYTES = 4 * 2**30


def _serve(call: Callable[..., Any], channel: socket.socket, time_limit: float) -> None:
  """A child: answers one JSON line per call until nobody asks any more."""
  if sys.platform == "linux":
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
  signal.signal(signal.SIGALRM, signal.SIG_DFL)
  with channel.makefile("rw", encoding="utf-8") as lines:
    print(json.dumps({"pid": os.getpid()}), file=lines, flush=True)
    for line in lines:
      signal.setitimer(signal.ITIMER_REAL, time_limit)
      try:
        result = {"value": call(*json.loads(line))}
      except GradingError as fault:
        result = {"error": str(fault)}
      except Exception as fault:  # the parent reports it: nobody reads the child's traceback
        result = {"error": f"{type(fault).__name__}: {fault}"}
      reply = json.dumps(result)
      signal.setitimer(signal.ITIMER_REAL, 0)
      print(reply, file=lines, flush=True)


def _report_ends(children: dict[int, socket.socket]) -> None:
  """Tells, on its own channel, how a child ended."""
  while children:
    pid, status = os.waitpid(-1, os.WNOHANG)
    if not pid:
      return
    with children.pop(pid) as channel:
      try:
        # It may have died within a line.
        channel.sendall(f"\n{json.dumps({'exit': os.waitstatus_to_exitcode(status)})}\n".encode())
      except OSError:
        pass  # nobody asks any more


def nurse(function: str, time_limit: float, rehearsals: Sequence[Sequence[Any]]) -> None:
  """Forks children until the socket at standard input is closed.

  Args:
    function: "package.module:function".
    time_limit: seconds per call.
    rehearsals: arguments of calls to make first.
  """
  module, _, name = function.partition(":")
  call = getattr(importlib.import_module(module), name)
  sys.stdout = sys.stderr
  for arguments in rehearsals:
    call(*arguments)
  control = socket.socket(fileno=os.dup(0))
  os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
  woken, waker = socket.socketpair()
  waker.setblocking(False)
  signal.signal(signal.SIGCHLD, lambda *_: None)
  signal.set_wakeup_fd(waker.fileno())
  children: dict[int, socket.socket] = {}
  while True:
    readable, _, _ = select.select([control, woken], [], [])
    if woken in readable:
      woken.recv(4096)
      _report_ends(children)
    if control not in readable:
      continue
    message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    if not message:
      return
    channel = socket.socket(fileno=descriptors[0])
    pid = os.fork()
    if pid:
      children[pid] = channel
      continue
    try:
      signal.set_wakeup_fd(-1)
      signal.signal(signal.SIGCHLD, signal.SIG_DFL)
      for other in (control, woken, waker, *children.values()):
        other.close()
      _serve(call, channel, time_limit)
    finally:
      os._exit(0)
