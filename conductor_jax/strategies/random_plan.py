"""Random valid plans: what planning is worth is measured from here."""

import numpy as np

from conductor_jax.strategies.strategy import PLAIN_SUBTASK, Attempt, attempt, task_seed
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.lists import Access
from conductor_jax.workflows.workflow import Step, Workflow


def random_workflow(
    generator: np.random.Generator, *, workers: int, max_steps: int, access: Access
) -> Workflow:
  """Draws a valid plan with plain subtasks.

  The number of steps is uniform on 1..max_steps, each step's worker uniform, and each access list
  uniform over those its step may have: none or all earlier steps ("binary"), or any subset of
  them ("positions"). Plans as such are not equally likely: nearly all would have `max_steps` steps.
  """
  steps = []
  for index in range(generator.integers(1, max_steps + 1)):
    worker = int(generator.integers(workers))
    if access == "binary":
      sees = range(index) if generator.random() < 0.5 else ()
    else:
      sees = (earlier for earlier in range(index) if generator.random() < 0.5)
    steps.append(Step(worker, PLAIN_SUBTASK, tuple(sees)))
  return Workflow(tuple(steps))


class RandomPlan:
  """Answers each task with a random valid plan."""

  def __init__(self, executor: Executor, graders: Graders, *, max_steps: int, access: Access):
    """Args:
      executor: runs the plans; any worker of its pool may be drawn.
      graders: judge the answers.
      max_steps: the most steps of a plan.
      access: which access lists are drawn.
    """
    self.name, self.variant = "random_plan", ""
    self._executor = executor
    self._graders = graders
    self._max_steps = max_steps
    self._access = access

  async def answer(self, task: Task, *, seed: int) -> Attempt:
    workflow = random_workflow(
        np.random.default_rng(task_seed(seed, task)), workers=len(self._executor.pool),
        max_steps=self._max_steps, access=self._access)
    return await attempt(self._executor, self._graders, task, workflow, seed=seed)
