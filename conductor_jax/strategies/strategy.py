"""What a strategy is: anything that answers tasks with a pool of workers."""

import hashlib
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
    completion: what a policy wrote the plan as, None where none did.
  """

  task: Task
  plan: Workflow | ParseFailure
  transcript: Transcript | None
  grade: Grade | None
  completion: str | None = None

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
    variant: what answers under that name where the name does not say it, such as the checkpoint of
      a policy; "" where it does.
  """

  name: str
  variant: str

  async def answer(self, task: Task, *, seed: int) -> Attempt:
    """Answers one task.

    Args:
      task: the question.
      seed: fixes the answer, whatever else is answered at the same time; another task is answered
        independently under the same seed.
    """
    ...


def task_seed(seed: int, task: Task) -> int:
  """A 32-bit seed that depends on the task itself, not on its place among others."""
  digest = hashlib.sha256(f"{seed}\n{task.kind}\n{task.id}".encode()).digest()
  return int.from_bytes(digest[:4], "big")


async def attempt(
    executor: Executor, graders: Graders, task: Task, workflow: Workflow, *, seed: int) -> Attempt:
  """Runs a workflow on a task, with its `task_seed`, and grades what comes out."""
  (transcript, grade), = await run_and_grade(
      executor, graders, [(task, workflow, task_seed(seed, task))])
  return Attempt(task, workflow, transcript, grade)
