"""A real language model conducts real language models, on a CPU."""

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
  config.workflow.max_steps = 3
  config.rollout.update(dict(
      sampler="vllm", max_prompt_tokens=384, max_completion_tokens=96))
  config.rollout.vllm.arguments = _SERVER
  config.sft.update(dict(steps=30, prompts=2, plans=4, learning_rate=1e-3))
  config.grpo.update(dict(iterations=8, prompts=4, group_size=8))
  config.optimizer.learning_rate = 2e-4
  config.evaluation.tasks = 48
  config.report.rollouts_every = 1
  return config
