"""The conductor: the policy writes the plan."""

from dataclasses import replace

import numpy as np

from conductor_jax.rollouts import Conductor, Rollout, later_seed
from conductor_jax.strategies.strategy import Attempt, task_offer, task_seed
from conductor_jax.tasks.task import Task
from conductor_jax.workers.offer import OfferLaw
from conductor_jax.workflows.workflow import ParseFailure


class ConductorStrategy:
  """Answers each task with plans of the policy: one, or one a round (RL Conductor's recursion,
  arXiv 2512.04388)."""

  def __init__(
      self, conductor: Conductor, offers: OfferLaw, *, temperature: float,
      max_rounds: int = 1, max_dollars: float = 0.0, name: str = "conductor",
      variant: str = ""):
    """Args:
      conductor: the policy, its workers and its graders.
      offers: which workers a question's plans may use.
      temperature: 0 takes the most likely plan.
      max_rounds: plans at most. After each the policy sees the answer and keeps it, or writes
        another one. There is none where its prompt is longer than the policy reads.
      max_dollars: no further round begins once a task's workers have cost as much; 0 for any.
      name: what reports call it.
      variant: which policy it is.
    """
    self.name, self.variant = name, variant
    self._conductor = conductor
    self._offers = offers
    self._temperature = temperature
    self._max_rounds = max_rounds
    self._max_dollars = max_dollars or np.inf

  async def answer(self, task: Task, *, seed: int) -> Attempt:
    turn = self._conductor.turn(task, task_offer(self._offers, task, seed))
    if not self._conductor.fits(turn):
      return Attempt(task, ParseFailure(
          f"the prompt has {len(turn.prompt_tokens)} tokens, and the policy reads "
          f"{self._conductor.max_prompt} at most", 0), None, None)
    seeds, spent, rounds = np.array([task_seed(seed, task)], np.uint32), 0.0, []
    while True:
      rollout, = await self._conductor.write_and_run(turn, seeds, self._temperature)
      rounds.append(_attempt(rollout))
      if len(rounds) == self._max_rounds:
        break
      turn, seeds = self._conductor.next_turn(rollout), later_seed(seeds)
      if turn is None:
        break
      spent += rollout.transcript.usage.cost
      if spent >= self._max_dollars:
        break
    return replace(rounds[-1], earlier=tuple(rounds[:-1]))


def _attempt(rollout: Rollout) -> Attempt:
  plan = rollout.plan if rollout.workflow is None else rollout.workflow
  transcript, grade = rollout.transcript, rollout.grade
  if rollout.workflow is None and rollout.turn.before is not None:
    # No plan is no reason to throw an answer away.
    transcript, grade = rollout.turn.before.kept
  return Attempt(rollout.task, plan, transcript, grade, rollout.text, rollout.turn.offer.workers)
