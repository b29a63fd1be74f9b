"""RL Conductor on the paper's questions and with its workers, who are paid.

    python -m experiments.train --config=configs/conductor7b_paper.py --workdir=runs/paper \\
        --config.model.weights=Qwen2.5-7B-Instruct --config.tasks.path=DIR \\
        --config.pool.budget.dollars=2000

Everything else is that of configs/conductor7b.py, with the same names of devices after a colon. The
960 training questions are 240 of each of MMLU, MATH-500, RLPR and LiveCodeBench's first release,
and 100 of each are held out. DIR holds them as

    DIR/mmlu/test.*    DIR/math500/test.*    DIR/rlpr/train.*    DIR/livecodebench/test.*

in any of the forms that README.md lists; --config.tasks.source=hub gets them from the Hugging Face
hub in its place. Programs of the answers to LiveCodeBench are run in a sandbox.
"""

from configs.conductor7b import get_config as conductor7b


def get_config(devices="h100-2"):
  config = conductor7b(devices)
  config.tasks.benchmarks = ("mmlu", "math500", "rlpr", "livecodebench")
  config.pool.source = "paper"
  config.evaluation.tasks = 400
  return config
