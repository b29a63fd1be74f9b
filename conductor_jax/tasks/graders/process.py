"""Calls one function in child processes that can be killed.

The child stops itself by the kernel's alarm at the time limit, so that neither a loop in C nor the
death of the parent keeps it running. It is a plain interpreter, not a fork and not
`multiprocessing`: a fork is unsafe beside the parent's threads, and the other start methods import
the parent's main module, and with it JAX, into every child.
"""

import asyncio
import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from conductor_jax.errors import UserError
from conductor_jax.tasks.task import GradingError

_MEMORY_BYTES = 4 * 2**30


def serve(function: str, time_limit: float) -> None:
  """The child: answers one JSON line per call until standard input ends."""
  module, _, name = function.partition(":")
  call = getattr(importlib.import_module(module), name)
  channel, sys.stdout = sys.stdout, sys.stderr
  if sys.platform == "linux":
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
  signal.signal(signal.SIGALRM, signal.SIG_DFL)
  print("ready", file=channel, flush=True)
  for line in sys.stdin:
    signal.setitimer(signal.ITIMER_REAL, time_limit)
    try:
      result = {"value": call(*json.loads(line))}
    except GradingError as fault:
      result = {"error": str(fault)}
    except Exception as fault:  # the parent reports it: nobody reads the child's traceback
      result = {"error": f"{type(fault).__name__}: {fault}"}
    reply = json.dumps(result)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(reply, file=channel, flush=True)


class IsolatedFunction:
  """A function that runs in child processes, started when first needed and kept for later calls."""

  def __init__(self, function: str, time_limit: float, processes: int):
    """Prepares the calls; starts nothing.

    Args:
      function: "package.module:function"; arguments and result travel as JSON.
      time_limit: seconds per call, the child's start not included.
      processes: how many calls run at once.
    """
    self._function = function
    self._time_limit = time_limit
    self._threads = ThreadPoolExecutor(processes, thread_name_prefix="isolated")
    self._idle: list[subprocess.Popen] = []

  async def __call__(self, *arguments: Any) -> Any:
    """Calls the function.

    Raises:
      GradingError: it raised, crashed or ran into the time limit.
      UserError: the child process did not start.
    """
    return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, arguments)

  def _start(self) -> subprocess.Popen:
    paths = os.pathsep.join(str(Path(path).absolute()) for path in sys.path)
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {__name__} import serve; "
         f"serve({self._function!r}, {self._time_limit!r})"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": paths})
    if child.stdout.readline() != "ready\n":
      self._end(child)
      raise UserError(f"the process of the grader {self._function} did not start (exit status "
                      f"{child.returncode}): see standard error for what it lacks")
    return child

  def _call(self, arguments: tuple) -> Any:
    child = self._idle.pop() if self._idle else self._start()
    reply = ""
    try:
      child.stdin.write(json.dumps(arguments) + "\n")
      child.stdin.flush()
      reply = child.stdout.readline()
    except BrokenPipeError:
      pass  # it died while idle; the missing reply is reported below
    if not reply.endswith("\n"):
      self._end(child)
      if child.returncode == -signal.SIGALRM:
        raise GradingError(f"grading took longer than {self._time_limit:g} s")
      raise GradingError(f"the grader's process died (exit status {child.returncode})")
    self._idle.append(child)
    result = json.loads(reply)
    if "error" in result:
      raise GradingError(result["error"])
    return result["value"]

  def _end(self, child: subprocess.Popen) -> None:
    # The pipe's end may be seen before the exit status: wait first, lest kill() replace the signal.
    try:
      child.wait(timeout=1)
    except subprocess.TimeoutExpired:
      child.kill()
      child.wait()
    for pipe in (child.stdin, child.stdout):
      with contextlib.suppress(BrokenPipeError):  # the rest of a request that nobody will read
        pipe.close()

  def close(self) -> None:
    """Waits for calls under way, then ends the children."""
    self._threads.shutdown(cancel_futures=True)
    while self._idle:
      child = self._idle.pop()
      child.kill()
      self._end(child)
