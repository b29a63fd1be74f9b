"""Many plans for few questions, or few for many, at as many rollouts an iteration.

    python -m experiments.ablations.group_size --config=configs/quickstart.py \\
        --workdir=runs/group-size

The arms have 4, 8, 16 and 32 rollouts a question, and as many questions an iteration as make up for
it. The config's own group size is among them, and the first one.

The paper (arXiv 2512.04388) has 64 rollouts for each of 4 questions, and no other group size.
"""

from ml_collections import ConfigDict

from conductor_jax.errors import UserError
from experiments.ablations.ablation import Ablation, Arm
from experiments.ablations.grid import run

_SIZES = (4, 8, 16, 32)


def ablation(config: ConfigDict) -> Ablation:
  """
  Raises:
    UserError: the rollouts of an iteration cannot be grouped by one of the sizes.
  """
  own = config.grpo.group_size
  rollouts, arms = config.grpo.prompts * own, []
  for size in (own, *(size for size in _SIZES if size != own)):
    if rollouts % size:
      raise UserError(
          f"--config.grpo.group_size={own} and grpo.prompts={config.grpo.prompts} are {rollouts} "
          f"rollouts an iteration, which groups of {size} cannot share: make it a multiple of "
          f"{max(_SIZES)}")
    arms.append(Arm(f"{size}", {
        "grpo.group_size": size, "grpo.prompts": rollouts // size,
        # 0 is a row for a whole group.
        "grpo.samples_per_row": min(config.grpo.samples_per_row, size)}))
  return Ablation("Rollouts of a question", arms)


if __name__ == "__main__":
  run(ablation)
