"""Results of evaluations that never were."""

from typing import Any

import numpy as np

from conductor_jax.evaluation.item import Item, Key
from conductor_jax.evaluation.results import evaluation_results
from conductor_jax.workflows.workflow import Step, Workflow

WORKERS = ("small", "large", "huge")


def evaluation(
    strategies=("conductor", "best_single_worker", "small"), benchmarks=("gsm8k", "mmlu"), *,
    questions=40, repeats=1, cost=lambda index: 0.001 * (index + 1), accuracy=lambda index: 0.6,
    workers=WORKERS) -> dict[str, Any]:
  """Results in which the strategies get questions right by chance, but always the same ones."""
  generator = np.random.default_rng(5)
  items = []
  for index, name in enumerate(strategies):
    for benchmark in benchmarks:
      for question in range(questions):
        for repeat in range(repeats):
          asked = [0] if name in workers else generator.integers(len(workers), size=2)
          right = bool(generator.random() < accuracy(index))
          plan = Workflow(tuple(Step(int(worker), "") for worker in asked))
          items.append(Item(
              key=Key(name, benchmark, f"t{question}", repeat),
              variant="large" if name == "best_single_worker" else "", question="h",
              plans=(plan,), rights=(right,), right=right, fault=None, extracted=True,
              tokens=100, cost=cost(index), latency=1.5))
  return evaluation_results(
      items, strategies=strategies, benchmarks=benchmarks, workers=workers, seed=0)


def hand_made(**means: dict[str, Any]) -> dict[str, Any]:
  """Results of one benchmark with the given numbers; what is not given is as in most of them."""
  common = {
      "accuracy": 0.5, "accuracy_interval": [0.4, 0.6], "pass_at_k": {},
      "accuracy_by_round": {}, "another_plan": {}, "parse_rate": 1.0,
      "correct_given_parsed": 0.5, "unparsed_answers": 0.0, "steps_per_plan": 1.0,
      "worker_entropy_bits": 0.0, "worker_shares": {"small": 1.0}, "tokens_per_task": 1234.5,
      "cost_per_task": 0.00123456, "latency_median": 1.25, "latency_p95": 4.0, "tasks": 100,
      "items": 100, "rejected": 0}
  strategies = {name: {**common, **changes} for name, changes in means.items()}
  return {
      "strategies": list(means), "benchmarks": ["gsm8k"], "workers": ["small"], "variants": {},
      "by_benchmark": {"gsm8k": {"strategies": strategies, "differences": []}},
      "mean": {"strategies": strategies, "differences": []}}
