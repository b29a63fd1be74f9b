"""Whether a conductor learns to do without some of its workers.

    python -m experiments.ablations.adaptive --config=configs/quickstart.py \\
        --workdir=runs/adaptive

The arms are trained with all workers ("ordinary"); with all of them first and then with a random
subset for every question, as in the paper ("fine-tuned"); with subsets from the start, twice as
long ("from-scratch"); and with all workers for as long, otherwise alike ("longer"). Each is
measured with all workers and without those of `--without`. `--law` says how subsets are drawn, as
conductor_jax/workers/offer.py describes it; by default they are of four workers or more. A model
that is drawn at random is warm-started on lists of one to four in the last two arms, and has an
entropy bonus there.

In the paper (arXiv 2512.04388) a conductor that is fine-tuned in this way adapts to any subset,
open or closed. How subsets are drawn, and for how many iterations, is not published.

In the built-in world, over five seeds of configs/quickstart.py, right answers in percent are

                    all workers      without two
    ordinary        93.3 ± 1.7       52.2 ± 17.0
    longer          91.9 ± 5.1       63.5 ± 10.0
    from-scratch    88.9 ± 10.6      78.8 ± 13.5

Against "longer", which is trained alike but for the subsets, these bring 15.3 ± 14.6 points without
the two workers, and lose 2.9 ± 6.1 with all of them: 11.0 in one seed, which sends one kind of
sorting to the speller and has no rollout left that tries the clerk, and 0.9 in the others. Against
"ordinary" they bring 26.6 ± 19.4 and lose 4.3 ± 10.7. That one names workers by heart, also where
the list lacks them. What "longer" has beside it, its warm start, entropy bonus and iterations, may
be a part of the cure: 11.3 ± 21.4 points without the two. "fine-tuned" never unlearns it where all
rollouts of a question do so, for none is better than another: 95.0 and 67.3 in one seed, after a
warm start on lists of one to three.
"""

from collections.abc import Sequence

from absl import flags
from ml_collections import ConfigDict

from conductor_jax.errors import UserError
from experiments.ablations.ablation import Ablation, Arm, Measurement, has_own_shape
from experiments.ablations.grid import run
from experiments.components import worker_names

# In the arena: the best generalist, and the best specialist of one domain.
_WITHOUT = ("generalist-large", "abacus-large")
_LEAST = 4
# A policy that is drawn at random has to learn first that plans name models of the prompt's list,
# as an instruct model knows. With so few of them there is much to be lost by guessing; with still
# fewer, it draws unevenly from longer lists, and some workers hardly ever.
_WARM_START_MOST = 4
# Keeps a worker in sight that few questions need, and many are not offered.
_ENTROPY = 0.02
# Of the weight of the KL term: who leaves workers out must leave the policy that relied on them.
_KL_AFTERWARDS = 0.1


def ablation(config: ConfigDict, law: str = "", without: Sequence[str] = ()) -> Ablation:
  """
  Args:
    config: the options.
    law: of training's subsets; uniform from four workers on by default.
    without: workers that the reduced pool lacks.

  Raises:
    UserError: there is no worker of a name, or it isn't said who is left out of a pool that is not
      the arena's.
  """
  names = worker_names(config)
  if not without and config.pool.source != "arena":
    raise UserError("--without must name workers that the reduced pool lacks, of "
                    f"{', '.join(names)}")
  without = without or _WITHOUT
  for name in without:
    if name not in names:
      raise UserError(f"--without: there is no worker {name!r}, of {', '.join(names)}")
  law = law or f"uniform:{min(_LEAST, len(names))}-{len(names)}"
  others = tuple(group for group in config.pool.groups if group[0] != "reduced")
  common = {"pool.groups": (
      *others, ("reduced", tuple(name for name in names if name not in without)))}
  anew = common | {"grpo.iterations": 2 * config.grpo.iterations}
  if has_own_shape(config):
    anew |= {"sft.offer": f"uniform:1-{min(_WARM_START_MOST, len(names))}",
             "grpo.entropy_coefficient": _ENTROPY}
  return Ablation(
      f"Adaptive worker selection ({law})",
      (Arm("ordinary", common | {"pool.offer": "all"}),
       Arm("fine-tuned", common | {"pool.offer": law, "grpo.kl_coefficient": (
           config.grpo.kl_coefficient * _KL_AFTERWARDS)}, after="ordinary"),
       Arm("from-scratch", anew | {"pool.offer": law}),
       Arm("longer", anew | {"pool.offer": "all"})),
      (Measurement("full", {"evaluation.offer": "all"}),
       Measurement("reduced", {"evaluation.offer": "groups:reduced"})))


def _main() -> None:
  law = flags.DEFINE_string("law", "", "How training's subsets are drawn.")
  without = flags.DEFINE_list("without", [], "Workers that the reduced pool lacks.")
  run(lambda config: ablation(config, law.value, without.value))


if __name__ == "__main__":
  _main()
