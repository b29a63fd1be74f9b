"""A vLLM server of our own beside the trainer: started, watched, and never left behind."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import aiohttp
import anyio

from conductor_jax.errors import UserError
from conductor_jax.sampling import guard
from conductor_jax.sampling.vllm_log import cause_of_death, last_line, port_was_taken, without_vllm

HOST = "127.0.0.1"
# Seconds from SIGTERM to SIGKILL; vLLM takes a few to free its shared memory.
GRACE = 20.0

# Opens the routes for pauses and new weights, and keeps the server off the network.
_ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
# GiB for keys and values, on a CPU; the user's own value comes first.
_DEFAULTS = {"VLLM_CPU_KVCACHE_SPACE": "1"}
# Meant for the trainer, or nobody else's to know; with VLLM_API_KEY the server would refuse us.
_WITHHELD_PREFIXES = ("JAX_", "XLA_", "PYTHON")
_WITHHELD_SUFFIXES = ("_API_KEY", "_TOKEN")

_SAY_SECONDS = 10.0
_POLL_SECONDS = 0.2
_PORT_ATTEMPTS = 3
# Beyond the grace period, for SIGKILL and for removing folders.
_END_SECONDS = 30.0


class VllmServer:
  """One vLLM server process on the loopback interface; an async context manager.

  It cannot outlive this process: a guard process ends it however this one ends. Not to be used by
  two tasks at once.

  Args:
    python: interpreter of the environment that has vLLM.
    served_name: the model's name in requests.
    max_model_len: tokens of a prompt and its completion together.
    dtype: of the weights and the arithmetic.
    arguments: further ones of the command line.
    environment: further variables.
    port: 0 takes a free one and keeps to it.
    log: a file that the server's output is appended to.
    start_timeout: seconds from its start until it answers.
    remove: folders that are removed when the server is stopped or this process ends.
    say: takes a line on what is being waited for.

  Attributes:
    url: such as http://127.0.0.1:8000 once it has started, else None.
  """

  def __init__(
      self, python: Path, *, served_name: str = "conductor", max_model_len: int, dtype: str,
      arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None, port: int = 0,
      log: Path, start_timeout: float, remove: Sequence[Path] = (), say: Callable[[str], None]):
    self.url: str | None = None
    self._python, self._served_name = python, served_name
    self._max_model_len, self._dtype, self._arguments = max_model_len, dtype, tuple(arguments)
    self._environment = dict(environment or {})
    self._fixed_port, self._port = port, port
    self._log, self._start_timeout, self._say = log, start_timeout, say
    self._remove = tuple(Path(folder).absolute() for folder in remove)
    self._guard: subprocess.Popen | None = None

  async def start(self, model: Path) -> None:
    """Starts the server and waits until it answers; what is left of an earlier one ends first.

    Args:
      model: a folder with the model and its tokenizer.

    Raises:
      UserError: no interpreter, no vLLM or no model where it should be, the port is taken, or the
        server ended or did not answer in time; the log's reason is in the message.
    """
    await self._end(keep_folders=True)
    model = Path(model).absolute()
    python = shutil.which(self._python)
    if python is None:
      raise UserError(f"{self._python} is no Python interpreter: {_REMEDY}")
    if not (model / "config.json").is_file():
      raise UserError(f"{model} has no config.json: name the folder of a model")
    for attempt in range(_PORT_ATTEMPTS):
      self._choose_port()
      try:
        return await self._start(python, model)
      except _PortTaken:
        # Somebody was faster: it takes seconds from our choice until vLLM has the port.
        if attempt == _PORT_ATTEMPTS - 1:
          raise self._port_fault() from None

  def alive(self) -> bool:
    """Whether the server's process runs."""
    return self._guard is not None and self._guard.poll() is None

  async def stop(self) -> None:
    """Ends the server and removes the folders. A second call does nothing."""
    await self._end(keep_folders=False)
    # Those of a server whose start failed, or that never was, have had no guard.
    await anyio.to_thread.run_sync(guard.remove_folders, self._remove)

  async def __aenter__(self) -> "VllmServer":
    return self

  async def __aexit__(self, *_) -> None:
    await self.stop()

  def _port_fault(self):
    return UserError(f"port {self._port} is taken: free it, choose another port, or 0 for any")

  def _choose_port(self):
    """Takes the port that it had, else a free one.

    Raises:
      UserError: the port that must be taken is not free.
    """
    if self._port and _is_free(self._port):
      return
    if self._fixed_port:
      raise self._port_fault()
    with socket.create_server((HOST, 0)) as holder:
      self._port = holder.getsockname()[1]

  async def _start(self, python, model):
    self._log.parent.mkdir(parents=True, exist_ok=True)
    start = self._log.stat().st_size if self._log.exists() else 0
    removals = [part for folder in self._remove for part in ("--remove", str(folder))]
    with self._log.open("ab") as log:
      self._guard = subprocess.Popen(
          # The file itself: nothing of this package is imported on the way.
          [sys.executable, "-I", "-S", guard.__file__, f"--parent={os.getpid()}",
           f"--grace={GRACE}", *removals, "--", *self._command(python, model)],
          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=self._child_environment(),
          # A Ctrl-C in the terminal is for the trainer, which then closes the pipe.
          start_new_session=True)
    try:
      await self._wait(python, model, start)
    except BaseException:
      with anyio.CancelScope(shield=True):
        await self._end(keep_folders=True)
      raise
    self.url = f"http://{HOST}:{self._port}"

  def _command(self, python, model):
    return [
        python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
        "--served-model-name", self._served_name, "--host", HOST, "--port", str(self._port),
        "--max-model-len", str(self._max_model_len), "--dtype", self._dtype,
        "--logprobs-mode", "processed_logprobs", "--generation-config", "vllm",
        "--enable-scale-out", *self._arguments]

  def _child_environment(self):
    passed = {
        name: value for name, value in os.environ.items()
        if not name.startswith(_WITHHELD_PREFIXES) and not name.endswith(_WITHHELD_SUFFIXES)}
    # Nothing in the folder that the trainer was started in stands for a package of vLLM.
    return {**_DEFAULTS, **passed, "PYTHONSAFEPATH": "1", **_ENVIRONMENT, **self._environment}

  async def _wait(self, python, model, log_start):
    """Waits until the server answers for the model.

    Raises:
      UserError: it ended or the time is up.
      _PortTaken: it ended, for it could not have the port.
    """
    started = said = time.monotonic()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
      while not await self._answers(session, model):
        now = time.monotonic()
        if not self.alive():
          raise self._death(python, self._read_log(log_start))
        if now - started > self._start_timeout:
          raise UserError(
              f"the vLLM server did not answer within {self._start_timeout:g} s: its last line in "
              f"{self._log} is: {last_line(self._read_log(log_start))}")
        if now - said >= _SAY_SECONDS:
          said = now
          self._say(f"waiting for the vLLM server on port {self._port}, {now - started:.0f} s: "
                    f"{last_line(self._read_log(log_start))}")
        await anyio.sleep(_POLL_SECONDS)

  async def _answers(self, session, model):
    url = f"http://{HOST}:{self._port}"
    try:
      async with session.get(url + "/health") as response:
        if response.status != 200:
          return False
      async with session.get(url + "/v1/models") as response:
        listed = await response.json() if response.status == 200 else {}
    except (aiohttp.ClientError, TimeoutError, ValueError):
      return False
    # Whoever else has the port meanwhile may be healthy too; ours ends when it cannot have it.
    return any(card.get("root") == str(model) for card in listed.get("data", ()))

  def _read_log(self, start):
    with self._log.open("rb") as log:
      log.seek(start)
      return log.read().decode(errors="replace")

  def _death(self, python, text):
    if without_vllm(text):
      return UserError(f"{python} has no vllm package: {_REMEDY}")
    if port_was_taken(text):
      return _PortTaken()
    return UserError(
        f"the vLLM server ended at its start with status {self._guard.returncode}: "
        f"{cause_of_death(text)} (more in {self._log})")

  async def _end(self, keep_folders):
    """Ends the server with all its processes, and returns when they are gone."""
    self.url, process, self._guard = None, self._guard, None
    if process is None:
      return
    with anyio.CancelScope(shield=True):
      try:
        if keep_folders:
          process.stdin.write(b"k")
        process.stdin.close()
      except BrokenPipeError:  # guard and watcher were killed
        pass
      # The guard and the watcher hold it, and are gone last.
      os.set_blocking(process.stdout.fileno(), False)
      with anyio.move_on_after(GRACE + _END_SECONDS) as scope:
        while process.stdout.read() is None or process.poll() is None:
          await anyio.sleep(0.02)
      process.stdout.close()
      if scope.cancelled_caught:
        self._say(f"processes of the vLLM server cannot be ended; more in {self._log}")


_REMEDY = ("make vLLM's environment from third_party/vllm/requirements-*.txt as BUILD.md says, and "
           "name its interpreter")


class _PortTaken(Exception):
  """Somebody else listens on the port that was free a moment ago."""


def _is_free(port):
  try:
    socket.create_server((HOST, port)).close()
  except OSError:
    return False
  return True
