"""Process 1 of a sandbox: runs programs under limits, and signs what it tells of them.

It is asked for

    {"key", "user", "alone", "limits", "files", "environment", "folders"}    once, first
    {"run": [argument, ...], "input": bytes}
    {"reply": bytes}       one line for the program's channel, its file descriptor 3

and tells of

    ready
    message, line          from the program's channel
    ended, outcome, status, CPU seconds, wall seconds, peak bytes, output, errors, clean

where `clean` is "clean", or "used" if a run has left files or folders.

Nothing that a program does can reach the key or the pipes to the parent: it runs in a process of
its own, under another user where there is one, and this one cannot be traced or killed from inside.

Modules that take long to import are left out here and in what is imported, and the innermost ones
taken in place of `os`, `signal` and the like: this starts for every program. It is imported rather
than run, for what is imported is compiled but once.
"""

import _signal as signal
import posix as os
import select
import time

from execution import Execution
from parent import Gone, Parent
from processes import Processes

_TICK = 0.02  # seconds from one look at the processes to the next
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36


class Runner:
  """Everything that one sandbox does, in its one process."""

  def __init__(self):
    self._parent = Parent()
    setup = self._parent.next_request()
    self._parent.sign_with(setup["key"])
    self._user, self._alone = setup["user"], setup["alone"]
    self._limits, self._files = setup["limits"], setup["files"]
    self._environment, self._folders = setup["environment"], setup["folders"]
    self._processes = Processes(self._alone)
    for number in (signal.SIGINT, signal.SIGPIPE):
      signal.signal(number, signal.SIG_IGN)
    os.umask(0o022)
    if self._user is None:
      # Programs of the same user must not read this process, and orphans must come back to it.
      _control(_PR_SET_DUMPABLE, 0)
      _control(_PR_SET_CHILD_SUBREAPER, 1)
    self._empty = self._state()
    self._parent.tell(b"ready")

  def serve(self):
    """Works off requests until the parent is gone."""
    try:
      while True:
        self._parent.send_all()
        request = self._parent.next_request()
        if "run" in request:
          self._run(request["run"], request["input"])
    except Gone:
      # With this process all others of the sandbox end, and its folders.
      if not self._alone:
        import shutil  # takes long to import
        shutil.rmtree(self._folders[0], ignore_errors=True)

  def _run(self, arguments, given):
    # Programs cannot tell its name beforehand, and so put nothing in its place.
    folder = f"{self._folders[0]}/{os.urandom(8).hex()}"
    os.mkdir(folder)
    for name, content in self._files.items():
      with open(f"{folder}/{name}", "wb") as file:
        file.write(content)
    os.chmod(folder, 0o777)
    run = Execution(
        self._processes, self._limits, lambda line: self._parent.tell(b"message", line))
    try:
      run.start(arguments, folder, self._environment | {"HOME": folder}, self._user, given)
      self._watch(run)
    finally:
      self._processes.kill()
    told = run.account()
    self._parent.tell(b"ended", *told, b"clean" if self._tidy(folder) else b"used")

  def _watch(self, run):
    """Feeds a program and listens to it until it has ended or must be."""
    looked = 0.0
    while run.outcome is None:
      poll = select.poll()
      poll.register(0, select.POLLIN)
      if self._parent.waits:
        poll.register(1, select.POLLOUT)
      for descriptor, events in run.wanted():
        poll.register(descriptor, events)
      ready = {descriptor for descriptor, _ in poll.poll(_TICK * 1000)}
      if 0 in ready:
        self._parent.read()
        while request := self._parent.request():
          run.say(request["reply"])
      if 1 in ready:
        self._parent.send()
      run.attend(ready)
      if run.exit in ready:
        return
      now = time.monotonic()
      if now - looked >= _TICK:
        looked = now
        run.look()
        if self._alone and self._used_up():
          run.outcome = run.outcome or "folder limit"

  def _used_up(self):
    """Whether there are more files than may be: the size of a folder does not bound them."""
    used = 0
    for folder in self._folders:
      room = os.statvfs(folder)
      used += room.f_files - room.f_ffree
    return used > self._limits["files"]

  def _tidy(self, folder):
    """Removes what a run was given; whether nothing else is left of it."""
    try:
      inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
      try:
        for name in self._files:
          os.unlink(name, dir_fd=inside)
      finally:
        os.close(inside)
      os.rmdir(folder)
      return self._state() == self._empty
    except OSError:
      return False

  def _state(self):
    """What a run may change beyond its own folder."""
    return [(os.stat(folder).st_mode, sorted(os.listdir(folder))) for folder in self._folders]


def _control(option, value):
  import _ctypes  # ctypes takes long to import
  function = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")
  if _ctypes.call_function(function, (option, value, 0, 0, 0)):
    raise OSError(f"prctl({option}) failed")


def main():
  try:
    runner = Runner()
  except Gone:
    return
  runner.serve()
