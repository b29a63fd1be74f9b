"""What a training iteration reports about its rollouts."""

from collections.abc import Sequence

import numpy as np

from conductor_jax.rollouts import Rollout
from conductor_jax.workflows.plan_metrics import (
    access_density,
    mean,
    steps_per_plan,
    worker_entropy_bits,
    worker_shares,
)
from conductor_jax.workflows.workflow import Workflow


def rollout_metrics(
    questions: Sequence[Sequence[Sequence[Rollout]]], worker_names: Sequence[str]
) -> dict[str, float]:
  """What a training iteration reports about its rollouts.

  Accepted rollouts are those with a reward; parsed ones are those whose plan parsed, rejected
  ones included. A mean over nothing is left out.

      reward, reward_std       mean and standard deviation, over accepted
      accuracy[/kind]          right / accepted, an unparsed plan counts as wrong
      parse_rate               parsed / all
      correct_given_parsed     right / (accepted and parsed)
      steps_per_plan           over parsed
      worker_entropy_bits      of the worker ids of all steps, over parsed
      access_density           share of steps after the first with an open access list, over parsed
      zero_variance_groups     share of groups whose accepted rewards do not differ, and so teach
                               nothing; those with fewer than two accepted included
      rejected                 rejected / all
      completion_tokens        mean length of what the policy wrote, over all
      worker_tokens, cost      tokens (read and written) and dollars of the workers, mean over all
      possible_cost            dollars that failed requests may have cost on top, likewise
      attempts_per_call        requests per call that was made
      shared_calls             share of the calls whose answer another rollout of the group got
      share/kind/worker        share of the steps of that kind's plans given to that worker

  Args:
    questions: all rollouts of an iteration: of each question, those of its rounds.
    worker_names: the name of each worker id.
  """
  groups = [first for first, *_ in questions]
  rollouts = [rollout for group in groups for rollout in group]
  accepted = [rollout for rollout in rollouts if rollout.reward is not None]
  rewards = [rollout.reward for rollout in accepted]
  workflows = _workflows(rollouts)
  transcripts = [rollout.transcript for rollout in rollouts if rollout.transcript is not None]
  usages = [transcript.usage for transcript in transcripts]
  calls = [call for transcript in transcripts for call in transcript.calls]
  metrics = {
      "reward": mean(rewards),
      "reward_std": float(np.std(rewards)) if rewards else None,
      "accuracy": mean(rollout.right for rollout in accepted),
      "parse_rate": mean(rollout.workflow is not None for rollout in rollouts),
      "correct_given_parsed": mean(
          rollout.right for rollout in accepted if rollout.workflow is not None),
      "steps_per_plan": steps_per_plan(workflows),
      "worker_entropy_bits": worker_entropy_bits(workflows),
      "access_density": access_density(workflows),
      "zero_variance_groups": mean(
          len({rollout.reward for rollout in group} - {None}) < 2 for group in groups),
      "rejected": mean(rollout.reward is None for rollout in rollouts),
      "completion_tokens": mean(len(rollout.completion_tokens) for rollout in rollouts),
      "worker_tokens": sum(usage.tokens for usage in usages) / len(rollouts) if rollouts else None,
      "cost": sum(usage.cost for usage in usages) / len(rollouts) if rollouts else None,
      "possible_cost": (
          sum(usage.possible_cost for usage in usages) / len(rollouts) if rollouts else None),
      "attempts_per_call": mean(call.attempts for call in calls if call.attempts),
      "shared_calls": mean(call.source == "group" for call in calls),
  }
  for kind in sorted({rollout.task.kind for rollout in rollouts}):
    metrics[f"accuracy/{kind}"] = mean(
        rollout.right for rollout in accepted if rollout.task.kind == kind)
    shares = worker_shares(
        _workflows([rollout for rollout in rollouts if rollout.task.kind == kind]),
        len(worker_names))
    if shares is not None:
      for name, share in zip(worker_names, shares, strict=True):
        metrics[f"share/{kind}/{name}"] = share
  return {name: value for name, value in metrics.items() if value is not None}


def _workflows(rollouts: Sequence[Rollout]) -> list[Workflow]:
  return [rollout.workflow for rollout in rollouts if rollout.workflow is not None]
