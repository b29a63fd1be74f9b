"""A rehearsal on real questions: every part of the road, no one paid, nothing learnt.

The questions come from benchmark files in the hub's columns, such as `DIR/gsm8k/test.jsonl.gz`,
`DIR/mmlu/test.jsonl.gz` and `DIR/math500/test.jsonl`. The workers are simulated frontier models
that know the answers and give them with stated accuracies; the conductor is the quickstart's.

    python -m experiments.train --config=configs/dryrun.py --workdir=runs/dryrun \\
        --config.tasks.path=DIR

Time: about 3 minutes on 2 CPU cores.
"""

from configs.quickstart import get_config as quickstart


def get_config():
  config = quickstart()
  config.tasks.update(dict(source="files", train=960))
  config.pool.source = "frontier"
  config.model.max_positions = 2048
  config.tokenizer.vocab_size = 1536
  config.rollout.update(dict(max_prompt_tokens=512, max_completion_tokens=64))
  config.sft.update(dict(steps=40, prompts=4))
  config.grpo.update(dict(iterations=3, prompts=4, group_size=16))
  config.evaluation.tasks = 48
  return config
