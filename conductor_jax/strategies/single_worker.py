"""One worker answers everything: each worker on its own, and the always-best-worker baseline."""

from collections.abc import Sequence

from conductor_jax.errors import UserError
from conductor_jax.gather import gather_all
from conductor_jax.strategies.strategy import Attempt, attempt, task_offer
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Task
from conductor_jax.workers.offer import OfferLaw
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.plan_metrics import mean
from conductor_jax.workflows.transcript import refuse_over_budget
from conductor_jax.workflows.workflow import PLAIN_SUBTASK, Step, Workflow


class SingleWorker:
  """Gives every task, as it is, to one worker."""

  def __init__(self, worker: int, executor: Executor, graders: Graders):
    """Args:
      worker: its id in the executor's pool.
      executor: runs the calls.
      graders: judge the answers.
    """
    self.name, self.variant = executor.pool.workers[worker].name, ""
    self._worker = worker
    self._executor = executor
    self._graders = graders

  async def answer(self, task: Task, *, seed: int) -> Attempt:
    workflow = Workflow((Step(self._worker, PLAIN_SUBTASK),))
    return await attempt(self._executor, self._graders, task, workflow, seed=seed)


class BestSingleWorker:
  """Gives every task, as it is, to the best of the workers that it is offered.

  Attributes:
    ranking: ids in the pool, the best worker first.
  """

  def __init__(
      self, ranking: Sequence[int], executor: Executor, graders: Graders, offers: OfferLaw):
    """Args:
      ranking: of workers, so many that one of them is always on offer.
      executor: runs the calls.
      graders: judge the answers.
      offers: which workers a question is offered.
    """
    self.ranking = tuple(ranking)
    self.name = "best_single_worker"
    self.variant = " > ".join(executor.pool.workers[worker].name for worker in self.ranking)
    self._executor = executor
    self._graders = graders
    self._offers = offers

  async def answer(self, task: Task, *, seed: int) -> Attempt:
    offer = task_offer(self._offers, task, seed)
    best = next(worker for worker in self.ranking if worker in offer.workers)
    workflow = Workflow((Step(best, PLAIN_SUBTASK),))
    return await attempt(self._executor, self._graders, task, workflow, seed=seed, offer=offer)


async def best_single_worker(
    executor: Executor, graders: Graders, tasks: Sequence[Task], *, offers: OfferLaw, seed: int
) -> BestSingleWorker:
  """Ranks the workers that can be on offer on the given tasks, which should be training tasks.

  Best is who gets most of them right: a task without a verdict counts against the worker, or one
  that is hardly ever up could win on a few easy tasks. Among equals it is the cheaper per task with
  a verdict, then the lower id.

  Args:
    executor: runs the calls.
    graders: judge the answers.
    tasks: what the workers are compared on.
    offers: which workers a question is offered.
    seed: fixes every answer.

  Raises:
    OutOfBudget: the calls cannot be paid.
    UserError: no worker has a verdict on any task.
  """
  ranked, errors = [], []
  offered = offers.whole.workers
  for worker in offered:
    spec, strategy = executor.pool.workers[worker], SingleWorker(worker, executor, graders)
    attempts = await gather_all(strategy.answer(task, seed=seed) for task in tasks)
    refuse_over_budget(attempt.transcript for attempt in attempts)
    errors += [f"{spec.name}: {call.error}" for attempt in attempts
               for call in attempt.transcript.calls if call.outcome == "unavailable"]
    accepted = [attempt for attempt in attempts if not attempt.rejected]
    right = sum(attempt.right for attempt in accepted)
    cost = mean(attempt.transcript.usage.cost for attempt in accepted)
    # A worker without any verdict is the last resort.
    ranked.append((not accepted, -right, cost or 0.0, worker))
  if all(without for without, *_ in ranked):
    fault = errors[0] if errors else "the grader failed on every answer"
    raise UserError(f"no best single worker: none of {len(offered)} workers has a graded "
                    f"answer to any of {len(tasks)} tasks; {fault}")
  ranking = [worker for *_, worker in sorted(ranked)]
  # Nobody behind one who is always there is ever asked.
  asked = next((place + 1 for place, worker in enumerate(ranking) if worker in offers.always),
               len(ranking))
  return BestSingleWorker(ranking[:asked], executor, graders, offers)
