"""What a strategy is: anything that answers tasks with a pool of workers."""

import hashlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workers.offer import Offer, OfferLaw
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.grading import PlannedRun, run_and_grade
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import ParseFailure, Workflow


@dataclass(frozen=True)
class Attempt:
  """One answered task.

  Attributes:
    task: the question.
    plan: what was run, or why nothing was.
    transcript: the run, None where the plan did not parse.
    grade: the verdict; None where the attempt is rejected, or the plan did not parse.
    completion: what a policy wrote the plan as, None where none did.
    offered: the ids of the workers that the plan might use, None where it was not planned.
    earlier: the rounds before this one, first to last; the verdict on the task is this one's.
  """

  task: Task
  plan: Workflow | ParseFailure
  transcript: Transcript | None
  grade: Grade | None
  completion: str | None = None
  offered: tuple[int, ...] | None = None
  earlier: "tuple[Attempt, ...]" = ()

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


def task_offer(offers: OfferLaw, task: Task, seed: int) -> Offer:
  """What a task is offered; with the same seed all strategies have the same workers."""
  return offers.draw(np.random.default_rng([task_seed(seed, task), 1]))


async def attempt(
    executor: Executor, graders: Graders, task: Task, workflow: Workflow, *, seed: int,
    offer: Offer | None = None
) -> Attempt:
  """Runs a workflow on a task, with its `task_seed`, and grades what comes out."""
  (transcript, grade), = await run_and_grade(
      executor, graders, [PlannedRun(task, workflow, task_seed(seed, task))])
  return Attempt(task, workflow, transcript, grade, offered=offer and offer.workers)
