"""Results of an ablation that never was."""

from conductor_jax.reporting.ablation_results import Cell, ablation_results

ARMS, MEASUREMENTS = ("with", "without"), ("full", "reduced")


def numbers(accuracy, **more):
  return {
      "accuracy": accuracy, "parse_rate": 1.0, "correct_given_parsed": accuracy,
      "steps_per_plan": 1.5, "worker_entropy_bits": 2.25, "tokens_per_task": 1234.0,
      "cost_per_task": 0.000125, "rejected": 0, **more}


def results(*cells, title="Subtasks", arms=ARMS, measurements=MEASUREMENTS):
  """Of cells (arm, measurement, seed, numbers)."""
  return ablation_results(
      (Cell(*cell) for cell in cells), title=title, arms=arms, measurements=measurements)


def three_seeds(measurement="full"):
  """Accuracies of 0.80, 0.82 and 0.84 with, and 0.70, 0.75 and 0.71 without."""
  return [(arm, measurement, seed, numbers(accuracy))
          for arm, accuracies in (("with", (0.80, 0.82, 0.84)), ("without", (0.70, 0.75, 0.71)))
          for seed, accuracy in enumerate(accuracies)]
