"""Measures a strategy on tasks."""

from collections.abc import Sequence
from typing import Any

from conductor_jax.strategies.strategy import Strategy
from conductor_jax.tasks.task import Task
from conductor_jax.workflows.plan_metrics import (
    mean,
    steps_per_plan,
    worker_entropy_bits,
    worker_shares,
)
from conductor_jax.workflows.transcript import refuse_over_budget
from conductor_jax.workflows.workflow import Workflow


async def evaluate(
    strategy: Strategy, tasks: Sequence[Task], *, seed: int, workers: int
) -> dict[str, Any]:
  """Lets a strategy answer the tasks once and counts.

  A task is rejected where an endpoint or the grader failed: there is no verdict on the strategy.

      accuracy               right / (tasks - rejected), an unparsed plan counts as wrong
      accuracy_by_kind       the same per kind of task, kinds in alphabetical order
      parse_rate             plans that parsed / tasks
      correct_given_parsed   right / (plans that parsed - rejected)
      steps_per_plan         mean over the plans that parsed, rejected ones included
      worker_entropy_bits    entropy of the worker ids over all steps of those plans
      worker_shares          share of those steps given to each worker, by id
      tokens_per_task        worker tokens, read and written, / (tasks - rejected)
      cost_per_task          dollars paid for them, / (tasks - rejected)
      tasks, rejected        counts

  Tokens and cost of rejected tasks are left out: half a run would make a strategy look cheap. What
  the conductor itself reads and writes is not in them.

  Args:
    strategy: what is measured.
    tasks: at least one.
    seed: fixes every answer.
    workers: how many workers are on offer.

  Returns:
    JSON types. A mean over nothing (such as the accuracy of a kind whose tasks were all rejected)
    is None.

  Raises:
    OutOfBudget: the workers cannot be paid.
    ValueError: no tasks.
  """
  if not tasks:
    raise ValueError("there is nothing to evaluate on: got no tasks")
  attempts = await strategy.answer(tasks, seed=seed)
  refuse_over_budget(attempt.transcript for attempt in attempts)
  accepted = [attempt for attempt in attempts if not attempt.rejected]
  parsed = [attempt for attempt in attempts if isinstance(attempt.plan, Workflow)]
  workflows = [attempt.plan for attempt in parsed]
  usages = [attempt.transcript.usage for attempt in accepted if attempt.transcript is not None]
  return {
      "accuracy": mean(attempt.right for attempt in accepted),
      "accuracy_by_kind": {
          kind: mean(attempt.right for attempt in accepted if attempt.task.kind == kind)
          for kind in sorted({task.kind for task in tasks})},
      "parse_rate": len(parsed) / len(tasks),
      "correct_given_parsed": mean(
          attempt.right for attempt in parsed if not attempt.rejected),
      "steps_per_plan": steps_per_plan(workflows),
      "worker_entropy_bits": worker_entropy_bits(workflows),
      "worker_shares": worker_shares(workflows, workers),
      "tokens_per_task": sum(u.tokens for u in usages) / len(accepted) if accepted else None,
      "cost_per_task": sum(u.cost for u in usages) / len(accepted) if accepted else None,
      "tasks": len(tasks),
      "rejected": len(attempts) - len(accepted),
  }
