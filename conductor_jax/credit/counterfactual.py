"""What a field of a plan is worth: the plan runs again without it (LEMON, arXiv 2605.14483)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conductor_jax.credit.families import draw_mutations
from conductor_jax.credit.mutations import Mutation, mutations
from conductor_jax.rewards import RewardValues, reward
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.call import Usage
from conductor_jax.workers.offer import Offer
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.format import Family, PlanFormat
from conductor_jax.workflows.grading import PlannedRun, run_and_grade
from conductor_jax.workflows.transcript import Transcript, refuse_over_budget
from conductor_jax.workflows.workflow import ParsedPlan, Workflow


@dataclass(frozen=True)
class PlanRun:
  """A plan that has run.

  Attributes:
    task: the question.
    offer: which workers its plan could use.
    plan: the plan.
    transcript: its run.
    reward: what it brought.
    seed: of the run.
  """

  task: Task
  offer: Offer
  plan: ParsedPlan
  transcript: Transcript
  reward: float
  seed: int


@dataclass(frozen=True)
class Counterfactual:
  """What became of a plan without one of its fields.

  Attributes:
    mutation: the field.
    delta: the plan's reward less the mean one without the field; None without any verdict.
    usage: what the calls took that the plan itself had not made.
    calls: how many these were.
    reused: calls that were not made again, because the plan itself had made them.
  """

  mutation: Mutation
  delta: float | None
  usage: Usage
  calls: int
  reused: int


class Counterfactuals:
  """Mutates plans and runs them again, as far as they change.

  Args:
    executor: runs the plans.
    graders: judge the answers.
    format: of the plans.
    reward_values: what each outcome is worth.
    each: mutations of a plan.
    repeats: runs of a mutation. The first has the seeds of the plan's own run, so that a worker
      that is asked the same answers the same; the others have seeds of their own.
    max_calls: calls to workers that a group may take on top, at most.
  """

  def __init__(
      self, executor: Executor, graders: Graders, format: PlanFormat, reward_values: RewardValues,
      *, each: int, repeats: int, max_calls: int):
    self._executor, self._graders, self._format = executor, graders, format
    self._reward_values = reward_values
    self._each, self._repeats, self._max_calls = each, repeats, max_calls

  async def measure(
      self, runs: Sequence[PlanRun], chances: Mapping[Family, float],
      generator: np.random.Generator) -> list[tuple[Counterfactual, ...]]:
    """Draws mutations of every plan and measures them, all at once.

    Args:
      runs: of a group, accepted ones.
      chances: of the mutation families.
      generator: the source of every choice.

    Returns:
      Those of each run, in order. Where their calls would be too many, the plans that come first in
      a drawn order have theirs.

    Raises:
      OutOfBudget: the workers cannot be paid.
    """
    drawn: dict[int, list[Mutation]] = {i: [] for i in range(len(runs))}
    room = self._max_calls
    for i in map(int, generator.permutation(len(runs))):
      found = mutations(runs[i].plan, self._format, self._executor.pool, runs[i].offer)
      for mutation in draw_mutations(found, chances, self._each, generator):
        calls = self._repeats * affected(mutation.workflow, mutation.step)
        if calls <= room:
          room -= calls
          drawn[i].append(mutation)
    again = [(i, mutation, repeat) for i, some in drawn.items() for mutation in some
             for repeat in range(self._repeats)]
    results = await run_and_grade(self._executor, self._graders, [
        PlannedRun(runs[i].task, mutation.workflow, _seed(runs[i].seed, repeat),
                   original=runs[i].transcript) for i, mutation, repeat in again])
    refuse_over_budget(transcript for transcript, _ in results)
    measured = iter([
        (transcript, reward(ParsedPlan(mutation.workflow, {}), transcript, grade,
                            self._reward_values))
        for (_, mutation, _), (transcript, grade) in zip(again, results, strict=True)])

    def counterfactual(i: int, mutation: Mutation) -> Counterfactual:
      own = [next(measured) for _ in range(self._repeats)]
      rewards = [found.total for _, found in own if found is not None]
      calls = [call for transcript, _ in own for call in transcript.calls]
      made = [call for call in calls if call.source != "original" and call.outcome != "skipped"]
      return Counterfactual(
          mutation, runs[i].reward - float(np.mean(rewards)) if rewards else None,
          sum((call.usage for call in made), Usage()), len(made),
          sum(call.source == "original" for call in calls))

    return [tuple(counterfactual(i, mutation) for mutation in some) for i, some in drawn.items()]


def affected(workflow: Workflow, changed: int) -> int:
  """How many steps may bring something else after one has changed, itself included."""
  touched = {changed}
  for index, step in enumerate(workflow.steps):
    if touched.intersection(step.sees):
      touched.add(index)
  return len(touched)


def _seed(seed: int, repeat: int) -> int:
  return int(np.random.SeedSequence([seed, repeat]).generate_state(1)[0]) if repeat else seed
