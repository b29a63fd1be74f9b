"""A hostile program in a sandbox, an honest one beside it, and what the host sees of the two."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

from conductor_jax.tasks.sandbox import Limits

# Short enough for a test, and enough for an honest program on a busy machine.
LIMITS = Limits(cpu_seconds=2.0, wall_seconds=4.0)
_PROBE = "import os; print(os.readlink('/proc/self/ns/pid'), end='')"
_HONEST = """
total = 0
for number in map(int, input().split()):
  for factor in range(50_000):
    total = (total * 31 + number * factor) % 1_000_003
print(total)
"""
_HONEST_GIVEN, _HONEST_PRINTS = "3 1 4 1 5", "919525\n"


def mounts():
  """The host's, as this process sees them."""
  return Path("/proc/self/mountinfo").read_text()


def processes_of(namespace):
  """Processes of the host in a namespace of process ids."""
  found = []
  for folder in Path("/proc").iterdir():
    try:
      if folder.name.isdigit() and os.readlink(folder / "ns/pid") == namespace:
        found.append(int(folder.name))
    except OSError:
      continue  # gone in between, or another user's
  return found


async def _gone(namespace):
  """Waits until a namespace has no processes; its number may soon be another sandbox's."""
  async with asyncio.timeout(20):
    while processes_of(namespace):
      await asyncio.sleep(0.05)


async def attack(sandbox, program, *arguments, limits=LIMITS, given="", answer=None, files=()):
  """Runs a hostile program; asserts that nothing else is the worse for it.

  Returns:
    Its `Execution`.
  """
  before = mounts()
  wanted = {"solution.py": program, "probe.py": _PROBE, **dict(files)}
  async with sandbox.sessions(
      (wanted, limits), ({"honest.py": _HONEST}, replace(Limits(), wall_seconds=60.0))
  ) as (session, beside):
    namespace = (await session.run("probe.py")).output
    assert processes_of(namespace), "the sandbox is not seen"
    run, honest = await asyncio.gather(
        session.run("solution.py", *arguments, given=given, answer=answer),
        beside.run("honest.py", given=_HONEST_GIVEN))
    assert (honest.outcome, honest.status, honest.output) == ("exited", 0, _HONEST_PRINTS), honest
    assert len(processes_of(namespace)) <= 1  # process 1, unless it had to be killed
    after = await session.run("probe.py")
    assert (after.outcome, after.status) == ("exited", 0), after
  for ended in (namespace, after.output):
    await _gone(ended)
  assert mounts() == before
  return run


async def report(sandbox, program, **options):
  """What a hostile program prints as JSON."""
  run = await attack(sandbox, program, **options)
  assert (run.outcome, run.status) == ("exited", 0), run
  return json.loads(run.output)
