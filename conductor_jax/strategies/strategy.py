"""What a strategy is: anything that answers tasks with a pool of workers."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.grading import run_and_grade
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import ParseFailure, Workflow

# What a worker is asked by strategies that write no subtasks of their own.
PLAIN_SUBTASK = "Answer the question."


@dataclass(frozen=True)
class Attempt:
  """One answered task.

  Attributes:
    task: the question.
    plan: what was run, or why nothing was.
    transcript: the run, None where the plan did not parse.
    grade: the verdict; None where the attempt is rejected, or the plan did not parse.
  """

  task: Task
  plan: Workflow | ParseFailure
  transcript: Transcript | None
  grade: Grade | None

  @property
  def rejected(self) -> bool:
    """Whether there is no verdict on the plan: an endpoint or the grader failed."""
    return isinstance(self.plan, Workflow) and self.grade is None

  @property
  def right(self) -> bool:
    return self.grade is not None and self.grade.correct


class Strategy(Protocol):
  """Answers tasks.

  Attributes:
    name: what reports call it.
  """

  name: str

  async def answer(self, tasks: Sequence[Task], *, seed: int) -> list[Attempt]:
    """Answers every task, all at once.

    Args:
      tasks: the questions.
      seed: fixes every answer, whatever the order of the tasks and the concurrency.

    Returns:
      One attempt per task, in order.
    """
    ...


def task_seed(seed: int, task: Task) -> int:
  """A 32-bit seed that depends on the task itself, not on its place among others."""
  digest = hashlib.sha256(f"{seed}\n{task.kind}\n{task.id}".encode()).digest()
  return int.from_bytes(digest[:4], "big")


async def attempt_all(
    executor: Executor, graders: Graders, tasks: Sequence[Task], workflows: Sequence[Workflow], *,
    seed: int
) -> list[Attempt]:
  """Runs one workflow per task, all at once, each with its `task_seed`."""
  results = await run_and_grade(executor, graders, [
      (task, workflow, task_seed(seed, task))
      for task, workflow in zip(tasks, workflows, strict=True)])
  return [Attempt(task, workflow, transcript, grade) for task, workflow, (transcript, grade)
          in zip(tasks, workflows, results, strict=True)]
