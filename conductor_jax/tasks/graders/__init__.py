"""Verdicts on answers, one grader per kind of task."""

import os
from collections.abc import Callable
from string import ascii_uppercase
from types import MappingProxyType

from conductor_jax.errors import UserError
from conductor_jax.tasks.graders import choice, integer, number, text
from conductor_jax.tasks.graders.code import CodeGrader
from conductor_jax.tasks.graders.process import IsolatedFunction
from conductor_jax.tasks.sandbox import Sandbox
from conductor_jax.tasks.task import Grade, Task

# Task.kind -> name of its grader. A task with metadata["grader"] names its own.
KINDS: MappingProxyType[str, str] = MappingProxyType({
    "gsm8k": "number",
    "multiarith": "number",
    "svamp": "number",
    "aime25": "integer",
    "mmlu": "choice",
    "gpqa": "choice",
    "aqua": "choice",
    "math500": "math",
    "rlpr": "short_answer",
    "livecodebench": "code",
    "humaneval": "code",
    "bigcodebench": "code",
    "bigcodebench-hard": "code",
    "arithmetic": "text",
    "words": "text",
    "almanac": "text",
    "sorting": "text",
    "two-hop": "text",
})


def _letters(task: Task) -> str:
  """The letters of a task's options: of its choices, else A to D, or to the reference's letter."""
  choices = task.metadata.get("choices")
  count = len(choices) if choices else max(4, ord(task.reference[:1] or "A") - ord("A") + 1)
  return ascii_uppercase[:count]


_PLAIN: MappingProxyType[str, Callable[[Task, str], Grade]] = MappingProxyType({
    "number": lambda task, answer: number.grade(task.reference, answer),
    "integer": lambda task, answer: integer.grade(task.reference, answer),
    "choice": lambda task, answer: choice.grade(task.reference, answer, _letters(task)),
    "text": lambda task, answer: text.grade(task.reference, answer),
})
# These must run in processes of their own, and go by name: their modules are not imported.
_ISOLATED: MappingProxyType[str, str] = MappingProxyType({
    "math": "conductor_jax.tasks.graders.math:grade",
    "short_answer": "conductor_jax.tasks.graders.short_answer:grade",
})
# Answers of many forms, which the parser then knows: its first look at a form takes it long.
_REHEARSALS = tuple((reference, rf"\boxed{{{answer}}}") for reference, answer in (
    ("2", r"\frac{1}{2}+\sqrt{3}\cdot 2^{-1}"), ("x^2+2x+1", "(x+1)^2"), ("2", r"\frac{\pi^2}{8}"),
    (r"\frac{\sqrt{3}}{2}", r"\sin\left(\frac{\pi}{3}\right)"), ("1+2i", "(2+i)(1-i)-3e^{2x}"),
    (r"\ln 2", r"-\frac{1}{2}\log_2 x"), ("5", r"|x-1|+5!"), ("3n", r"\sum_{k=1}^{n} k(n+1)"),
    ("2x+3y=4", r"y=-2x^3+\frac{x}{3}"), ("7", r"x_1+a\cos^2\theta")))
GRADERS = (*_PLAIN, *_ISOLATED, "code")


class Graders:
  """Grades answers of every kind; an async context manager, or call `close`."""

  def __init__(
      self, time_limit: float = 10.0, *, sandbox: Sandbox | None = None, time_factor: float = 1.0):
    """Starts nothing: child processes come with the first answer that needs one.

    Args:
      time_limit: seconds per answer for the graders that run in child processes.
      sandbox: where programs run; None for one of its own.
      time_factor: multiplies the time that programs may take.
    """
    self._code = CodeGrader(Sandbox() if sandbox is None else sandbox, time_factor)
    processes = min(4, os.cpu_count() or 1)
    self._isolated = {
        name: IsolatedFunction(function, time_limit, processes, rehearsals=_REHEARSALS)
        for name, function in _ISOLATED.items()}

  async def grade(self, task: Task, answer: str) -> Grade:
    """Grades one answer.

    Raises:
      GradingError: the grader failed; there is no verdict either way.
      UserError: no grader for the task, its process cannot start, or programs have no sandbox here.
    """
    name = task.metadata.get("grader", KINDS.get(task.kind))
    if name is None:
      raise UserError(f"task {task.id}: no grader for the kind {task.kind!r}; "
                      f"the kinds are {', '.join(KINDS)}")
    if name in _PLAIN:
      return _PLAIN[name](task, answer)
    if name in self._isolated:
      return Grade(*await self._isolated[name](task.reference, answer))
    if name == "code":
      return await self._code.grade(task, answer)
    raise UserError(f"task {task.id}: no grader {name!r}; the graders are {', '.join(GRADERS)}")

  def close(self) -> None:
    """Ends the child processes."""
    for function in self._isolated.values():
      function.close()

  async def __aenter__(self) -> "Graders":
    return self

  async def __aexit__(self, *_) -> None:
    self.close()
