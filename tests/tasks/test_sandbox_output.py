"""What goes into a program and comes out of it is bounded, and waits for nobody."""

import asyncio
from dataclasses import replace

from tests.tasks.attack import LIMITS, attack

OUTPUT = replace(LIMITS, output_bytes=1 << 20, cpu_seconds=1.0)


async def test_output_without_end_ends_at_its_limit(sandbox):
  lines = []

  async def keep(line):
    lines.append(line)

  printing, channel, small_lines, errors = await asyncio.gather(
      attack(sandbox, "while True: print('x' * 100_000)", limits=OUTPUT),
      attack(sandbox, "import os\nwhile True: os.write(3, b'x' * 100_000)", limits=OUTPUT,
             answer=keep),
      attack(sandbox, "import os\nwhile True: os.write(3, b'\\n' * 100_000)", limits=OUTPUT,
             answer=keep),
      attack(sandbox, "import sys\nwhile True: sys.stderr.write('y' * 100_000)", limits=OUTPUT))
  assert printing.outcome == "output limit" and len(printing.output) == 1 << 20, printing.outcome
  assert channel.outcome == small_lines.outcome == "output limit"
  assert 0 < len(lines) < 80_000 and set(lines) == {b""}
  assert errors.outcome == "time limit" and errors.errors == "y" * 4000


async def test_a_grandchild_that_holds_the_output_open_delays_nothing(sandbox):
  program = """
import os, time
if os.fork() == 0:
  os.setsid()
  while True:
    time.sleep(0.01)
    print("more", flush=True)
print("right", flush=True)
"""
  run = await attack(sandbox, program)
  assert (run.outcome, run.status) == ("exited", 0) and run.output.startswith("right\n"), run
  assert run.wall_seconds < 2


async def test_input_that_is_large_arrives_and_input_that_is_not_read_harms_nobody(sandbox):
  given = "0123456789abcde\n" * (2 << 20)
  program = "import sys\ntext = sys.stdin.read()\nprint(len(text), hash(text) == hash(GIVEN))"
  program = program.replace("GIVEN", "'0123456789abcde\\n' * (2 << 20)")
  limits = replace(LIMITS, wall_seconds=20.0, cpu_seconds=10.0)
  read, unread, closed, slow = await asyncio.gather(
      attack(sandbox, program, given=given, limits=limits),
      attack(sandbox, "print('right')", given=given),
      attack(sandbox, "import os\nos.close(0)\nprint('right')", given=given),
      attack(sandbox, "import time\ntime.sleep(1000)", given=given,
             limits=replace(LIMITS, wall_seconds=1.0)))
  assert (read.outcome, read.output) == ("exited", f"{32 << 20} True\n"), read.errors
  assert unread.output == closed.output == "right\n"
  assert slow.outcome == "time limit"
