"""Verdicts on the tests of a program, in sentences."""

import re
from collections.abc import Sequence

from conductor_jax.tasks.sandbox import Execution, Limits
from conductor_jax.tasks.task import Grade, GradedTest

_SHOWN = 200  # characters of an input, an output, or a fault


def shortened(text: str) -> str:
  """A text on one line, its beginning if it is long."""
  text = text.strip()
  text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
  return text if text.isprintable() and text else repr(text)


def fault_of(run: Execution, limits: Limits) -> str | None:
  """What kept a program from coming to its end, None if nothing did."""
  excesses = {
      "time limit": f"takes longer than {limits.cpu_seconds:g} s of processor time or "
                    f"{limits.wall_seconds:g} s in all",
      "memory limit": f"takes more than {limits.memory_bytes / 1e6:.0f} MB",
      "output limit": f"writes more than {limits.output_bytes / 1e6:.0f} MB to its output",
      "file limit": f"writes a file of more than {limits.file_bytes / 1e6:.0f} MB",
      "folder limit": f"writes more than {limits.folder_bytes / 1e6:.0f} MB to files",
      "process limit": f"starts more than {limits.processes} processes",
  }
  if run.outcome != "exited":
    return f"the program {excesses[run.outcome]}"
  if run.status == 0:
    return None
  if run.status < 0:
    return f"the program is killed by signal {-run.status}"
  last = (run.errors.strip().splitlines() or [f"exit status {run.status}"])[-1]
  is_exception = re.match(r"[\w.]+(?::|$)", last)
  return f"the program fails{' with' if is_exception else ':'} {shortened(last)}"


def verdict(
    fault: str | None, index: int, count: int, cpu_seconds: float, peak_bytes: int) -> GradedTest:
  """The verdict on one of a program's tests.

  Args:
    fault: why it fails, without its first capital and its full stop; None if it passes.
    index: its place among the tests.
    count: of the tests.
    cpu_seconds: what the program took of a processor.
    peak_bytes: the most memory that it was seen to hold.
  """
  if fault is None:
    reason = f"Test {index + 1} of {count} passes."
  elif count == 1:
    reason = f"{fault[0].upper()}{fault[1:]}."
  else:
    reason = f"Test {index + 1} of {count}: {fault}."
  return GradedTest(fault is None, reason, cpu_seconds, peak_bytes)


def grade_of(program: str, tests: Sequence[GradedTest]) -> Grade:
  """The grade of a program that was tested up to the first test that fails."""
  if not tests[-1].passed:
    return Grade(False, program, tests[-1].reason, tuple(tests))
  seconds = max(test.cpu_seconds for test in tests)
  megabytes = max(test.peak_bytes for test in tests) / 1e6
  which = "its test" if len(tests) == 1 else f"all of its {len(tests)} tests"
  return Grade(True, program, f"The program passes {which}, with at most {seconds:.2f} s and "
               f"{megabytes:.0f} MB.", tuple(tests))
