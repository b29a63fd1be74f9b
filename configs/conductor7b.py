"""RL Conductor at the paper's size: Qwen2.5-7B, 200 iterations of 4 questions × 64 plans.

    python -m experiments.train --config=configs/conductor7b.py --workdir=runs/conductor7b \\
        --config.model.weights=Qwen2.5-7B-Instruct --config.tasks.path=DIR

`weights` is a folder with the Hugging Face checkpoint, DIR one with the files of GSM8K, MMLU and
MATH-500: 960 training questions at most, as many of each. The values are the paper's (arXiv
2512.04388): AdamW at 1e-6 without weight decay, cosine after 3 % of warm-up, clip 0.2, advantages
over the group's standard deviation, no KL term, temperature 1.

The workers are simulated, and know these three benchmarks. Those of the paper are asked, and paid,
with

    --config.pool.source=paper --config.pool.budget.dollars=2000

and configs/conductor7b_paper.py has the paper's questions too.

The mesh is that of 2 × H100 80 GB. A name after a colon chooses other devices:

    --config=configs/conductor7b.py:v5e-16       16 TPU v5e, as v5e:4x4; on several hosts, so only
                                                 to compile for
    --config=configs/conductor7b.py:v5p-4        4 TPU v5p, as v5p:2x2x1
    --config=configs/conductor7b.py:h200         one GPU of 140 GiB, all weights
    --config=configs/conductor7b.py:h200-lora    the same, adapters of rank 64 beside bfloat16

Whether a step fits is known without the devices; 2 × H100 need 64.2 of 79.1 GiB each:

    python -m experiments.aot --config=configs/conductor7b.py --topology=h100:2

Expected, from the paper, on its own questions and with its workers at 4096 tokens, in percent:

    MATH-500 89.33    MMLU 93.14    RLPR 42.63    LiveCodeBench 64.29    mean 72.35

and a mean of 77.27 over seven benchmarks where the workers may think as long as they like, against
74.78 of GPT-5 alone. Nothing of it has been reproduced here.
"""

from conductor_jax.config import default_config
from conductor_jax.errors import UserError

# A micro-batch has a row of plans for every device.
_VARIANTS = {
    "h100-2": dict(mesh=dict(fsdp=2), grpo=dict(samples_per_row=16, micro_batches=8)),
    "v5e-16": dict(mesh=dict(fsdp=16), grpo=dict(samples_per_row=4, micro_batches=4)),
    "v5p-4": dict(mesh=dict(fsdp=4), grpo=dict(samples_per_row=16, micro_batches=4)),
    "h200": dict(
        mesh=dict(fsdp=1), grpo=dict(samples_per_row=16, micro_batches=16),
        optimizer=dict(mu_dtype="bfloat16")),
    "h200-lora": dict(
        mesh=dict(fsdp=1), grpo=dict(samples_per_row=16, micro_batches=16),
        model=dict(param_dtype="bfloat16", lora_rank=64, lora_alpha=128.0),
        optimizer=dict(learning_rate=1e-5)),
}


def get_config(devices="h100-2"):
  if devices not in _VARIANTS:
    raise UserError(f"--config=configs/conductor7b.py:{devices}: after the colon must be one of "
                    f"{', '.join(_VARIANTS)}")
  config = default_config()
  config.model.name = "qwen2.5-7b"
  config.tasks.update(dict(source="files", train=960, balanced=True))
  config.pool.source = "frontier"
  config.rollout.max_prompt_tokens = 2048
  config.sft.steps = 0
  config.update(_VARIANTS[devices])
  return config
