"""The parent's handle on a local worker server."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conductor_jax.arena.server import HOST
from conductor_jax.errors import UserError


class ServerProcess:
  """A server in a child process: a context manager, alive from construction to `close`.

  Attributes:
    port: the port it listens on.
    base_url: what a worker's `base_url` takes.
    pid: the child's process id.
  """

  def __init__(self, factory: str, arguments: Mapping[str, Any], port: int = 0,
               latency: float = 0.0, log: str | os.PathLike | None = None):
    """Starts the child and waits until it listens.

    Args:
      factory: "package.module:function", called as function(**arguments) in the child.
      arguments: JSON-serialisable.
      port: 0 takes any free one.
      latency: seconds before a completion is sent.
      log: a file the child's standard error is appended to; None passes it on to ours.

    Raises:
      UserError: the child did not come up; the message holds its last line of standard error.
    """
    self._log = open(log, "ab") if log is not None else None
    self._last_line = b""
    self._up = False
    # The child imports whatever this process can, and a Ctrl-C in the terminal does not reach it:
    # it must serve until we have finished.
    paths = os.pathsep.join(str(Path(path).absolute()) for path in sys.path)
    self._process = subprocess.Popen(
        [sys.executable, "-P", "-m", "conductor_jax.arena.server", factory, f"--port={port}",
         f"--latency={latency}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths}, start_new_session=True)
    self._forwarder = threading.Thread(target=self._forward_errors, daemon=True)
    self._forwarder.start()
    try:
      # A broken pipe: the child is gone; what it said on standard error is raised below.
      with contextlib.suppress(BrokenPipeError):
        self._process.stdin.write(json.dumps(dict(arguments)).encode() + b"\n")
        self._process.stdin.flush()
      line = self._process.stdout.readline()
      if not line:
        status = self._process.wait()
        self._forwarder.join()
        reason = self._last_line.decode(errors="replace").strip() or f"exit status {status}"
        raise UserError(f"the worker server {factory} did not start: {reason}")
    except BaseException:
      self.close()
      raise
    self._up = True
    self.port: int = json.loads(line)["port"]
    self.base_url = f"http://{HOST}:{self.port}/v1"
    self.pid = self._process.pid

  def _forward_errors(self) -> None:
    held = []
    for line in self._process.stderr:
      if line.strip():
        self._last_line = line
      if self._log is not None:
        self._log.write(line)
        self._log.flush()
        continue
      held.append(line.decode(errors="replace"))
      if self._up:
        sys.stderr.write("".join(held))
        held.clear()
    # A UserError (status 2) at start is raised in this process, and need not be read twice.
    if self._up or self._process.wait() != 2:
      sys.stderr.write("".join(held))

  def close(self) -> None:
    """Ends the child and waits until it is gone. A second call does nothing."""
    with contextlib.suppress(BrokenPipeError):  # it was gone already
      self._process.stdin.close()
    self._process.terminate()
    try:
      self._process.wait(timeout=5)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
    self._forwarder.join()
    self._process.stdout.close()
    self._process.stderr.close()
    if self._log is not None:
      self._log.close()

  def __enter__(self) -> "ServerProcess":
    return self

  def __exit__(self, *_) -> None:
    self.close()
