"""The conductor: the policy writes the plan."""

import numpy as np

from conductor_jax.rollouts import Conductor
from conductor_jax.strategies.strategy import Attempt, task_seed
from conductor_jax.tasks.task import Task
from conductor_jax.workflows.workflow import ParsedPlan, ParseFailure


class ConductorStrategy:
  """Answers each task with one plan of the policy."""

  def __init__(
      self, conductor: Conductor, *, temperature: float, max_prompt: int, variant: str = ""):
    """Args:
      conductor: the policy, its workers and its graders.
      temperature: 0 takes the most likely plan.
      max_prompt: tokens that the policy reads at most. There is no plan for a task that takes more.
      variant: which policy it is.
    """
    self.name, self.variant = "conductor", variant
    self._conductor = conductor
    self._temperature = temperature
    self._max_prompt = max_prompt

  async def answer(self, task: Task, *, seed: int) -> Attempt:
    length = len(self._conductor.prompt(task))
    if length > self._max_prompt:
      return Attempt(task, ParseFailure(
          f"the prompt has {length} tokens, and the policy reads {self._max_prompt} at most", 0),
          None, None)
    seeds = np.array([task_seed(seed, task)], np.uint32)
    completions = await self._conductor.sample(task, seeds, self._temperature)
    rollout, = await self._conductor.execute(task, completions, seeds)
    plan = rollout.plan.workflow if isinstance(rollout.plan, ParsedPlan) else rollout.plan
    return Attempt(rollout.task, plan, rollout.transcript, rollout.grade, rollout.text)
