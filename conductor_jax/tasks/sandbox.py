"""Runs programs that nobody trusts: bubblewrap around them, and a process that bounds them within.

A session is one sandbox. It has an empty environment, no network, a read-only system, process ids
of its own, another user, and one folder in memory to write to, of a fixed size. A process of ours
is its process 1 (`sandboxed/runner.py`): it starts the programs, limits each, kills whatever they
leave behind, and signs what it tells. A program's answer is all that leaves a sandbox; what it is
compared with never enters.
"""

import asyncio
import contextlib
import functools
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

from conductor_jax.errors import UserError
from conductor_jax.tasks import bubblewrap
from conductor_jax.tasks.interpreter import Interpreter, ask_interpreter
from conductor_jax.tasks.sandbox_process import SandboxError, SandboxProcess, start_sandbox
from conductor_jax.tasks.system_calls import system_call_filter

_INSIDE = str(Path(__file__).parent / "sandboxed")
# Where the scripts stand in a sandbox, and what is writable.
_SCRIPTS, _HOME, _SHARED_MEMORY = "/sandboxed", "/tmp", "/dev/shm"
# Seconds beyond a run's own for process 1 to tell of it: only a hostile program keeps it so long.
_GRACE = 5.0
_MIB = 1 << 20
_ENVIRONMENT = {
    "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "USER": "program", "LOGNAME": "program",
    "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_RUNNER = "import sys; sys.path.append(sys.argv[1]); import runner; runner.main()"
_PATH = "/usr/local/bin:/usr/bin:/bin"
_REFUSED = "code is graded in a sandbox only, and there cannot be one here"
_REMEDY = ("allow user namespaces, which containers often forbid, and let all users read this "
           "Python; or, inside a container of your own, --config.sandbox.unsafe=True")

Outcome = Literal["exited", "time limit", "memory limit", "output limit", "file limit",
                  "folder limit", "process limit"]


@dataclass(frozen=True)
class Limits:
  """What one run of a program may take.

  Attributes:
    cpu_seconds: of all of its processes together.
    wall_seconds: from its start to its end.
    memory_bytes: resident, of all of its processes together.
    address_bytes: addresses that each of its processes may have.
    processes: processes and threads.
    output_bytes: of standard output, and of the channel, where a line counts as 256 at least.
    file_bytes: the largest file.
    folder_bytes: of what it writes to files in all.
    files: files and folders.
    open_files: file descriptors of a process.
  """

  cpu_seconds: float = 10.0
  wall_seconds: float = 30.0
  memory_bytes: int = 1024 * _MIB
  address_bytes: int = 4096 * _MIB
  processes: int = 64
  output_bytes: int = 4 * _MIB
  file_bytes: int = 32 * _MIB
  folder_bytes: int = 64 * _MIB
  files: int = 10_000
  open_files: int = 256


@dataclass(frozen=True)
class Execution:
  """What one run of a program came to.

  Attributes:
    outcome: whether it ended by itself, or which limit ended it.
    status: its exit status; minus the signal that killed it.
    output: what it wrote to standard output.
    errors: the end of what it wrote to standard error.
    cpu_seconds: of it and the processes that it waited for, or that were seen.
    wall_seconds: from its start to its end.
    peak_bytes: the most memory that it was seen to hold.
  """

  outcome: Outcome
  status: int
  output: str
  errors: str
  cpu_seconds: float
  wall_seconds: float
  peak_bytes: int


class Session:
  """A sandbox with files in it, in which programs are run one after the other.

  A run finds nothing of those before it: what leaves files behind is given another sandbox.
  """

  def __init__(
      self, start: Callable[[], Awaitable[SandboxProcess]], python: str, scripts: str,
      wall_seconds: float):
    self._start, self._python, self._scripts = start, python, scripts
    self._seconds = wall_seconds + _GRACE
    self._process: SandboxProcess | None = None
    self._clean = False

  async def run(
      self, script: str, *arguments: str, given: str = "",
      answer: Callable[[bytes], Awaitable[bytes | None]] | None = None) -> Execution:
    """Runs a Python script in a fresh folder that holds the session's files.

    Args:
      script: one of the files, or one of `sandboxed` where it starts with "/".
      arguments: the script's.
      given: its standard input.
      answer: called with every line that it sends through its channel, file descriptor 3; what that
        returns is sent back as a line, unless it is None.

    Raises:
      SandboxError: the sandbox was lost.
    """
    await self.ready()
    self._clean = False
    process = self._process
    path = f"{self._scripts}{script}" if script.startswith("/") else script
    try:
      async with asyncio.timeout(self._seconds):
        await process.send(_request(self._python, self._scripts, path, *arguments, given=given))
        while (message := await process.receive())[0] == b"message":
          reply = await answer(message[1]) if answer else None
          if reply is not None:
            await process.send({"reply": reply})
    except TimeoutError:
      # Only a program can have kept process 1 from answering.
      await self.end()
      return Execution("time limit", -9, "", "", 0.0, self._seconds, 0)
    self._clean = message[-1] == b"clean"
    return _execution(message)

  async def ready(self) -> None:
    """Starts the sandbox, unless there is one in which nothing was left.

    Raises:
      UserError, SandboxError: as `Sandbox.session`.
    """
    if not self._clean:
      await self.end()
      self._process = await self._start()
      self._clean = True

  async def end(self) -> None:
    """Ends the sandbox."""
    if self._process is not None:
      process, self._process = self._process, None
      await process.end()


def _request(
    python: str, scripts: str, path: str, *arguments: str, given: str = "") -> dict[str, Any]:
  """What process 1 is asked for, so that it runs a script."""
  return {"run": [python, "-s", "-S", "-B", f"{scripts}/program.py", path, *arguments],
          "input": given.encode("utf-8", "surrogatepass")}


def _execution(message: list[bytes]) -> Execution:
  outcome, status, cpu, wall, peak, output, errors = message[1:8]
  output, errors = (text.decode("utf-8", "surrogateescape") for text in (output, errors))
  return Execution(
      outcome.decode(), int(status), output, errors, float(cpu), float(wall), int(peak))


class Sandbox:
  """Makes sandboxes, a bounded number at a time in each event loop.

  Args:
    python: the interpreter of the programs, with the packages that they may import.
    unsafe: whether programs run without any isolation but the limits of their processes. For people
      who are inside a container of their own.
    sessions: sandboxes at the same time; None for one per core.
  """

  def __init__(
      self, *, python: str = sys.executable, unsafe: bool = False, sessions: int | None = None):
    self._python, self._unsafe = python, unsafe
    self._count = sessions or os.cpu_count() or 1
    self._places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
        WeakKeyDictionary())
    self._scripts = _INSIDE if unsafe else _SCRIPTS
    self._interpreter: Interpreter | None = None
    self._proven = False

  @contextlib.asynccontextmanager
  async def session(
      self, files: Mapping[str, str], limits: Limits = Limits()) -> AsyncIterator[Session]:
    """A sandbox that holds files, from its start to its end; waits for a free place.

    Args:
      files: name -> text; every run of a program finds them in its folder.
      limits: of each run.

    Raises:
      UserError: there is no sandbox here; says what to install.
      SandboxError: it did not start.
    """
    async with self.sessions((files, limits)) as (session,):
      yield session

  @contextlib.asynccontextmanager
  async def sessions(
      self, *wanted: tuple[Mapping[str, str], Limits]) -> AsyncIterator[list[Session]]:
    """Several sandboxes, as in `session`, that take one place together."""
    places = self._places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._count))
    async with places, contextlib.AsyncExitStack() as stack:
      if self._interpreter is None:
        self._interpreter = await ask_interpreter(self._python, _INSIDE)
      started = []
      for files, limits in wanted:
        session = Session(functools.partial(self._start, files, limits), self._interpreter.path,
                          self._scripts, limits.wall_seconds)
        stack.push_async_callback(session.end)
        await session.ready()
        started.append(session)
      yield started

  async def _start(self, files: Mapping[str, str], limits: Limits) -> SandboxProcess:
    if self._proven:
      return await self._start_unproven(files, limits)
    try:
      process = await self._start_unproven(files, limits)
    except SandboxError as fault:
      raise UserError(f"{_REFUSED}: {fault}: {_REMEDY}") from fault
    try:
      await self._prove(process)
    except BaseException:
      await process.end()
      raise
    self._proven = True
    return process

  async def _prove(self, process: SandboxProcess) -> None:
    """Runs a program that shows that programs can be run, and not more of them than is said."""
    path = os.devnull if self._unsafe else f"{self._scripts}/proof.py"
    await process.send(_request(self._interpreter.path, self._scripts, path))
    trial = _execution(await process.receive())
    if (trial.outcome, trial.status) == ("exited", 3):
      raise UserError(
          f"{_REFUSED}: the kernel does not count what root starts, and root cannot become another "
          "user: give it CAP_SETUID, CAP_SETGID and CAP_KILL, or run as another one")
    if (trial.outcome, trial.status) != ("exited", 0):
      last = trial.errors.strip().splitlines()[-1:] or [f"{trial.outcome}, status {trial.status}"]
      raise UserError(
          f"{_REFUSED}: {self._interpreter.path} does not run in it ({last[0]}): let all users "
          "read this Python and its packages, or name another one by --config.sandbox.python")

  async def _start_unproven(self, files: Mapping[str, str], limits: Limits) -> SandboxProcess:
    interpreter = self._interpreter
    setup = {
        "alone": not self._unsafe, "limits": asdict(limits), "user": None,
        "files": {name: text.encode("utf-8", "surrogatepass") for name, text in files.items()},
        "environment": _ENVIRONMENT | {
            "PATH": f"{Path(interpreter.path).parent}:{_PATH}", "TMPDIR": _HOME,
            "CONDUCTOR_PACKAGES": ":".join(interpreter.packages)},
        "folders": [_HOME, _SHARED_MEMORY]}
    command = [interpreter.path, "-I", "-S", "-B", "-c", _RUNNER, self._scripts]
    if self._unsafe:
      home = tempfile.mkdtemp(prefix="unsafe-")
      setup["environment"]["TMPDIR"], setup["folders"] = home, [home]
      return await start_sandbox(command, setup, folder=home)
    # Two sandboxes' programs share no user, or they would share the limit on its processes. A root
    # that lacks rights has bubblewrap started as that user, and its programs are then the same.
    users = bubblewrap.other_users()
    user = secrets.choice(users) if users else None
    privileged = user is not None and bubblewrap.is_privileged()
    setup["user"] = user if privileged else None
    with tempfile.TemporaryFile() as file:
      file.write(system_call_filter())
      file.seek(0)
      around = bubblewrap.arguments(
          bubblewrap.find_bubblewrap(), folders=interpreter.folders, scripts=_INSIDE,
          scripts_at=_SCRIPTS, home=_HOME, folder_bytes=limits.folder_bytes,
          filter_descriptor=file.fileno(), privileged=privileged)
      return await start_sandbox([*around, *command], setup, descriptors=(file.fileno(),),
                                 user=None if privileged else user)
