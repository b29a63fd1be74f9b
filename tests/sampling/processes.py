"""Which processes of a test are still there."""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable

import psutil


def wait_until(condition: Callable[[], bool], what: str) -> None:
  """Polls a condition that must come true, and fails the test when it does not within 30 s."""
  deadline = time.monotonic() + 30
  while not condition():
    assert time.monotonic() < deadline, f"not within 30 s: {what}"
    time.sleep(0.02)


def living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
  """Those that have not ended; a zombie has."""
  found = []
  for process in processes:
    with contextlib.suppress(psutil.NoSuchProcess):
      if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        found.append(process)
  return found


class Mark:
  """A variable that a process is started with, and that its descendants inherit.

  A process that changes its title, as vLLM's engine does, cannot be told by it any longer.
  """

  def __init__(self):
    self.environment = {"CONDUCTOR_TEST_MARK": uuid.uuid4().hex}

  def processes(self) -> list[psutil.Process]:
    """Those that live and have the mark; zombies are dead."""
    found = []
    for process in psutil.process_iter():
      with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        if self.environment.items() <= process.environ().items():
          found.append(process)
    return found

  def wait_until_gone(self) -> None:
    wait_until(lambda: not self.processes(), "no process is left")

  def kill(self) -> None:
    for process in self.processes():
      with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
