"""Frames of process 1: whatever it did not sign, in its turn, ends the sandbox."""

import asyncio
import errno
import os
import sys

import psutil
import pytest

from conductor_jax.tasks import sandbox, sandbox_process
from conductor_jax.tasks.sandbox_process import SandboxError, start_sandbox

# A process 1 that says what `words` makes of three frames.
SAYS = """
import sys
sys.path.append(sys.argv[1])
import parent
import posix

speaker = parent.Parent()
speaker.sign_with(speaker.next_request()["key"])
frames, write = [], posix.write

def keep():
  frames.append(bytes(speaker._unsent))
  speaker._unsent.clear()

speaker.send = keep
for fields in ((b"ready",), (b"message", b"one"), (b"message", b"two\\nlines")):
  speaker.tell(*fields)
for frame in WORDS:
  write(1, frame)
print("enough", file=sys.stderr)
"""


async def receive(words, count=3):
  """The first frames of a process 1."""
  program = SAYS.replace("WORDS", words)
  process = await start_sandbox([sys.executable, "-c", program, sandbox._INSIDE], {})
  try:
    return [await process.receive() for _ in range(count - 1)]
  finally:
    await process.end()


async def test_frames_arrive_field_by_field():
  assert await receive("frames") == [[b"message", b"one"], [b"message", b"two\nlines"]]
  assert await receive("[b''.join(frames)]") == await receive(
      "[b''.join(frames)[n:n + 1] for n in range(len(b''.join(frames)))]")


@pytest.mark.parametrize("words, fault", [
    ("[frames[0], frames[1], frames[1]]", "did not sign"),  # once more
    ("[frames[0], frames[2], frames[1]]", "did not sign"),  # in another order
    ("[frames[0], frames[1].replace(b'one', b'two')]", "did not sign"),
    ("[frames[0], b'0' * 32 + frames[1][32:]]", "did not sign"),
    ("[frames[0], frames[1].replace(b' 7 3', b' 6 4')]", "did not sign"),
    ("[frames[0], b'hello\\n']", "was lost"), ("[frames[0], b'a b c\\n']", "was lost"),
    ("[frames[0], b'x' * 100_000]", "was lost"),
    ("[frames[0], frames[1][:-1]]", r"lost \(enough\)"), ("[frames[0]]", r"lost \(enough\)")])
async def test_frames_that_are_not_process_1s_or_not_in_its_turn_are_refused(words, fault):
  with pytest.raises(SandboxError, match=fault):
    await receive(words)


async def test_a_process_that_does_not_end_is_killed(monkeypatch, tmp_path):
  monkeypatch.setattr(sandbox_process, "_TO_END", 0.2)
  program = SAYS.replace("WORDS", "frames") + "import time\ntime.sleep(1000)"
  process = await start_sandbox(
      [sys.executable, "-c", program, sandbox._INSIDE], {}, folder=str(tmp_path))
  number = process._process.pid
  assert psutil.pid_exists(number)
  await process.end()
  assert not psutil.pid_exists(number) and not tmp_path.exists()


async def test_a_process_that_cannot_be_started_is_a_fault(monkeypatch):
  with pytest.raises(SandboxError, match=r"lost \(.*/no/program: "):
    await start_sandbox(["/no/program"], {})

  async def fail(*arguments, **options):
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

  monkeypatch.setattr(asyncio, "create_subprocess_exec", fail)
  with pytest.raises(SandboxError, match="cannot be started .*Resource temporarily unavailable"):
    await start_sandbox(["/bin/true"], {})
