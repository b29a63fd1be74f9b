"""The conductor: the policy writes the plan."""

from collections.abc import Sequence

import numpy as np

from conductor_jax.gather import gather_all
from conductor_jax.rollouts import Conductor
from conductor_jax.strategies.strategy import Attempt, task_seed
from conductor_jax.tasks.task import Task
from conductor_jax.workflows.workflow import ParsedPlan


class ConductorStrategy:
  """Answers each task with one plan of the policy."""

  def __init__(self, conductor: Conductor, temperature: float):
    """Args:
      conductor: the policy, its workers and its graders.
      temperature: 0 takes the most likely plan.
    """
    self.name = "conductor"
    self._conductor = conductor
    self._temperature = temperature

  async def answer(self, tasks: Sequence[Task], *, seed: int) -> list[Attempt]:
    return await gather_all(self._answer(task, task_seed(seed, task)) for task in tasks)

  async def _answer(self, task: Task, seed: int) -> Attempt:
    seeds = np.array([seed], np.uint32)
    completions = await self._conductor.sample(task, seeds, self._temperature)
    rollout, = await self._conductor.execute(task, completions, seeds)
    plan = rollout.plan.workflow if isinstance(rollout.plan, ParsedPlan) else rollout.plan
    return Attempt(rollout.task, plan, rollout.transcript, rollout.grade)
