"""Whether a conductor that may call itself mends what went wrong in the first round.

    python -m experiments.ablations.recursion --config=configs/quickstart.py \\
        --workdir=runs/recursion

All arms are shown second rounds in their warm start. GRPO has none ("ordinary"), follows half of
the questions with one ("recursive"), or does so in a tenth as many iterations after the ordinary
ones ("fine-tuned", as in the paper). Each is measured with one, two and three rounds. In the
built-in world the archivist loses two of five calls, so that first rounds fail where no plan could
have known.

The paper (arXiv 2512.04388) fine-tunes for 20 iterations after 200. With recursion it has 66.67 on
AIME25, 40.0 on BigCodeBench and 82.32 on GPQA-Diamond, mean 63.00, against 66.67, 37.8, 81.31 and
61.93 without.

In the built-in world, over five seeds of configs/quickstart.py, "recursive" answers with one, two
and three rounds

    all questions                      73.9 ± 3.1 %    80.5 ± 3.7 %    83.3 ± 3.6 %
    those that need the archivist      53.3            65.5            71.1

so the second round brings 6.5 ± 5.5 points, and 12.1 ± 10.1 where the first often fails. Another
plan follows 27.8 ± 7.2 % of the right answers and 70.9 ± 6.8 % of the wrong ones.
"""

from ml_collections import ConfigDict

from experiments.ablations.ablation import (
    Ablation,
    Arm,
    Measurement,
    has_own_shape,
    room,
)
from experiments.ablations.grid import run

_NOISE = (("archivist-medium", 0.4),)
# Of an earlier answer and what is said about it, in tokens of a tokenizer of the arena: 35 to 45.
_PREVIOUS = 96


def ablation(config: ConfigDict) -> Ablation:
  common = _room(config) | {
      "workflow.max_rounds": max(config.workflow.max_rounds, 2), "grpo.recursion.share": 0.0}
  if config.pool.source == "arena":
    common["pool.noise"] = _NOISE
  recursive = common | {"grpo.recursion.share": 0.5}
  iterations = max(config.grpo.iterations // 10, 1)
  return Ablation(
      "Recursion",
      (Arm("ordinary", common), Arm("recursive", recursive),
       Arm("fine-tuned", recursive | {"grpo.iterations": iterations}, after="ordinary")),
      # Nothing is trained in an evaluation, with however many rounds.
      tuple(Measurement(name, {"workflow.max_rounds": rounds, "grpo.recursion.share": 0.0})
            for rounds, name in enumerate(("1-round", "2-rounds", "3-rounds"), start=1)))


def _room(config: ConfigDict) -> dict[str, int]:
  """Changes by which prompts of a second round fit, into the model and into memory."""
  if has_own_shape(config):
    return room(config, _PREVIOUS)
  mesh = config.mesh
  return {
      "rollout.max_prompt_tokens": 2 * config.rollout.max_prompt_tokens,
      # A row for every device: they share no prompt, and take as much room as in a first round.
      "grpo.recursion.micro_batches": max(config.grpo.group_size // (mesh.data * mesh.fsdp), 1)}


if __name__ == "__main__":
  run(ablation)
