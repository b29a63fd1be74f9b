"""Times trivial programs in sandboxes.

    python -m experiments.benchmarks.sandbox

Prints one JSON line: medians over rounds of programs a second where each has a sandbox of its own,
of runs a second where they follow each other in one session, of milliseconds of processor time that
one program of each kind takes, and of milliseconds that a sandbox takes to start.
"""

import asyncio
import json
import os
import resource
import statistics
import time
from collections.abc import Awaitable, Callable

from absl import app, flags

from conductor_jax.tasks.sandbox import Sandbox

_SESSIONS = flags.DEFINE_integer(
    "sessions", None, "Sandboxes at the same time; as many as there are cores by default.")
_PROGRAMS = flags.DEFINE_integer("programs", 100, "Programs of a round.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds of which the median is taken.")
_FILES = {"solution.py": "print(sum(map(int, input().split())))"}


async def _once(session, number: int) -> None:
  run = await session.run("solution.py", given=f"{number} 1\n")
  if run.output != f"{number + 1}\n":
    raise RuntimeError(f"a program is not run: {run}")


async def _alone(sandbox: Sandbox, number: int) -> None:
  async with sandbox.session(_FILES) as session:
    await _once(session, number)


async def _together(sandbox: Sandbox, numbers: range) -> None:
  async with sandbox.session(_FILES) as session:
    for number in numbers:
      await _once(session, number)


async def _started(sandbox: Sandbox) -> None:
  async with sandbox.session(_FILES):
    pass


def _cpu() -> float:
  return sum(sum(resource.getrusage(who)[:2])
             for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


async def _timed(work: Callable[[], list[Awaitable[None]]]) -> tuple[float, float]:
  """Seconds and processor seconds of all that is to be done at the same time."""
  began, cpu = time.perf_counter(), _cpu()
  await asyncio.gather(*work())
  return time.perf_counter() - began, _cpu() - cpu


async def measure(sessions: int, programs: int, rounds: int) -> dict[str, float]:
  """What the program prints."""
  sandbox = Sandbox(sessions=sessions)
  await _started(sandbox)
  each = programs // sessions
  alone, together, starts = [], [], []
  for _ in range(rounds):
    alone.append(await _timed(lambda: [_alone(sandbox, number) for number in range(programs)]))
    together.append(await _timed(
        lambda: [_together(sandbox, range(each)) for _ in range(sessions)]))
    starts.append((await _timed(lambda: [_started(sandbox)]))[0])

  def median(values, index, count):
    return statistics.median(value[index] for value in values) / count

  return {
      "sessions": sessions,
      "programs_per_second": round(1 / median(alone, 0, programs), 1),
      "program_cpu_ms": round(1e3 * median(alone, 1, programs), 1),
      "runs_per_second": round(1 / median(together, 0, each * sessions), 1),
      "run_cpu_ms": round(1e3 * median(together, 1, each * sessions), 1),
      "start_and_end_ms": round(1e3 * statistics.median(starts), 1)}


def main(arguments: list[str]) -> None:
  if len(arguments) > 1:
    raise app.UsageError(f"unknown arguments: {' '.join(arguments[1:])}")
  print(json.dumps(asyncio.run(measure(
      _SESSIONS.value or os.cpu_count() or 1, _PROGRAMS.value, _ROUNDS.value))))


if __name__ == "__main__":
  app.run(main)
