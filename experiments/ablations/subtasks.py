"""What subtasks in the conductor's own words are worth.

    python -m experiments.ablations.subtasks --config=configs/quickstart.py \\
        --workdir=runs/subtasks

Without them a plan says only who is asked and who sees what, and every worker is asked to answer
the question.

The paper (arXiv 2512.04388) has 88.5 on MATH-500, 92.75 on MMLU, 41.95 on RLPR and 58.62 on
LiveCodeBench without subtasks, against 89.33, 93.14, 42.63 and 64.29 with them: they matter most
where plans are long.
"""

from ml_collections import ConfigDict

from experiments.ablations.ablation import Ablation, Arm
from experiments.ablations.grid import run


def ablation(config: ConfigDict) -> Ablation:
  del config
  return Ablation("Subtasks", (
      Arm("with", {"workflow.subtasks": True}),
      Arm("without", {"workflow.subtasks": False})))


if __name__ == "__main__":
  run(ablation)
