"""Runs workflows on tasks and grades their answers."""

import logging
from collections.abc import Sequence

from conductor_jax.gather import gather_all
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Grade, GradingError, Task
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import Workflow

_log = logging.getLogger(__name__)


async def run_and_grade(
    executor: Executor, graders: Graders, runs: Sequence[tuple[Task, Workflow, int]]
) -> list[tuple[Transcript, Grade | None]]:
  """Runs every workflow on its task, all at once, and grades what comes out.

  Args:
    executor: runs the workflows; bounds on calls in flight are its client's.
    graders: judge the answers.
    runs: (task, workflow, seed). A seed fixes its run, whatever else runs beside it.

  Returns:
    One transcript and grade per run, in order. The grade is None where there is no verdict on the
    plan: an endpoint was unavailable, or the grader failed. A run without an answer for any other
    reason is graded as wrong.
  """
  return await gather_all(_run_one(executor, graders, *run) for run in runs)


async def _run_one(
    executor: Executor, graders: Graders, task: Task, workflow: Workflow, seed: int
) -> tuple[Transcript, Grade | None]:
  transcript = await executor.run(workflow, task.question, seed=seed)
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
