"""Which metrics of a run are drawn, and with which."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conductor_jax.reporting.plots import Curves, Plot, curves, stacked_seconds

_REWARD = Curves(
    "reward", "Reward and accuracy", "mean over rollouts",
    {"reward": "reward", "accuracy": "accuracy"}, share=True,
    note="Accuracy is the share of right answers among the training rollouts.")
_PARSING = Curves(
    "parsing", "Parsing and correctness", "share",
    {"parse_rate": "plans that parse", "correct_given_parsed": "correct given parsed"}, share=True,
    note="Only the second curve says that plans got better, not just well-formed.")
_STEPS = Curves("steps", "Steps per plan", "steps", {"steps_per_plan": "steps"}, from_zero=True)
_ACCESS = Curves(
    "access", "Open access lists", "share of later steps", {"access_density": "open"}, share=True,
    note="Of the steps after a plan's first: how many see an earlier answer.")
_WORKERS = Curves(
    "workers", "Worker entropy", "bits", {"worker_entropy_bits": "worker entropy"}, from_zero=True,
    note="Of the workers called: 0 is always the same one.")
_MORE = (
    Curves("tokens", "Policy entropy", "nats per token", {"entropy": "entropy"}, from_zero=True),
    Curves("length", "Completion length", "tokens", {"completion_tokens": "tokens"},
           from_zero=True),
    Curves("groups", "Groups without a gradient", "share of groups",
           {"zero_variance_groups": "equal rewards", "failed_groups": "all wrong alike"},
           share=True, note="In the groups of the second curve no answer is right."),
    Curves("duplicates", "Duplicate plans", "share of plans",
           {"duplicate_plans": "equal an earlier one", "wrong_duplicates": "and are wrong"},
           share=True, note="Of a group's plans after its first."),
    Curves("effort", "Taken from the reward", "reward",
           {"reward_cost": "for dollars", "reward_tokens": "for tokens",
            "reward_latency": "for seconds"}, note="Means over rollouts."),
    Curves("offered", "Workers on offer", "workers", {"offered_workers": "workers"},
           from_zero=True, note="A mean over questions."),
    Curves("second", "Second rounds", "mean over rollouts",
           {"round2/accuracy_before": "right before", "round2/accuracy": "right after",
            "round2/reward": "reward", "round2/parse_rate": "plans that parse"}, share=True,
           note="Of the rollouts that a second round follows."),
    Curves("kept", "Answers that a second round keeps", "share of second plans",
           {"round2/kept_if_right": "right ones", "round2/kept_if_wrong": "wrong ones",
            "round2/kept": "all"}, share=True, note="By plans without steps."),
    Curves("second-steps", "Steps per second plan", "steps", {"round2/steps_per_plan": "steps"},
           from_zero=True, note="Of those that have any."),
    Curves("rejected", "Rejected rollouts", "share of rollouts", {"rejected": "rejected"},
           share=True, note="Endpoint or grader failed; masked out of the loss."),
    Curves("loss", "Policy loss", "loss", {"loss": "loss"}),
    Curves("kl", "Divergence and sampler mismatch", "nats",
           {"kl": "KL", "logprob_gap_mean": "mean |Δ log p|", "logprob_gap_max": "max |Δ log p|"},
           log=True, note="Δ log p: the trainer's log-probability less the sampler's."),
    Curves("usage", "Worker tokens", "tokens per rollout", {"worker_tokens": "tokens"},
           from_zero=True, note="Read and written by the workers."),
    Curves("gradient", "Gradient norm", "norm", {"grad_norm": "gradient norm"}, from_zero=True),
    Curves("clipping", "Clipped tokens", "share of tokens",
           {"clip_fraction": "all", "clip_fraction_low": "below", "clip_fraction_high": "above"},
           from_zero=True, note="A bound on the likelihood ratio takes their gradient."),
    Curves("sampler", "Divergence from the sampler", "nats", {"kl_to_sampler": "KL"}, log=True,
           note="Of the policy that sampled the completions, as training sees it."),
    Curves("rollouts", "Time of a group of rollouts", "seconds",
           {"seconds_sampling": "sampling", "seconds_executing": "executing"}, from_zero=True,
           note="A mean; groups overlap each other and, if they may, the training step."),
    Curves("staleness", "Age of the rollouts", "updates",
           {"staleness": "mean", "staleness_max": "oldest"}, from_zero=True,
           note="Updates made since the oldest weights that wrote a group."),
    Curves("speed", "Training speed", "tokens per second", {"tokens_per_second": "tokens"},
           from_zero=True, note="Of the training step alone; padding does not count."),
)
_SFT = (
    Curves("sft-loss", "Warm-start loss", "nats per token", {"loss": "loss"}, from_zero=True),
    Curves("sft-gradient", "Warm-start gradient norm", "norm", {"grad_norm": "gradient norm"},
           from_zero=True),
)
_SECONDS = {"seconds_waiting": "waiting for rollouts", "seconds_training": "training",
            "seconds_publishing": "handing over weights"}


def training_plots(records: Sequence[Mapping[str, Any]]) -> Iterator[Plot | None]:
  """The panels of GRPO, None for those without data.

  Args:
    records: its lines of metrics.jsonl.
  """
  workers = worker_names(records)
  most = ((f"all {len(workers)} workers alike", math.log2(len(workers)))
          if len(workers) > 1 else None)
  yield curves(_REWARD, records, "iteration")
  yield curves(_by_kind("kinds", "Accuracy", "accuracy", "accuracy", records, share=True),
               records, "iteration")
  yield curves(_PARSING, records, "iteration")
  yield curves(_STEPS, records, "iteration")
  yield curves(_by_kind("steps-by-kind", "Steps per plan", "steps", "steps_per_plan", records,
                        from_zero=True), records, "iteration")
  yield curves(_ACCESS, records, "iteration")
  yield curves(_WORKERS, records, "iteration", level=most)
  for panel in _MORE:
    yield curves(panel, records, "iteration")
  yield stacked_seconds("seconds", "Time per iteration", records, _SECONDS, "iteration")


def warm_start_plots(records: Sequence[Mapping[str, Any]]) -> Iterator[Plot | None]:
  """The panels of the warm start, likewise."""
  for panel in _SFT:
    yield curves(panel, records, "step")


def worker_names(records: Sequence[Mapping[str, Any]]) -> list[str]:
  """Every worker that a `share/<kind>/<worker>` metric names: all of them, by id."""
  return list(dict.fromkeys(key.split("/", 2)[2] for record in records for key in record
                            if key.startswith("share/")))


def _by_kind(
    identifier: str, title: str, axis: str, metric: str, records: Sequence[Mapping[str, Any]],
    **form: bool) -> Curves:
  """The panel of a metric with a curve for every kind of task."""
  kinds = sorted({key.removeprefix(f"{metric}/") for record in records for key in record
                  if key.startswith(f"{metric}/")})
  return Curves(identifier, f"{title} by kind of task", axis,
                {f"{metric}/{kind}": kind for kind in kinds}, **form)
