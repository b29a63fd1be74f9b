"""What a training iteration reports about its rollouts."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from conductor_jax.rewards import EFFORTS
from conductor_jax.rollouts import Rollout
from conductor_jax.workflows.plan_metrics import (
    access_density,
    duplicates,
    mean,
    steps_per_plan,
    worker_entropy_bits,
    worker_shares,
)
from conductor_jax.workflows.workflow import Workflow

Metrics = Mapping[str, float | None]


def rollout_metrics(
    questions: Sequence[Sequence[Sequence[Rollout]]], worker_names: Sequence[str]
) -> dict[str, float]:
  """What a training iteration reports about its rollouts.

  Numbers are of first rounds where nothing else is said. Accepted rollouts are those with a reward;
  parsed ones are those whose plan parsed, rejected ones included. A mean over nothing is left out.
  Those with [/kind] are there for all questions and for each kind of task.

      reward, reward_std       mean and standard deviation of what is trained on, over accepted
      reward_outcome           what the answer alone is worth, mean over accepted
      reward_cost, _tokens, _latency, _steps, _dependencies, _efficiency
                               what effort takes from it or adds, likewise; left out where it is
                               always 0
      accuracy[/kind]          right / accepted, an unparsed plan counts as wrong
      parse_rate[/kind]        parsed / all
      correct_given_parsed[/kind]
                               right / (accepted and parsed)
      steps_per_plan[/kind]    over parsed
      worker_entropy_bits[/kind]
                               of the worker ids of all steps, over parsed
      access_density[/kind]    share of steps after the first with an open access list, over parsed
      zero_variance_groups[/kind]
                               share of groups whose accepted rewards do not differ, and so teach
                               nothing; those with fewer than two accepted included
      failed_groups            share of groups in which no answer is right and all outcomes are the
                               same, those of second rounds included; over those with an accepted
      duplicate_plans[/kind]   share of a group's parsed plans after its first that equal an earlier
                               one, mean over groups
      wrong_duplicates         likewise, of those accepted, that equal an earlier one and are wrong
      rejected                 rejected / all
      offered_workers          mean number of workers on offer; left out where it is always all
      completion_tokens        mean length of what the policy wrote, over all
      worker_tokens, cost      tokens (read and written) and dollars of the workers, of all rounds,
                               per first round
      possible_cost            dollars that failed requests may have cost on top, likewise
      attempts_per_call        requests per call that was made, in all rounds
      shared_calls             share of these calls whose answer another rollout of the group got
      share/kind/worker        share of the steps of that kind's plans given to that worker

  Where there are second rounds, these are of them:

      round2/accuracy, round2/reward, round2/parse_rate, round2/rejected
                               as above
      round2/accuracy_before   share of the accepted whose first answer was right
      round2/kept              share of the parsed plans without steps, which keep the first answer
      round2/kept_if_right, round2/kept_if_wrong
                               likewise, of those that follow a right first answer and a wrong one
      round2/steps_per_plan    over the parsed plans that have steps

  Args:
    questions: all rollouts of an iteration: of each question, those of its rounds.
    worker_names: the name of each worker id.
  """
  groups = [rounds[0] for rounds in questions]
  first = [rollout for group in groups for rollout in group]
  later = [rollout for rounds in questions for each in rounds[1:] for rollout in each]
  metrics = {
      **_reward_metrics(first), **_plan_metrics(groups),
      "failed_groups": _mean_of_known(map(_failed, questions)),
      "wrong_duplicates": _mean_of_known(map(_wrong_duplicates, groups)),
      "rejected": mean(rollout.reward is None for rollout in first),
      **_offer_metrics(first, len(worker_names)),
      "completion_tokens": mean(len(rollout.completion_tokens) for rollout in first),
      **_call_metrics([*first, *later], len(first)), **_later_metrics(later)}
  for kind in sorted({rollout.task.kind for rollout in first}):
    own = [group for group in groups if group[0].task.kind == kind]
    metrics |= {f"{name}/{kind}": value for name, value in _plan_metrics(own).items()}
    metrics |= _share_metrics(kind, own, worker_names)
  return {name: value for name, value in metrics.items() if value is not None}


def _reward_metrics(rollouts: Sequence[Rollout]) -> Metrics:
  accepted = _accepted(rollouts)
  rewards = [rollout.reward for rollout in accepted]
  effort = {f"reward_{part}": mean(getattr(rollout.parts, part) for rollout in accepted)
            for part in EFFORTS}
  return {
      "reward": mean(rewards), "reward_std": float(np.std(rewards)) if rewards else None,
      "reward_outcome": mean(rollout.parts.outcome for rollout in accepted),
      **{name: value for name, value in effort.items() if value}}


def _plan_metrics(groups: Sequence[Sequence[Rollout]]) -> Metrics:
  """What is told of all questions and of each kind."""
  rollouts = [rollout for group in groups for rollout in group]
  accepted, workflows = _accepted(rollouts), _workflows(rollouts)
  return {
      "accuracy": mean(rollout.right for rollout in accepted),
      "parse_rate": mean(rollout.workflow is not None for rollout in rollouts),
      "correct_given_parsed": mean(
          rollout.right for rollout in accepted if rollout.workflow is not None),
      "steps_per_plan": steps_per_plan(workflows),
      "worker_entropy_bits": worker_entropy_bits(workflows),
      "access_density": access_density(workflows),
      "zero_variance_groups": mean(
          len({rollout.reward for rollout in group} - {None}) < 2 for group in groups),
      "duplicate_plans": _mean_of_known(
          mean(duplicates(_workflows(group))) for group in groups)}


def _failed(rounds: Sequence[Sequence[Rollout]]) -> bool | None:
  """Whether a question taught nothing because all went wrong; None without a verdict."""
  accepted = _accepted([rollout for each in rounds for rollout in each])
  if not accepted:
    return None
  # Not the rewards: effort would tell apart plans that all fail.
  return not any(rollout.right for rollout in accepted) and len(
      {rollout.parts.outcome for rollout in accepted}) == 1


def _wrong_duplicates(group: Sequence[Rollout]) -> float | None:
  parsed = [rollout for rollout in _accepted(group) if rollout.workflow is not None]
  again = duplicates(_workflows(parsed))
  return mean(repeats and not rollout.right
              for repeats, rollout in zip(again, parsed[1:], strict=True))


def _offer_metrics(rollouts: Sequence[Rollout], workers: int) -> Metrics:
  offered = [len(rollout.turn.offer.workers) for rollout in rollouts]
  return {} if set(offered) <= {workers} else {"offered_workers": mean(offered)}


def _call_metrics(rollouts: Sequence[Rollout], firsts: int) -> Metrics:
  """What the workers did for all these rollouts, per first one where it is an amount."""
  transcripts = [rollout.transcript for rollout in rollouts if rollout.transcript is not None]
  usages = [transcript.usage for transcript in transcripts]
  calls = [call for transcript in transcripts for call in transcript.calls]
  sums = {"worker_tokens": sum(usage.tokens for usage in usages),
          "cost": sum(usage.cost for usage in usages),
          "possible_cost": sum(usage.possible_cost for usage in usages)}
  return {
      **{name: value / firsts if firsts else None for name, value in sums.items()},
      "attempts_per_call": mean(call.attempts for call in calls if call.attempts),
      "shared_calls": mean(call.source == "group" for call in calls)}


def _later_metrics(rollouts: Sequence[Rollout]) -> Metrics:
  """Of second rounds."""
  accepted = _accepted(rollouts)
  parsed = [rollout for rollout in rollouts if rollout.workflow is not None]

  def kept(*after: bool) -> float | None:
    return mean(not rollout.workflow.steps for rollout in parsed
                if rollout.turn.before.right in after)

  metrics = {
      "accuracy": mean(rollout.right for rollout in accepted),
      "accuracy_before": mean(rollout.turn.before.right for rollout in accepted),
      "reward": mean(rollout.reward for rollout in accepted),
      "parse_rate": mean(rollout.workflow is not None for rollout in rollouts),
      "rejected": mean(rollout.reward is None for rollout in rollouts),
      "kept": kept(True, False), "kept_if_right": kept(True), "kept_if_wrong": kept(False),
      "steps_per_plan": steps_per_plan(
          [workflow for workflow in _workflows(rollouts) if workflow.steps])}
  return {f"round2/{name}": value for name, value in metrics.items()}


def _share_metrics(
    kind: str, groups: Sequence[Sequence[Rollout]], worker_names: Sequence[str]) -> Metrics:
  shares = worker_shares(
      [workflow for group in groups for workflow in _workflows(group)], len(worker_names))
  return {} if shares is None else {
      f"share/{kind}/{name}": share for name, share in zip(worker_names, shares, strict=True)}


def _mean_of_known(values: Iterable[float | None]) -> float | None:
  return mean(value for value in values if value is not None)


def _accepted(rollouts: Sequence[Rollout]) -> list[Rollout]:
  return [rollout for rollout in rollouts if rollout.reward is not None]


def _workflows(rollouts: Sequence[Rollout]) -> list[Workflow]:
  return [rollout.workflow for rollout in rollouts if rollout.workflow is not None]
