"""Random valid plans: what planning is worth is measured from here."""

from collections.abc import Iterable, Sequence

import numpy as np

from conductor_jax.strategies.strategy import Attempt, attempt, task_offer, task_seed
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.offer import OfferLaw
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.format import PlanFormat
from conductor_jax.workflows.workflow import PLAIN_SUBTASK, Step, Workflow


def random_workflow(
    generator: np.random.Generator, *, workers: Sequence[int], format: PlanFormat
) -> Workflow:
  """Draws a valid plan with plain subtasks.

  The number of steps is uniform on 1..max_steps, each step's worker uniform, and each access list
  uniform over those its step may have: none or all earlier steps ("binary"), any subset of them
  ("positions"), or none ("none"). Plans as such are not equally likely: nearly all would have
  `max_steps` steps.
  """
  steps = []
  for index in range(generator.integers(1, format.max_steps + 1)):
    worker = workers[int(generator.integers(len(workers)))]
    sees: Iterable[int] = ()
    if format.access == "binary":
      sees = range(index) if generator.random() < 0.5 else ()
    elif format.access == "positions":
      sees = (earlier for earlier in range(index) if generator.random() < 0.5)
    steps.append(Step(worker, PLAIN_SUBTASK, tuple(sees)))
  return Workflow(tuple(steps))


class RandomPlan:
  """Answers each task with a random valid plan."""

  def __init__(self, executor: Executor, graders: Graders, *, format: PlanFormat, offers: OfferLaw):
    """Args:
      executor: runs the plans.
      graders: judge the answers.
      format: of the plans.
      offers: which workers of its pool a question's plan may use.
    """
    self.name, self.variant = "random_plan", ""
    self._executor = executor
    self._graders = graders
    self._format = format
    self._offers = offers

  async def answer(self, task: Task, *, seed: int) -> Attempt:
    offer = task_offer(self._offers, task, seed)
    workflow = random_workflow(
        np.random.default_rng(task_seed(seed, task)), workers=offer.workers, format=self._format)
    return await attempt(self._executor, self._graders, task, workflow, seed=seed, offer=offer)
