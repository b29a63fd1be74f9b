"""HumanEval's checks: they run in a sandbox of their own, and call the program in another.

So the program sees the arguments of calls, and nothing else of its tests; what it returns reaches
them as plain data.
"""

import asyncio
from dataclasses import replace

from conductor_jax.tasks.code_tests import CheckTests
from conductor_jax.tasks.graders.programs import without_body
from conductor_jax.tasks.graders.verdicts import fault_of, shortened, verdict
from conductor_jax.tasks.sandbox import Limits, Sandbox
from conductor_jax.tasks.task import GradedTest, GradingError

_PROGRAM = "solution.py"
_FAREWELL = 1.0  # seconds for a program to end by itself
_MORE_SECONDS = 5.0  # for the check, which waits for the program


async def run_check(
    sandbox: Sandbox, program: str, tests: CheckTests, limits: Limits) -> GradedTest:
  """Checks the function of a program.

  Raises:
    GradingError: the check cannot be run, or never calls the function.
    SandboxError, UserError: as `Sandbox.session`.
  """
  calls: asyncio.Queue[bytes] = asyncio.Queue()
  results: asyncio.Queue[bytes] = asyncio.Queue()
  said: list[tuple[str, str]] = []
  is_ready, is_called = False, asyncio.Event()

  async def serve(line: bytes) -> bytes:
    nonlocal is_ready
    if is_ready:
      results.put_nowait(line)
    is_ready = True  # the first line says no more
    return await calls.get()

  async def ask(line: bytes) -> bytes | None:
    kind, _, content = line.partition(b" ")
    if kind != b"call":
      said.append((kind.decode(), content.decode("utf-8", "replace")))
      return None
    is_called.set()
    calls.put_nowait(content)
    return await results.get()

  # What the check may use of the prompt is whole; the function to be written has no body.
  files = {"prompt.py": without_body(tests.prompt), "check.py": tests.check}
  checker_limits = replace(limits, wall_seconds=limits.wall_seconds + _MORE_SECONDS)
  # One place for both: two graders that hold one each would wait for another forever.
  async with sandbox.sessions(
      ({_PROGRAM: program}, limits), (files, checker_limits)) as (candidate, checker):
    serving = asyncio.create_task(
        candidate.run("/candidate.py", _PROGRAM, tests.entry_point, answer=serve))
    checking = asyncio.create_task(
        checker.run("/check.py", "prompt.py", "check.py", tests.entry_point, answer=ask))
    calling = asyncio.create_task(is_called.wait())
    try:
      await asyncio.wait({serving, checking}, return_when=asyncio.FIRST_COMPLETED)
      if not checking.done():  # a check that cannot be used says so whatever the program does
        await asyncio.wait({calling, checking}, return_when=asyncio.FIRST_COMPLETED)
      if checking.done():
        calls.put_nowait(b"")  # tells the program that there are no more
        await asyncio.wait({serving}, timeout=_FAREWELL)
      run = serving.result() if serving.done() else None
      check = checking.result() if checking.done() else None
    finally:
      for task in (begun := (serving, checking, calling)):
        task.cancel()
      await asyncio.gather(*begun, return_exceptions=True)
  word, content = said[0] if said else ("", "")
  if word == "faulty":
    raise GradingError(f"the check cannot be used: {content}")
  if word == "passed":
    fault = None
  elif word == "failed":
    fault = f"the check fails at {shortened(content)}"
  elif run is not None and (check is None or fault_of(run, limits)):
    fault = fault_of(run, limits) or "the program ends before its check does"
  else:
    fault = f"its check is brought down: {fault_of(check, checker_limits) or 'it says nothing'}"
  cpu_seconds, peak_bytes = (run.cpu_seconds, run.peak_bytes) if run else (0.0, 0)
  return verdict(fault, 0, 1, cpu_seconds, peak_bytes)
