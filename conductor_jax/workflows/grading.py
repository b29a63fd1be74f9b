"""Runs workflows on tasks and grades their answers."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from conductor_jax.gather import gather_all
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Grade, GradingError, Task
from conductor_jax.workflows.executor import Executor, RunGroup
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import Workflow

_log = logging.getLogger(__name__)


class PlannedRun(NamedTuple):
  """A workflow that is to be run.

  Attributes:
    task: the question.
    workflow: the plan.
    seed: fixes the run, whatever else runs beside it.
    previous, original: see `Executor.run`.
  """

  task: Task
  workflow: Workflow
  seed: int
  previous: tuple[str, str] | None = None
  original: Transcript | None = None


async def run_and_grade(
    executor: Executor, graders: Graders, runs: Sequence[PlannedRun]
) -> list[tuple[Transcript, Grade | None]]:
  """Runs every workflow on its task, all at once, and grades what comes out.

  Runs on the same question are a group.

  Args:
    executor: runs the workflows; bounds on calls in flight are its client's.
    graders: judge the answers.
    runs: what is to be run.

  Returns:
    One transcript and grade per run, in order. The grade is None where there is no verdict on the
    plan: an endpoint was unavailable, the budget had no room, or the grader failed. A run without
    an answer for any other reason is graded as wrong.
  """
  groups: dict[str, RunGroup] = defaultdict(RunGroup)
  # Long plans begin first: nothing else could make up for their delay.
  order = sorted(range(len(runs)), key=lambda i: -runs[i].workflow.depth)
  results = await gather_all(
      _run_one(executor, graders, runs[i], groups[runs[i].task.question]) for i in order)
  return [result for _, result in sorted(zip(order, results, strict=True), key=itemgetter(0))]


async def _run_one(
    executor: Executor, graders: Graders, planned: PlannedRun, group: RunGroup
) -> tuple[Transcript, Grade | None]:
  task = planned.task
  transcript = await executor.run(
      planned.workflow, task.question, seed=planned.seed, group=group, previous=planned.previous,
      original=planned.original)
  if transcript.unavailable:
    return transcript, None
  if transcript.answer is None:
    outcome = transcript.calls[-1].outcome
    return transcript, Grade(False, None, f"No answer: the last step was {outcome}.")
  try:
    return transcript, await graders.grade(task, transcript.answer)
  except GradingError as fault:
    _log.warning("no verdict on task %s: %s", task.id, fault)
    return transcript, None
