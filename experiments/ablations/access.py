"""How access lists should be written, and what they are worth to a trained conductor.

    python -m experiments.ablations.access --config=configs/quickstart.py --workdir=runs/access

The arms open all earlier steps or none, those that a list names by position, or never any. Each
trained conductor is measured as it is, and with the access lists of its plans emptied before they
run.

The paper (arXiv 2512.04388) found lists of positions no better: 88.67 on MATH-500, 93.55 on MMLU,
42.28 on RLPR and 61.24 on LiveCodeBench, against 89.33, 93.14, 42.63 and 64.29 with all or none.

In the built-in world five conductors of configs/quickstart.py answer 91.2 ± 7.0 % of the two-hop
questions, and none with their lists emptied; other kinds need one step, and lose nothing.
"""

from ml_collections import ConfigDict

from experiments.ablations.ablation import Ablation, Arm, Measurement
from experiments.ablations.grid import run


def ablation(config: ConfigDict) -> Ablation:
  del config
  return Ablation(
      "Access lists",
      tuple(Arm(form, {"workflow.access": form}) for form in ("binary", "positions", "none")),
      (Measurement("as-written"),
       Measurement("emptied", strategy="conductor_without_access")))


if __name__ == "__main__":
  run(ablation)
