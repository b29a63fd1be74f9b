"""A conductor that may call itself: fine-tuned with a second round after half of the questions.

    python -m experiments.export --workdir=runs/conductor7b --output=runs/conductor7b/policy
    python -m experiments.train --config=configs/recursive7b.py --workdir=runs/recursive7b \\
        --config.model.weights=runs/conductor7b/policy --config.tasks.path=DIR

Goes on from a trained conductor, configs/conductor7b.py, on the same devices. After the first plan
the conductor sees its answer, and keeps it or writes another plan. The values are the paper's
(arXiv 2512.04388): 20 iterations on 350 questions, a second round for half of each batch, discount
0.25, advantages over each round. Held-out questions get up to two rounds, and more with

    --config.workflow.max_rounds=4 --config.workflow.max_dollars=1.0

Expected, from the paper, in percent: AIME25 66.67, BigCodeBench 40.0, GPQA-Diamond 82.32, mean
63.00, against 66.67, 37.8, 81.31 and 61.93 without recursion.
"""

from configs.conductor7b import get_config as conductor7b


def get_config(devices="h100-2"):
  config = conductor7b(devices)
  config.tasks.train = 350
  config.workflow.max_rounds = 2
  config.rollout.max_prompt_tokens = 4096
  config.grpo.iterations = 20
  # Rows of the second round share no prompt: fewer of them at once take as much room.
  config.grpo.recursion.update(dict(share=0.5, micro_batches=64 // config.mesh.fsdp))
  return config
