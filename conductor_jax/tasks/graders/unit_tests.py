"""BigCodeBench's unit tests: they share a process with the program.

What holds the program off from there is in `sandboxed/unit_tests.py`. Here is checked who tells of
the tests' ends, and that all of them came to one.
"""

import json
import secrets
from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest

from conductor_jax.tasks.code_tests import UnitTests
from conductor_jax.tasks.graders.programs import completed, without_body
from conductor_jax.tasks.graders.verdicts import fault_of, shortened, verdict
from conductor_jax.tasks.sandbox import Execution, Limits, Sandbox
from conductor_jax.tasks.task import GradedTest, GradingError

_PROGRAM = "solution.py"


@dataclass
class _Told:
  """What the tests' side has told, see `sandboxed/judge.py`.

  Attributes:
    count: of its messages.
    names: of the tests.
    ends: name, reason or None, processor seconds and most bytes of each that ended.
    outcome: kind and reason where there was nothing to test.
  """

  count: int = 0
  names: tuple[str, ...] = ()
  ends: list[tuple[str, str | None, float, int]] = field(default_factory=list)
  outcome: tuple[str, str] | None = None

  def hear(self, text: str) -> None:
    number, kind, rest = text.split(" ", 2)
    self.count += 1
    if int(number) != self.count:
      raise GradingError(f"message {number} of the tests came as number {self.count}")
    if kind == "found":
      self.names = tuple(rest.split(" "))
    elif kind in ("passed", "failed"):
      name, cpu, peak, *reason = rest.split(" ", 3)
      self.ends.append((name, "".join(reason) if kind == "failed" else None, float(cpu), int(peak)))
    else:
      self.outcome = kind, rest


async def run_unit_tests(
    sandbox: Sandbox, program: str, tests: UnitTests, limits: Limits) -> list[GradedTest]:
  """Runs the tests, up to the first that fails.

  Raises:
    GradingError: they cannot be used, or there are none.
    SandboxError, UserError: as `Sandbox.session`.
  """
  run, told = await _run(sandbox, program, tests, limits)
  kind, reason = told.outcome or ("", "")
  if kind == "unloaded":
    # Whether that is the program's doing, another one tells that does nothing at all.
    empty = completed("    pass", tests.code_prompt, tests.entry_point)
    other = (await _run(sandbox, empty, tests, limits))[1].outcome
    if other is not None:
      kind, reason = "faulty", other[1]
  if kind == "faulty":
    raise GradingError(reason)
  if kind:
    return [verdict(shortened(reason), 0, 1, run.cpu_seconds, run.peak_bytes)]
  count = max(1, len(told.names))
  verdicts = [
      verdict(None if reason is None else f"{name} fails at {shortened(reason)}", index, count,
              cpu, peak)
      for index, (name, reason, cpu, peak) in enumerate(told.ends)]
  if len(verdicts) < count and all(one.passed for one in verdicts):
    left = f"{told.names[len(verdicts)]} does" if told.names else "its tests begin"
    fault = fault_of(run, limits) or f"the program ends before {left}"
    verdicts.append(verdict(fault, len(verdicts), count, run.cpu_seconds, run.peak_bytes))
  return verdicts


async def _run(
    sandbox: Sandbox, program: str, tests: UnitTests, limits: Limits) -> tuple[Execution, _Told]:
  key, told = secrets.token_hex(16), _Told()

  async def hear(line: bytes) -> None:
    signature, _, text = line.partition(b" ")
    expected = blake2b(text, key=key.encode(), digest_size=16).hexdigest()
    if compare_digest(signature, expected.encode()):  # else they are the program's own words
      told.hear(text.decode("utf-8", "replace"))

  order = {"key": key, "tests": tests.source, "beginning": without_body(tests.code_prompt),
           "entry_point": tests.entry_point}
  async with sandbox.session({_PROGRAM: program}, limits) as session:
    run = await session.run("/unit_tests.py", _PROGRAM, given=json.dumps(order), answer=hear)
  return run, told
