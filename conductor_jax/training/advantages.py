"""How good a rollout is beside the others of its group; on the host, one group at a time."""

from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

Advantage = Literal["std", "mean", "leave-one-out"]


def group_advantages(
    rewards: Float[np.ndarray, " samples"], accepted: Bool[np.ndarray, " samples"],
    advantage: Advantage
) -> Float[np.ndarray, " samples"]:
  """Advantage of each rollout over its group.

      "std"             (r − mean) / std         DeepSeekMath, arXiv 2402.03300, section 4.1.2
      "mean"            r − mean                 Dr. GRPO, arXiv 2503.20783
      "leave-one-out"   r − mean of the others   RLOO, arXiv 2402.14740

  The standard deviation is the population's. A rollout's own reward enters the mean, which makes
  that baseline a little biased; leaving it out mends that, and equals "mean" times n / (n − 1).

  Args:
    rewards: of the group.
    accepted: the others count for nothing and get advantage 0.
    advantage: which of the three.

  Returns:
    float32; all 0 where the accepted rewards do not differ.
  """
  advantages = np.zeros(len(rewards), np.float32)
  if not differs(rewards, accepted):
    return advantages
  values = np.asarray(rewards, np.float64)[accepted]
  centred = values - values.mean()
  if advantage == "std":
    centred /= values.std()
  elif advantage == "leave-one-out":
    centred *= len(values) / (len(values) - 1)
  advantages[accepted] = centred
  return advantages


def differs(
    rewards: Float[np.ndarray, " samples"], accepted: Bool[np.ndarray, " samples"]) -> bool:
  """Whether the accepted rewards of a group differ; where they don't, it has no gradient."""
  values = np.asarray(rewards)[accepted]
  return len(values) > 0 and bool(np.ptp(values) > 0)


def drop_zero_variance(
    rewards: Float[np.ndarray, " samples"], accepted: Bool[np.ndarray, " samples"]
) -> Bool[np.ndarray, " samples"]:
  """Who is accepted of a group: as before, or nobody where the accepted rewards do not differ.

  Its tokens then enter no count and no KL or entropy term either. Source: the dynamic sampling of
  DAPO (arXiv 2503.14476, section 3.2), which also samples other prompts in their place; here the
  batch gets smaller instead.
  """
  return accepted if differs(rewards, accepted) else np.zeros_like(accepted)
