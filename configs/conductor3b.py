"""RL Conductor with a smaller policy: configs/conductor7b.py with Qwen2.5-3B.

    python -m experiments.train --config=configs/conductor3b.py --workdir=runs/conductor3b \\
        --config.model.weights=Qwen2.5-3B-Instruct --config.tasks.path=DIR

The mesh is that of one H100 80 GB; the names of devices of configs/conductor7b.py may stand after a
colon, as in `--config=configs/conductor3b.py:v5p-4`. Whether a step fits:

    python -m experiments.aot --config=configs/conductor3b.py --topology=h100:1

Expected: the paper (arXiv 2512.04388) trains a 3B policy beside the 7B one on the same questions
and workers, to see what the size of the policy is worth; the 7B one has a mean of 72.35 over
MATH-500, MMLU, RLPR and LiveCodeBench. experiments/ablations/model_size.py compares the two.
"""

from configs.conductor7b import get_config as conductor7b


def get_config(devices="h100"):
  config = conductor7b("h200" if devices == "h100" else devices)
  config.model.name = "qwen2.5-3b"
  return config
