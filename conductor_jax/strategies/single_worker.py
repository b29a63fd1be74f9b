"""One worker answers everything: each worker on its own, and the always-best-worker baseline."""

from collections.abc import Sequence

from conductor_jax.errors import UserError
from conductor_jax.gather import gather_all
from conductor_jax.strategies.strategy import PLAIN_SUBTASK, Attempt, attempt
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.plan_metrics import mean
from conductor_jax.workflows.transcript import refuse_over_budget
from conductor_jax.workflows.workflow import Step, Workflow


class SingleWorker:
  """Gives every task, as it is, to one worker."""

  def __init__(
      self, worker: int, executor: Executor, graders: Graders, name: str | None = None):
    """Args:
      worker: its id in the executor's pool.
      executor: runs the calls.
      graders: judge the answers.
      name: of the strategy; None for the worker's.
    """
    own = executor.pool.workers[worker].name
    self.name, self.variant = (own, "") if name is None else (name, own)
    self.worker = worker
    self._executor = executor
    self._graders = graders

  async def answer(self, task: Task, *, seed: int) -> Attempt:
    workflow = Workflow((Step(self.worker, PLAIN_SUBTASK),))
    return await attempt(self._executor, self._graders, task, workflow, seed=seed)


async def best_single_worker(
    executor: Executor, graders: Graders, tasks: Sequence[Task], *, seed: int
) -> SingleWorker:
  """The worker that does best on the given tasks, which should be training tasks.

  Best is who gets most of them right: a task without a verdict counts against the worker, or one
  that is hardly ever up could win on a few easy tasks. Among equals it is the cheaper per task with
  a verdict, then the lower id.

  Args:
    executor: runs the calls; all workers of its pool are compared.
    graders: judge the answers.
    tasks: what the workers are compared on.
    seed: fixes every answer.

  Returns:
    The strategy "best_single_worker"; its variant is the worker's name.

  Raises:
    OutOfBudget: the calls cannot be paid.
    UserError: no worker has a verdict on any task.
  """
  ranked, errors = [], []
  for worker, spec in enumerate(executor.pool.workers):
    strategy = SingleWorker(worker, executor, graders, "best_single_worker")
    attempts = await gather_all(strategy.answer(task, seed=seed) for task in tasks)
    refuse_over_budget(attempt.transcript for attempt in attempts)
    errors += [f"{spec.name}: {call.error}" for attempt in attempts
               for call in attempt.transcript.calls if call.outcome == "unavailable"]
    accepted = [attempt for attempt in attempts if not attempt.rejected]
    if accepted:
      right = sum(attempt.right for attempt in accepted)
      cost = mean(attempt.transcript.usage.cost for attempt in accepted)
      ranked.append((-right, cost, worker, strategy))
  if not ranked:
    fault = errors[0] if errors else "the grader failed on every answer"
    raise UserError(f"no best single worker: none of {len(executor.pool)} workers has a graded "
                    f"answer to any of {len(tasks)} tasks; {fault}")
  return min(ranked)[-1]
