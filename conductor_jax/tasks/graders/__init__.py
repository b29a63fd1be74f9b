"""Verdicts on answers, one grader per kind of task."""

import os
from collections.abc import Callable
from types import MappingProxyType

from conductor_jax.errors import UserError
from conductor_jax.tasks.graders import choice, number, text
from conductor_jax.tasks.graders.process import IsolatedFunction
from conductor_jax.tasks.task import Grade, Task

# The graders that must run in a process of their own go by name: their modules are not imported.
_MATH = "conductor_jax.tasks.graders.math:grade"

# Task.kind -> grader(reference, answer).
KINDS: MappingProxyType[str, Callable[[str, str], Grade] | str] = MappingProxyType({
    "gsm8k": number.grade,
    "multiarith": number.grade,
    "mmlu": choice.grade,
    "math500": _MATH,
    "arithmetic": text.grade,
    "words": text.grade,
    "almanac": text.grade,
    "sorting": text.grade,
    "two-hop": text.grade,
})


class Graders:
  """Grades answers of every kind; an async context manager, or call `close`."""

  def __init__(self, time_limit: float = 10.0):
    """Starts nothing: child processes come with the first answer that needs one.

    Args:
      time_limit: seconds per answer for the graders that run in child processes.
    """
    processes = min(4, os.cpu_count() or 1)
    self._isolated = {_MATH: IsolatedFunction(_MATH, time_limit, processes)}

  async def grade(self, task: Task, answer: str) -> Grade:
    """Grades one answer.

    Raises:
      GradingError: the grader failed; there is no verdict either way.
      UserError: no grader for the task's kind, or its process cannot start.
    """
    grader = KINDS.get(task.kind)
    if grader is None:
      raise UserError(f"task {task.id}: no grader for the kind {task.kind!r}; "
                      f"the kinds are {', '.join(KINDS)}")
    if isinstance(grader, str):
      return Grade(*await self._isolated[grader](task.reference, answer))
    return grader(task.reference, answer)

  def close(self) -> None:
    """Ends the child processes."""
    for function in self._isolated.values():
      function.close()

  async def __aenter__(self) -> "Graders":
    return self

  async def __aexit__(self, *_) -> None:
    self.close()
