"""The process of a sandbox: how it is started, spoken to and ended.

Requests go to its standard input, and signed frames come back; `sandboxed/parent.py` is the other
end.
"""

import asyncio
import contextlib
import itertools
import marshal
import os
import secrets
import shutil
import signal
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Any

# Seconds that a sandbox may take to start on a busy machine, and to end before it is killed.
_TO_START, _TO_END = 60.0, 5.0
# Where the kernel runs out of memory, what is in a sandbox goes first.
_FIRST_TO_GO = ("/bin/sh", "-c", 'echo 1000 2>&- >/proc/self/oom_score_adj; exec "$@"', "sh")
# That of Python 3.10, whose programs must read it.
_MARSHAL_VERSION = 4


class SandboxError(Exception):
  """A sandbox did not start, or was lost for a reason that is not its program's."""


class SandboxProcess:
  """A sandbox that has been started.

  Args:
    process: bubblewrap, or process 1 itself where programs are not isolated.
    key: that process 1 signs with.
    folder: removed at the end, unless it is None.
  """

  def __init__(self, process: asyncio.subprocess.Process, key: bytes, folder: str | None):
    self._process, self._key, self._folder = process, key, folder
    self._received = 0

  async def send(self, request: Mapping[str, Any]) -> None:
    """Sends a request to process 1."""
    data = marshal.dumps(request, _MARSHAL_VERSION)
    try:
      self._process.stdin.write(b"%d\n" % len(data) + data)
      await self._process.stdin.drain()
    except ConnectionError:
      pass  # what is read next says that it is lost

  async def receive(self) -> list[bytes]:
    """The next frame of process 1, as its fields.

    Raises:
      SandboxError: there is none, or process 1 did not sign it.
    """
    stdout = self._process.stdout
    try:
      line = await stdout.readuntil(b"\n")
      signature, lengths = line.rstrip(b"\n").split(b" ", 1)
      number, *sizes = map(int, lengths.split())
      body = await stdout.readexactly(sum(sizes))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as fault:
      self.kill()
      errors = (await self._process.stderr.read()).decode(errors="replace").strip()
      raise SandboxError(
          f"the sandbox was lost ({errors.splitlines()[-1] if errors else 'without a word'})"
      ) from fault
    expected = blake2b(lengths + b"\n" + body, key=self._key, digest_size=16).hexdigest()
    self._received += 1
    if not compare_digest(signature, expected.encode()) or number != self._received:
      self.kill()
      raise SandboxError("the sandbox sent something that its process 1 did not sign")
    ends = list(itertools.accumulate(sizes))
    return [body[end - size:end] for end, size in zip(ends, sizes, strict=True)]

  def kill(self) -> None:
    """Kills it, and all that runs in it."""
    if self._process.returncode is None:
      # The group: until it is set up, a sandbox does not end with the bubblewrap that waits for it.
      with contextlib.suppress(ProcessLookupError):
        os.killpg(self._process.pid, signal.SIGKILL)

  async def end(self) -> None:
    """Ends it: process 1 goes when nobody speaks to it, and all others with it."""
    self._process.stdin.close()
    try:
      async with asyncio.timeout(_TO_END):
        # What it still says is read, or its pipes would stay open.
        await self._process.communicate()
    except TimeoutError:
      self.kill()
      await self._process.communicate()
    finally:
      if self._folder is not None:
        shutil.rmtree(self._folder, ignore_errors=True)


async def start_sandbox(
    command: Sequence[str], setup: Mapping[str, Any], *, descriptors: Sequence[int] = (),
    user: int | None = None, folder: str | None = None) -> SandboxProcess:
  """Starts a sandbox, and waits until it is ready.

  Args:
    command: starts process 1.
    setup: its first request, without the key.
    descriptors: that the command inherits.
    user: that the command is started as; None for this process's own.
    folder: removed at the end, unless it is None.

  Raises:
    SandboxError: it did not start.
  """
  key = secrets.token_bytes(32)
  pipe = asyncio.subprocess.PIPE
  other = {} if user is None else {"user": user, "group": user, "extra_groups": []}
  creation = asyncio.ensure_future(asyncio.create_subprocess_exec(
      *_FIRST_TO_GO, *command, env={}, stdin=pipe, stdout=pipe, stderr=pipe,
      pass_fds=descriptors, start_new_session=True, **other))
  try:
    process = await asyncio.shield(creation)
  except OSError as fault:
    raise SandboxError(f"the sandbox cannot be started ({fault})") from fault
  except asyncio.CancelledError:
    # Cancelled itself, it would kill bubblewrap alone.
    await SandboxProcess(await creation, key, folder).end()
    raise
  started = SandboxProcess(process, key, folder)
  try:
    async with asyncio.timeout(_TO_START):
      await started.send({"key": key, **setup})
      await started.receive()
  except TimeoutError as fault:
    await started.end()
    raise SandboxError(f"the sandbox was not ready after {_TO_START:g} s") from fault
  except BaseException:
    await started.end()
    raise
  return started
