"""What the items of one strategy add up to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conductor_jax.evaluation.item import Item
from conductor_jax.evaluation.statistics import Estimate, pass_at_k
from conductor_jax.workflows.plan_metrics import (
    mean,
    steps_per_plan,
    worker_entropy_bits,
    worker_shares,
)

Question = tuple[str, str]


def verdicts(items: Iterable[Item]) -> dict[Question, list[bool]]:
  """The verdicts on each question, (benchmark, task); one that has none is left out."""
  found: dict[Question, list[bool]] = {}
  for item in items:
    if item.right is not None:
      found.setdefault((item.key.benchmark, item.key.task), []).append(item.right)
  return found


def question_scores(items: Iterable[Item]) -> dict[Question, float]:
  """The share of right answers to each question, over its repeats with a verdict."""
  return {question: float(np.mean(rights)) for question, rights in verdicts(items).items()}


def interval(estimate: Estimate | None) -> list[float] | None:
  """The ends of an estimate's interval, None of None."""
  return None if estimate is None else [estimate.low, estimate.high]


def summarise(items: Sequence[Item], *, workers: int) -> dict[str, Any]:
  """Numbers on the items of one strategy.

  An item is rejected where an endpoint or the grader failed: there is no verdict on the strategy.

      accuracy               mean over questions of the share of right answers among their items
                             that are not rejected; an unparsed plan counts as wrong
      pass_at_k              by k, mean over questions with as many verdicts: the chance that one
                             of k answers is right
      accuracy_by_round      by number of rounds, from 1 to the most that an item has, accuracy of
                             the answers after so many; nothing where that is 1
      another_plan           "right" and "wrong": of the first answers that are, the share that a
                             second plan with steps followed; nothing where no item has two rounds
      parse_rate             plans that parsed / plans; an item has one a round
      correct_given_parsed   right / (items whose first plan parsed - rejected)
      unparsed_answers       answers in which the grader found none to judge / answers it judged
      steps_per_plan         mean over the plans that parsed and have steps, rejected ones included
      worker_entropy_bits    entropy of the worker ids over all steps of those plans
      worker_shares          share of those steps given to each worker, by id
      tokens_per_task        worker tokens, read and written, / (items - rejected)
      cost_per_task          dollars paid for them, / (items - rejected)
      tasks, items, rejected counts

  Tokens and cost of rejected items are left out: half a run would make a strategy look cheap. What
  the conductor itself reads and writes is not in them.

  Args:
    items: at least one.
    workers: how many workers are on offer.

  Returns:
    JSON types. A mean over nothing (such as the accuracy where all items were rejected) is None.
  """
  accepted = [item for item in items if item.right is not None]
  plans = [plan for item in items for plan in item.plans]
  workflows = [workflow for item in items for workflow in item.workflows]
  judged = [item.extracted for item in items if item.extracted is not None]
  by_question = verdicts(items)
  return {
      "accuracy": mean(question_scores(items).values()),
      "pass_at_k": _pass_at_k(by_question),
      **_by_round(items),
      "parse_rate": mean(plan is not None for plan in plans),
      "correct_given_parsed": mean(
          item.right for item in accepted if item.plans[0] is not None),
      "unparsed_answers": mean(not extracted for extracted in judged),
      "steps_per_plan": steps_per_plan(workflows),
      "worker_entropy_bits": worker_entropy_bits(workflows),
      "worker_shares": worker_shares(workflows, workers),
      "tokens_per_task": mean(item.tokens for item in accepted),
      "cost_per_task": mean(item.cost for item in accepted),
      "tasks": len({(item.key.benchmark, item.key.task) for item in items}),
      "items": len(items),
      "rejected": len(items) - len(accepted),
  }


def _by_round(items: Sequence[Item]) -> dict[str, Any]:
  rounds = max(len(item.plans) for item in items)
  if rounds == 1:
    return {"accuracy_by_round": {}, "another_plan": {}}
  accepted = [item for item in items if item.right is not None]

  def after(n: int) -> float | None:
    return mean(question_scores(
        replace(item, right=item.rights[:n][-1]) for item in accepted).values())

  def again(right: bool) -> float | None:
    return mean(len(item.workflows) > 1 for item in accepted if item.rights[0] is right)

  return {
      "accuracy_by_round": {str(n): after(n) for n in range(1, rounds + 1)},
      "another_plan": {"right": again(True), "wrong": again(False)}}


def latencies(items: Iterable[Item]) -> dict[str, float | None]:
  """Seconds that the workers took to answer, see `Item`: median and 95th percentile.

  Over items that asked any and are not rejected; None where there are none.
  """
  seconds = [item.latency for item in items if item.right is not None and item.latency is not None]
  return {"latency_median": float(np.median(seconds)) if seconds else None,
          "latency_p95": float(np.quantile(seconds, 0.95)) if seconds else None}


def _pass_at_k(by_question: Mapping[Question, Sequence[bool]]) -> dict[str, float]:
  """For k = 1, 2, 4, ... and the most verdicts that a question has; nothing where that is 1."""
  most = max(map(len, by_question.values()), default=0)
  if most < 2:
    return {}
  ks = sorted({2**power for power in range(most.bit_length())} | {most})
  return {str(k): mean(pass_at_k(len(rights), sum(rights), k) for rights in by_question.values()
                       if len(rights) >= k)
          for k in ks}
