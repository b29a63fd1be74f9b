"""Numbers that describe a set of plans, in training and in evaluation alike.

A mean over nothing is None: neither a good value nor a bad one.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from conductor_jax.workflows.workflow import Workflow


def mean(values: Iterable[float]) -> float | None:
  """The arithmetic mean, None of no values."""
  values = list(values)
  return float(np.mean(values)) if values else None


def steps_per_plan(workflows: Sequence[Workflow]) -> float | None:
  """The mean number of steps."""
  return mean(len(workflow.steps) for workflow in workflows)


def worker_shares(workflows: Sequence[Workflow], workers: int) -> list[float] | None:
  """The share of all steps that each of `workers` workers was given."""
  ids = [step.worker for workflow in workflows for step in workflow.steps]
  return (np.bincount(ids, minlength=workers) / len(ids)).tolist() if ids else None


def worker_entropy_bits(workflows: Sequence[Workflow]) -> float | None:
  """Entropy of the empirical distribution of worker ids over all steps, in bits.

  0 when every step goes to one worker, log2(n) when n workers share the steps evenly.
  """
  shares = worker_shares(workflows, workers=0)
  return None if shares is None else entropy_bits(shares)


def entropy_bits(shares: Iterable[float]) -> float:
  """Entropy of a distribution, in bits."""
  # One worker alone gives -0.0; adding 0.0 makes it a plain zero.
  return float(-sum(share * np.log2(share) for share in shares if share > 0)) + 0.0


def access_density(workflows: Sequence[Workflow]) -> float | None:
  """The share of steps after the first that see any earlier step."""
  return mean(bool(step.sees) for workflow in workflows for step in workflow.steps[1:])


def duplicates(workflows: Sequence[Workflow]) -> list[bool]:
  """Of each plan after the first, whether it equals an earlier one, down to its subtasks."""
  seen: set[Workflow] = set()
  found = []
  for workflow in workflows:
    found.append(workflow in seen)
    seen.add(workflow)
  return found[1:]
