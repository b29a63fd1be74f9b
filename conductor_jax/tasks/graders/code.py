"""Programs: run in a sandbox, and judged by what comes out of it.

What a program prints, or its function returns, is compared with what is expected in this process,
where the program cannot see it. `checks.py` and `unit_tests.py` say how tests in Python are kept
from it.
"""

import json
from dataclasses import replace
from typing import Any

from conductor_jax.tasks.code_tests import (
    CheckTests,
    FunctionTests,
    StdinTests,
    UnitTests,
    read_tests,
)
from conductor_jax.tasks.graders.checks import run_check
from conductor_jax.tasks.graders.outputs import same_output, same_value
from conductor_jax.tasks.graders.programs import completed, extract_program
from conductor_jax.tasks.graders.unit_tests import run_unit_tests
from conductor_jax.tasks.graders.verdicts import fault_of, grade_of, shortened, verdict
from conductor_jax.tasks.sandbox import Limits, Sandbox, SandboxError
from conductor_jax.tasks.task import Grade, GradedTest, GradingError, Task

_PROGRAM = "solution.py"
# LiveCodeBench gives a test 6 seconds, on machines of its own.
_LIMITS = Limits()
# BigCodeBench's tests import large packages, and draw.
_UNIT_TEST_LIMITS = Limits(cpu_seconds=60.0, wall_seconds=120.0, memory_bytes=2 << 30)


def _scaled(limits: Limits, time_factor: float) -> Limits:
  return replace(limits, cpu_seconds=limits.cpu_seconds * time_factor,
                 wall_seconds=limits.wall_seconds * time_factor)


class CodeGrader:
  """Grades programs in a sandbox."""

  def __init__(self, sandbox: Sandbox, time_factor: float = 1.0):
    """Args:
      sandbox: where programs run.
      time_factor: multiplies the time that they may take.
    """
    self._sandbox = sandbox
    self._limits = _scaled(_LIMITS, time_factor)
    self._unit_test_limits = _scaled(_UNIT_TEST_LIMITS, time_factor)

  async def grade(self, task: Task, answer: str) -> Grade:
    """Runs the program in an answer on the task's tests, up to the first that fails.

    Raises:
      GradingError: the tests cannot be read or run, or a sandbox was lost.
      UserError: there is no sandbox here.
    """
    try:
      tests = read_tests(task.reference)
    except ValueError as fault:
      raise GradingError(f"task {task.id}: {fault}") from fault
    function = getattr(tests, "function", getattr(tests, "entry_point", None))
    program = extract_program(answer, function)
    if program is None:
      return Grade(False, None, "The answer holds no program (unparsed).")
    try:
      return grade_of(program, await self._run(program, tests))
    except (SandboxError, GradingError) as fault:
      raise GradingError(f"task {task.id}: {fault}") from fault

  async def _run(self, program: str, tests: Any) -> list[GradedTest]:
    if isinstance(tests, CheckTests):
      program = completed(program, tests.prompt, tests.entry_point)
      return [await run_check(self._sandbox, program, tests, self._limits)]
    if isinstance(tests, UnitTests):
      program = completed(program, tests.code_prompt, tests.entry_point)
      return await run_unit_tests(self._sandbox, program, tests, self._unit_test_limits)
    return await _run_each(self._sandbox, program, tests, self._limits)


async def _run_each(
    sandbox: Sandbox, program: str, tests: StdinTests | FunctionTests, limits: Limits
) -> list[GradedTest]:
  verdicts: list[GradedTest] = []
  pairs = zip(tests.inputs if isinstance(tests, StdinTests) else tests.arguments, tests.outputs,
              strict=True)
  async with sandbox.session({_PROGRAM: program}, limits) as session:
    for given, expected in pairs:
      if isinstance(tests, StdinTests):
        run = await session.run("/script.py", _PROGRAM, given=given)
        fault = fault_of(run, limits) or _wrong_output(given, run.output, expected)
      else:
        sent: list[bytes] = []

        async def keep(line: bytes, sent: list[bytes] = sent) -> None:
          sent.append(line)

        run = await session.run(
            "/call.py", _PROGRAM, tests.function, given=json.dumps(given), answer=keep)
        fault = fault_of(run, limits) or _wrong_result(tests.function, given, sent, expected)
      verdicts.append(verdict(
          fault, len(verdicts), len(tests.outputs), run.cpu_seconds, run.peak_bytes))
      if fault is not None:
        break
  return verdicts


def _wrong_output(given: str, printed: str, expected: str) -> str | None:
  if same_output(printed, expected):
    return None
  return (f"for the input {shortened(given)} the program prints {shortened(printed)}, and "
          f"{shortened(expected)} is expected")


def _wrong_result(
    function: str, arguments: list[Any], sent: list[bytes], expected: Any) -> str | None:
  call = "the call " + shortened(f"{function}({', '.join(map(json.dumps, arguments))})")
  if len(sent) != 1:
    return f"{call} returns {'nothing' if not sent else 'more than once'}"
  try:
    returned = json.loads(sent[0])
    if same_value(returned, expected):
      return None
    shown = json.dumps(returned)
  except (ValueError, RecursionError):
    return f"{call} returns what cannot be read"
  return f"{call} returns {shortened(shown)}, and {shortened(json.dumps(expected))} is expected"
