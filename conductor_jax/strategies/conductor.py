"""The conductor: the policy writes the plan."""

import asyncio
from collections.abc import Sequence

import numpy as np

from conductor_jax.rollouts import Conductor
from conductor_jax.strategies.strategy import Attempt, task_seed
from conductor_jax.tasks.task import Task
from conductor_jax.workflows.workflow import ParsedPlan


class ConductorStrategy:
  """Answers each task with one plan of the policy, sampled in one batch."""

  def __init__(self, conductor: Conductor, temperature: float):
    """Args:
      conductor: the policy, its workers and its graders.
      temperature: 0 takes the most likely plan.
    """
    self.name = "conductor"
    self._conductor = conductor
    self._temperature = temperature

  async def answer(self, tasks: Sequence[Task], *, seed: int) -> list[Attempt]:
    seeds = np.array([[task_seed(seed, task)] for task in tasks], np.uint32).reshape(-1, 1)
    # Sampling takes seconds: in a thread, it leaves the event loop to whatever else is under way.
    completions = await asyncio.to_thread(
        self._conductor.sample, tasks, seeds, self._temperature)
    attempts = []
    for (rollout,) in await self._conductor.execute(tasks, completions, seeds):
      plan = rollout.plan.workflow if isinstance(rollout.plan, ParsedPlan) else rollout.plan
      attempts.append(Attempt(rollout.task, plan, rollout.transcript, rollout.grade))
    return attempts
