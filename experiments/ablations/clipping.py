"""How the likelihood ratios of GRPO should be bounded.

    python -m experiments.ablations.clipping --config=configs/quickstart.py \\
        --workdir=runs/clipping

The arms clip each token's ratio at 0.8 and 1.2; at 0.8 and 1.28 ("higher", DAPO, arXiv 2503.14476);
at 0.8 and 1.2, and bound the cost of an unwanted token at a ratio of 3 ("dual", arXiv 1912.09729);
and the ratio of whole completions at 0.9997 and 1.0004, with all completions counting for the same
("sequence", GSPO, arXiv 2507.18071).

One update is made with each batch, and strictly on policy all ratios are 1, where no bound acts. So
all arms are trained with rollouts that may be one update old. `clip_fraction_low`, `_high` and
`_dual` in the runs' metrics.jsonl are the shares of tokens that a bound takes the gradient from.

The paper (arXiv 2512.04388) clips at 0.8 and 1.2, and has no such ablation.
"""

from ml_collections import ConfigDict

from experiments.ablations.ablation import Ablation, Arm
from experiments.ablations.grid import run


def ablation(config: ConfigDict) -> Ablation:
  symmetric = {
      "rollout.max_staleness": max(config.rollout.max_staleness, 1), "grpo.importance_cap": 0.0,
      "grpo.ratio": "token", "grpo.clip_low": 0.2, "grpo.clip_high": 0.2, "grpo.dual_clip": 0.0}
  return Ablation("Clipping", (
      Arm("symmetric", symmetric),
      Arm("higher", symmetric | {"grpo.clip_high": 0.28}),
      Arm("dual", symmetric | {"grpo.dual_clip": 3.0}),
      Arm("sequence", symmetric | {
          "grpo.ratio": "sequence", "grpo.aggregation": "sequence", "grpo.clip_low": 3e-4,
          "grpo.clip_high": 4e-4})))


if __name__ == "__main__":
  run(ablation)
