"""Hand-counted metrics of small iterations."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pytest

from conductor_jax.rewards import Reward
from conductor_jax.rollout_metrics import rollout_metrics
from conductor_jax.rollouts import Rollout, Turn
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workers.offer import Offer
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import ParsedPlan, ParseFailure, Step, Workflow

NO_EFFORT = MappingProxyType({})


def rollout(kind: str, workers: tuple[int, ...] | None, outcome: float | None, *, tokens: int = 0,
            cost: float = 0.0, open_lists: bool = False, length: int = 10, attempts: int = 1,
            offered: int = 3, subtask: str = "Solve it.", effort: Mapping[str, float] = NO_EFFORT,
            reward: float | None = None, before: Rollout | None = None) -> Rollout:
  """A rollout whose plan gives one step to each of `workers`; None: it did not parse.

  It is rejected where it has no outcome. `reward` is that of a first round, where a second one has
  a part in it.
  """
  plan, transcript, grade, parts = ParseFailure("no lists", 0), None, None, None
  if outcome is not None:
    parts = Reward(outcome + sum(effort.values()), outcome, **effort)
  if workers is not None:
    workflow = Workflow(tuple(
        Step(worker, subtask, tuple(range(i)) if open_lists else ())
        for i, worker in enumerate(workers)))
    calls = [CallRecord("a", {}, "4", Usage(), 0.0, attempts, "answered",
                        source="endpoint" if attempts else "group")] if workers else []
    plan = ParsedPlan(workflow, {})
    transcript = Transcript(workflow, calls, "4", Usage(tokens, 0, cost, possible_cost=cost / 2))
    grade = None if outcome is None else Grade(outcome == 1.0, "4", "")
  return Rollout(
      turn=Turn(Task("t", "What is t?", "4", kind), Offer(tuple(range(offered))),
                np.zeros(5, np.int32), before),
      completion_tokens=np.zeros(length, np.int32),
      sampler_logprobs=np.zeros(length, np.float32), weight_versions=np.zeros(length, np.int32),
      text="", plan=plan, transcript=transcript, grade=grade, parts=parts,
      reward=parts.total if parts is not None and reward is None else reward)


def of_groups(*groups: list[Rollout], names=("x", "y", "z")) -> dict[str, float]:
  return rollout_metrics([[group] for group in groups], names)


def test_every_metric_of_a_mixed_iteration():
  metrics = of_groups(
      [rollout("a", (0, 1), 1.0, tokens=30, cost=0.5, open_lists=True, length=40),
       rollout("a", None, 0.0, length=20),
       rollout("a", (0,), 0.5, tokens=10, cost=0.25)],
      [rollout("b", (1, 2, 2), 0.5, tokens=40, cost=0.5), rollout("b", (1,), 0.5),
       rollout("b", (0,), None, tokens=10, cost=0.75, attempts=3)],
      [rollout("b", (2,), None), rollout("b", (2,), 1.0, attempts=0)])
  assert metrics == pytest.approx({
      "reward": 3.5 / 6,
      # Squares sum to 1 + 0 + .25 + .25 + .25 + 1.
      "reward_std": (2.75 / 6 - (3.5 / 6) ** 2) ** 0.5,
      "reward_outcome": 3.5 / 6,
      "accuracy": 2 / 6,
      "accuracy/a": 1 / 3,
      "accuracy/b": 1 / 3,
      "parse_rate": 7 / 8,
      "parse_rate/a": 2 / 3,
      "parse_rate/b": 1.0,
      "correct_given_parsed": 2 / 5,
      "correct_given_parsed/a": 1 / 2,
      "correct_given_parsed/b": 1 / 3,
      "steps_per_plan": 10 / 7,
      "steps_per_plan/a": 3 / 2,
      "steps_per_plan/b": 7 / 5,
      # Steps per worker: 3, 3, 4 of 10; 2, 1, 0 of 3; 1, 2, 4 of 7.
      "worker_entropy_bits": 0.6 * 1.7369656 + 0.4 * 1.3219281,
      "worker_entropy_bits/a": 0.9182958,
      "worker_entropy_bits/b": 1.3787835,
      "access_density": 1 / 3,
      "access_density/a": 1.0,
      "access_density/b": 0.0,
      "zero_variance_groups": 2 / 3,
      "zero_variance_groups/a": 0.0,
      "zero_variance_groups/b": 1.0,
      # The second group; the third has a right answer.
      "failed_groups": 1 / 3,
      # The last group's second plan equals its first, which has no verdict.
      "duplicate_plans": 1 / 3,
      "duplicate_plans/a": 0.0,
      "duplicate_plans/b": 1 / 2,
      "wrong_duplicates": 0.0,
      "rejected": 2 / 8,
      "completion_tokens": 120 / 8,
      "worker_tokens": 90 / 8,
      "cost": 2.0 / 8,
      "possible_cost": 1.0 / 8,
      "attempts_per_call": 8 / 6,
      "shared_calls": 1 / 7,
      "share/a/x": 2 / 3,
      "share/a/y": 1 / 3,
      "share/a/z": 0.0,
      "share/b/x": 1 / 7,
      "share/b/y": 2 / 7,
      "share/b/z": 4 / 7,
  })


def test_a_mean_over_nothing_is_left_out_of_the_metrics():
  metrics = of_groups([rollout("a", None, 0.0), rollout("a", None, 0.0)], names=["x"])
  assert metrics["accuracy"] == 0.0 and metrics["zero_variance_groups"] == 1.0
  assert metrics["failed_groups"] == 1.0
  assert not metrics.keys() & {
      "correct_given_parsed", "steps_per_plan", "worker_entropy_bits", "access_density",
      "duplicate_plans", "wrong_duplicates", "share/a/x", "steps_per_plan/a"}
  metrics = of_groups([rollout("a", (0,), None)], names=["x"])
  assert metrics["rejected"] == 1.0 and metrics["share/a/x"] == 1.0
  assert not metrics.keys() & {
      "reward", "reward_std", "reward_outcome", "accuracy", "accuracy/a", "failed_groups",
      "duplicate_plans"}


def test_metrics_are_plain_floats():
  first = rollout("a", (0, 0), 1.0, effort={"cost": -0.1}, offered=2)
  metrics = rollout_metrics(
      [[[first, rollout("a", None, 0.0)], [rollout("a", (0,), 0.5, before=first)]]], ["x"])
  assert {type(value) for value in metrics.values()} == {float}


def test_plans_are_duplicates_only_of_the_same_group_and_down_to_their_subtasks():
  one, two = rollout("a", (0,), 0.5), rollout("a", (0,), 1.0)
  other = rollout("a", (0,), 0.5, subtask="Check it.")
  assert of_groups([one], [two])["accuracy"] == 0.5
  assert "duplicate_plans" not in of_groups([one], [two])
  assert of_groups([one, other])["duplicate_plans"] == 0.0
  # All after the first, so that a group of one plan has 1; unparsed ones are no plans.
  assert of_groups([one, one, one, rollout("a", None, 0.0)])["duplicate_plans"] == 1.0
  assert of_groups([one, other, one, other, one])["duplicate_plans"] == 3 / 4
  assert of_groups([one, one], [one, other])["duplicate_plans"] == 1 / 2


def test_duplicates_are_wrong_by_their_own_answer_and_never_without_a_verdict():
  right, wrong = rollout("a", (0,), 1.0), rollout("a", (0,), 0.5)
  rejected = rollout("a", (0,), None)
  assert of_groups([right] * 4)["wrong_duplicates"] == 0.0
  assert of_groups([wrong] * 4)["wrong_duplicates"] == 1.0
  assert of_groups([right, wrong, wrong, right, right])["wrong_duplicates"] == 1 / 2
  assert of_groups([wrong, right])["wrong_duplicates"] == 0.0
  assert of_groups([wrong, rejected, wrong])["wrong_duplicates"] == 1.0
  assert "wrong_duplicates" not in of_groups([wrong, rejected])
  assert of_groups([wrong] * 2, [right] * 2)["wrong_duplicates"] == 1 / 2


@pytest.mark.parametrize(("group", "failed"), [
    ([("w", 1.0), ("w", 1.0)], 0.0), ([("w", 0.5), ("w", 0.5)], 1.0),
    ([("w", 0.5), ("w", 1.0)], 0.0), ([(None, 0.0), ("w", 0.5)], 0.0),
    ([(None, 0.0), (None, 0.0)], 1.0), ([("w", 0.5), ("w", None)], 1.0)])
def test_a_group_fails_where_all_went_wrong_alike(group, failed):
  rollouts = [rollout("a", (0,) if plan else None, outcome) for plan, outcome in group]
  assert of_groups(rollouts)["failed_groups"] == failed


def test_effort_gives_a_failed_group_variance_and_does_not_mend_it():
  cheap = rollout("a", (0,), 0.5, effort={"cost": -0.01})
  dear = rollout("a", (1,), 0.5, effort={"cost": -0.02})
  metrics = of_groups([cheap, dear])
  assert metrics["zero_variance_groups"] == 0.0 and metrics["failed_groups"] == 1.0


def test_a_group_without_any_verdict_has_not_failed():
  gone, wrong = rollout("a", (0,), None), rollout("a", (0,), 0.5)
  assert of_groups([gone, gone], [wrong, wrong])["failed_groups"] == 1.0


def test_the_parts_of_the_reward_are_means_over_the_accepted_where_they_are_taken():
  metrics = of_groups([
      rollout("a", (0,), 1.0, effort={"cost": -0.25, "latency": -0.5}),
      rollout("a", (0,), 0.5, effort={"cost": -0.125, "latency": 0.0}),
      rollout("a", None, 0.0), rollout("a", (0,), None)])
  assert metrics["reward"] == pytest.approx((0.25 + 0.375 + 0) / 3)
  assert metrics["reward_outcome"] == 0.5
  assert metrics["reward_cost"] == -0.375 / 3 and metrics["reward_latency"] == -0.5 / 3
  assert "reward_tokens" not in metrics


def test_workers_on_offer_are_counted_where_they_are_not_always_all():
  assert "offered_workers" not in of_groups([rollout("a", (0,), 1.0)])
  metrics = of_groups([rollout("a", (0,), 1.0)], [rollout("a", (0,), 1.0, offered=2)])
  assert metrics["offered_workers"] == 2.5


@pytest.fixture(scope="module")
def recursive():
  """Two questions, one of them with a second round, and the metrics of both."""
  right = rollout("a", (0,), 1.0, tokens=10, reward=0.75 + 0.25)
  wrong = rollout("a", (1,), 0.5, tokens=20, cost=0.5, reward=0.75 * 0.5 + 0.25)
  cut = rollout("a", (2,), 0.5)
  failed = rollout("a", None, 0.0)
  second = [
      rollout("a", (), 1.0, before=right, length=7), rollout("a", (), 0.5, before=wrong),
      rollout("a", (0, 2), 1.0, before=wrong, tokens=30, cost=0.25, attempts=2),
      rollout("a", (1,), 0.5, before=right), rollout("a", None, 0.0, before=right),
      rollout("a", (1,), None, before=cut)]
  return rollout_metrics([
      [[right, wrong, cut, failed], second], [[rollout("b", (0,), 1.0), rollout("b", (0,), 0.5)]],
  ], ["x", "y", "z"])


def test_second_rounds_are_counted_apart(recursive):
  assert {name: value for name, value in recursive.items() if name.startswith("round2")} == {
      "round2/accuracy": 2 / 5, "round2/accuracy_before": 3 / 5,
      "round2/reward": pytest.approx((1 + 0.5 + 1 + 0.5 + 0) / 5),
      "round2/parse_rate": 5 / 6, "round2/rejected": 1 / 6,
      # Of five parsed plans two follow a right answer.
      "round2/kept": 2 / 5, "round2/kept_if_right": 1 / 2, "round2/kept_if_wrong": 1 / 3,
      "round2/steps_per_plan": 4 / 3}


def test_the_other_metrics_are_of_first_rounds_but_for_what_the_workers_did(recursive):
  assert recursive["steps_per_plan"] == 1.0 and recursive["parse_rate"] == 5 / 6
  assert recursive["completion_tokens"] == 10.0
  assert recursive["accuracy"] == 2 / 6 and recursive["share/a/z"] == 1 / 3
  assert recursive["worker_tokens"] == 60 / 6 and recursive["cost"] == 0.75 / 6
  assert recursive["attempts_per_call"] == 9 / 8


def test_the_reward_is_what_is_trained_on(recursive):
  assert recursive["reward"] == pytest.approx((1.0 + 0.625 + 0.5 + 0 + 1 + 0.5) / 6)


def test_a_question_that_a_second_round_gets_right_has_not_failed():
  wrong = rollout("a", (0,), 0.5)
  for outcome, failed in ((1.0, 0.0), (0.5, 1.0)):
    later = [rollout("a", (1,), outcome, before=wrong)]
    metrics = rollout_metrics([[[wrong, wrong], later]], ["x", "y", "z"])
    assert metrics["failed_groups"] == failed


def test_a_second_round_that_nobody_came_to_has_no_metrics():
  metrics = rollout_metrics([[[rollout("a", None, 0.0)], []]], ["x", "y", "z"])
  assert not any(name.startswith("round2") for name in metrics)
