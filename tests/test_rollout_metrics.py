import numpy as np
import pytest

from conductor_jax.rollouts import Rollout, rollout_metrics
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import ParsedPlan, ParseFailure, Step, Workflow


def rollout(kind: str, workers: tuple[int, ...], reward: float | None, *, tokens: int = 0,
            cost: float = 0.0, open_lists: bool = False, length: int = 10,
            attempts: int = 1) -> Rollout:
  """A rollout whose plan gives one step to each of `workers`; no workers: it did not parse."""
  plan, transcript, grade = ParseFailure("no lists", 0), None, None
  if workers:
    workflow = Workflow(tuple(
        Step(worker, "Solve it.", tuple(range(i)) if open_lists else ())
        for i, worker in enumerate(workers)))
    calls = [CallRecord("a", {}, "4", Usage(), 0.0, attempts, "answered",
                        source="endpoint" if attempts else "group")]
    plan = ParsedPlan(workflow, {})
    transcript = Transcript(workflow, calls, "4", Usage(tokens, 0, cost, possible_cost=cost / 2))
    grade = None if reward is None else Grade(reward == 1.0, "4", "")
  return Rollout(
      task=Task("t", "What is t?", "4", kind), prompt_tokens=np.zeros(5, np.int32),
      completion_tokens=np.zeros(length, np.int32), sampler_logprobs=np.zeros(length, np.float32),
      weight_versions=np.zeros(length, np.int32), text="", plan=plan, transcript=transcript,
      grade=grade, reward=reward)


def test_every_metric_of_a_mixed_iteration():
  groups = [
      [rollout("a", (0, 1), 1.0, tokens=30, cost=0.5, open_lists=True, length=40),
       rollout("a", (), 0.0, length=20),
       rollout("a", (0,), 0.5, tokens=10, cost=0.25)],
      [rollout("b", (1, 2, 2), 0.5, tokens=40, cost=0.5), rollout("b", (1,), 0.5),
       rollout("b", (0,), None, tokens=10, cost=0.75, attempts=3)],
      [rollout("b", (2,), None), rollout("b", (2,), 1.0, attempts=0)],
  ]
  assert rollout_metrics(groups, ["x", "y", "z"]) == pytest.approx({
      "reward": 3.5 / 6,
      # Squares sum to 1 + 0 + .25 + .25 + .25 + 1.
      "reward_std": (2.75 / 6 - (3.5 / 6) ** 2) ** 0.5,
      "accuracy": 2 / 6,
      "accuracy/a": 1 / 3,
      "accuracy/b": 1 / 3,
      "parse_rate": 7 / 8,
      "correct_given_parsed": 2 / 5,
      "steps_per_plan": 10 / 7,
      # Steps per worker: 3, 3, 4 of 10.
      "worker_entropy_bits": 0.6 * 1.7369656 + 0.4 * 1.3219281,
      "access_density": 1 / 3,
      "zero_variance_groups": 2 / 3,
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
  metrics = rollout_metrics([[rollout("a", (), 0.0), rollout("a", (), 0.0)]], ["x"])
  assert metrics["accuracy"] == 0.0 and metrics["zero_variance_groups"] == 1.0
  assert not metrics.keys() & {
      "correct_given_parsed", "steps_per_plan", "worker_entropy_bits", "access_density",
      "share/a/x"}
  metrics = rollout_metrics([[rollout("a", (0,), None)]], ["x"])
  assert metrics["rejected"] == 1.0 and metrics["share/a/x"] == 1.0
  assert not metrics.keys() & {"reward", "reward_std", "accuracy", "accuracy/a"}


def test_metrics_are_plain_floats():
  metrics = rollout_metrics([[rollout("a", (0, 0), 1.0), rollout("a", (), 0.0)]], ["x"])
  assert {type(value) for value in metrics.values()} == {float}
