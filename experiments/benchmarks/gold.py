"""Grades the right answers of every benchmark: all of them must be right.

    python -m experiments.benchmarks.gold --path=DIR

`DIR` holds a folder per benchmark, as `tasks.path` of a config does. Prints one JSON line: for each
benchmark that is there how many answers were graded, how many of them are right, how many could not
be graded, and the seconds that it took. Before it stand those that are not right, with the reason.

Of code benchmarks those are graded that tell a solution; of BigCodeBench without `--packages` the
tasks that need nothing but Python's library, of which three want the internet. `--empty` grades
functions that do nothing in their place: hardly one may be right. On two cores all takes about five
minutes.
"""

import ast
import asyncio
import json
import sys
import time
from collections.abc import Sequence

from absl import flags

from conductor_jax.errors import UserError
from conductor_jax.tasks.code_tests import CheckTests, UnitTests, read_tests
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.sandbox import Sandbox
from conductor_jax.tasks.sources import BENCHMARKS, load_tasks
from conductor_jax.tasks.task import GradingError, Task
from experiments.program import start

_AT_ONCE = 32  # answers
_LETTERS = ("mmlu", "gpqa", "aqua")


def needed_modules(task: Task) -> set[str]:
  """The modules that a task of BigCodeBench names, or imports in its tests or its solution."""
  tests = read_tests(task.reference)
  names = set(task.metadata["libs"])
  for source in (f"{tests.code_prompt.rstrip()}\n    pass", right_program(task), tests.source):
    for node in ast.walk(ast.parse(source)):
      if isinstance(node, ast.Import):
        names.update(alias.name for alias in node.names)
      elif isinstance(node, ast.ImportFrom) and node.module:
        names.add(node.module)
  return {name.partition(".")[0] for name in names}


def is_standard(task: Task) -> bool:
  """Whether a task of BigCodeBench needs nothing but Python's library."""
  return needed_modules(task) <= set(sys.stdlib_module_names)


def _beginning(tests: CheckTests | UnitTests) -> str:
  return (tests.prompt if isinstance(tests, CheckTests) else tests.code_prompt).rstrip()


def right_program(task: Task) -> str:
  """The beginning and the solution of a task that tells it."""
  solution = task.metadata["canonical_solution"].rstrip()
  return f"{_beginning(read_tests(task.reference))}\n{solution}\n"


def empty_program(task: Task) -> str:
  """The beginning, and a body that does nothing."""
  return f"{_beginning(read_tests(task.reference))}\n    return None\n"


def right_answer(task: Task) -> str:
  """What a model may write that knows the answer."""
  if "canonical_solution" in task.metadata:
    return f"This does it:\n\n```python\n{right_program(task)}```\n"
  if task.kind in _LETTERS:
    return f"One of them fits best.\n\nAnswer: {task.reference}"
  if task.kind == "gsm8k":  # as it is written there, with commas
    steps, _, number = task.metadata["solution"].rpartition("####")
    return f"{steps}\n\nThe answer is {number.strip()}."
  return f"We work it out. So the answer is $\\boxed{{{task.reference}}}$."


def graded_tasks(tasks: Sequence[Task], packages: bool, empty: bool) -> list[Task]:
  """The tasks that tell their answers, and that can be graded here."""
  return [task for task in tasks if task.kind != "livecodebench"
          and ("canonical_solution" in task.metadata or not empty)
          and task.metadata.get("canonical_solution", True) is not None
          and (packages or not task.kind.startswith("bigcodebench") or is_standard(task))]


async def count(
    graders: Graders, tasks: Sequence[Task], empty: bool) -> tuple[dict[str, float], list[str]]:
  """What is printed of a benchmark, and a line on each answer that is not right."""
  waiting, right, ungraded, lines = iter(tasks), 0, 0, []

  async def work() -> None:
    nonlocal right, ungraded
    for task in waiting:
      answer = f"```python\n{empty_program(task)}```" if empty else right_answer(task)
      try:
        grade = await graders.grade(task, answer)
      except GradingError as fault:
        ungraded += 1
        lines.append(str(fault))
        continue
      right += grade.correct
      if not grade.correct:
        lines.append(f"{task.id}: {grade.reason}")

  began = time.perf_counter()
  await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
  return {"answers": len(tasks), "right": right, "ungraded": ungraded,
          "seconds": round(time.perf_counter() - began, 1)}, lines


async def measure(
    path: str, benchmarks: Sequence[str], python: str, *, empty: bool, packages: bool
) -> dict[str, dict[str, float]]:
  """What the program prints."""
  counts = {}
  async with Graders(sandbox=Sandbox(python=python)) as graders:
    for name in benchmarks or BENCHMARKS:
      try:
        loaded = load_tasks(path, [name], "test")
      except UserError as fault:
        if benchmarks:
          raise
        print(f"left out: {fault}", file=sys.stderr)
        continue
      tasks = graded_tasks(loaded, packages, empty)
      if tasks:
        counts[name], lines = await count(graders, tasks, empty)
        for line in lines:
          print(line, file=sys.stderr)
  return counts


def main() -> None:
  path = flags.DEFINE_string("path", None, "The directory with a folder per benchmark.")
  benchmarks = flags.DEFINE_list("benchmarks", [], "Which ones; empty for all that are there.")
  empty = flags.DEFINE_bool("empty", False, "Grades functions that do nothing, for comparison.")
  packages = flags.DEFINE_bool("packages", False, "Includes BigCodeBench's tasks with packages.")
  python = flags.DEFINE_string("python", sys.executable, "The interpreter of programs.")
  start(lambda: print(json.dumps(asyncio.run(measure(
      path.value, benchmarks.value, python.value, empty=empty.value, packages=packages.value)))),
      ["path"])


if __name__ == "__main__":
  main()
