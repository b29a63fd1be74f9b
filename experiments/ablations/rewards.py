"""What a plan's reward should be, and whether effort can be priced.

    python -m experiments.ablations.rewards --config=configs/quickstart.py --workdir=runs/rewards

Three arms differ in what plans are worth that do not parse, that bring a wrong answer, and that
bring a right one: the paper's values, those of a public code of the same lineage, and nothing for a
plan that only parses. Two more have the paper's values less something for the dollars or the tokens
of the plan's workers, about 0.03 for a step:

              a step of a random plan    0.03 a step
    arena     $0.000036, 23 tokens       800 a dollar, 1.25 a thousand tokens
    others    $0.008, 600 tokens         4 a dollar, 0.05 a thousand tokens

The first row is measured, with the strategy `random_plan`. The second is a third of an answer of
the paper's conductor (arXiv 2512.04388), which takes $0.0238 and 1820 tokens in about three steps.
The paper has no such ablation; its values are 0, 0.5 and 1.

In the built-in world, over five seeds of configs/quickstart.py, plans that dollars are taken off
for have 1.99 ± 0.01 steps on two-hop questions and 1.00 to 1.01 on others, and bring 3.3 ± 1.8
points less, 90.9 ± 2.3 %. These are not lost to missing steps: a fifth to a third of the
calculations and a tenth of the spelling go to the small specialist, which takes a twentieth or a
fifth of the price and is right in 70 % of its answers, not in 97 %. Where all answers of a group
are right, advantages that are divided by its deviation make much of any price. Without the division
(--config.grpo.advantage=mean, and --config.grpo.kl_coefficient=0.075 for advantages as much
smaller) plans with the price bring 91.4 ± 2.4 %, with 1.97 ± 0.02 steps on two-hop questions and
1.00 to 1.03 on others: 1.7 ± 1.7 points less than without it in four seeds. In the fifth it is the
run without a price that never learns the second step, 63.7 against 93.0 %.
"""

from ml_collections import ConfigDict

from experiments.ablations.ablation import Ablation, Arm
from experiments.ablations.grid import run

_ARENA = {"per_dollar": 800.0, "per_thousand_tokens": 1.25}
_OTHERS = {"per_dollar": 4.0, "per_thousand_tokens": 0.05}


def ablation(config: ConfigDict) -> Ablation:
  prices = _ARENA if config.pool.source == "arena" else _OTHERS

  def worth(wrong: float = 0.5, right: float = 1.0, *priced: str) -> dict[str, float]:
    return {"reward.unparsed": 0.0, "reward.wrong": wrong, "reward.right": right,
            "reward.per_second": 0.0,
            **{f"reward.{term}": price if term in priced else 0.0
               for term, price in prices.items()}}

  return Ablation("Rewards", (
      Arm("0-0.5-1", worth()),
      Arm("0-0.5-1.5", worth(right=1.5)),
      Arm("0-0-1", worth(wrong=0.0)),
      Arm("cost", worth(0.5, 1.0, "per_dollar")),
      Arm("tokens", worth(0.5, 1.0, "per_thousand_tokens"))))


if __name__ == "__main__":
  run(ablation)
