"""What examples in the prompt are worth, and where they should come from.

    python -m experiments.ablations.few_shot --config=configs/quickstart.py \\
        --workdir=runs/few-shot

The arms have no examples, four of domains that nothing here is trained on, and four training
questions with plans that know nothing.

The paper (arXiv 2512.04388) found examples outside the training domains best. Without any it has
82.0 on MATH-500, 92.69 on MMLU, 41.5 on RLPR and 54.86 on LiveCodeBench, against 89.33, 93.14,
42.63 and 64.29 with four.
"""

from ml_collections import ConfigDict

from experiments.ablations.ablation import Ablation, Arm, room
from experiments.ablations.grid import run

# Of four examples, in the tokens of a tokenizer of the arena: 120 to 140.
_EXAMPLES = 160


def ablation(config: ConfigDict) -> Ablation:
  # The same room for all, so that they are trained on the same questions.
  common = room(config, _EXAMPLES) | {"workflow.few_shot_file": ""}

  def four(source: str) -> dict:
    return common | {"workflow.few_shot": 4, "workflow.few_shot_source": source}

  return Ablation("Examples in the prompt", (
      Arm("none", four("outside") | {"workflow.few_shot": 0}),
      Arm("outside", four("outside")),
      Arm("training", four("training"))))


if __name__ == "__main__":
  run(ablation)
