"""The tree of options, every one present with its default, and the checks that need no loading.

The defaults are the paper's where it gives a value (RL Conductor, arXiv 2512.04388).
"""

from typing import Any

from ml_collections import ConfigDict

from conductor_jax.errors import UserError

_CHOICES = {
    "model.compute_dtype": ("float32", "bfloat16"),
    "model.remat": ("none", "dots", "full"),
    "tasks.source": ("arena", "files"),
    "pool.source": ("arena", "frontier"),
    "workflow.access": ("binary", "positions"),
    "workflow.context": ("messages", "inlined"),
    "grpo.advantage": ("std", "mean"),
    "grpo.kl_estimator": ("k3", "exact"),
    "sft.decay": ("cosine", "none"),
    "optimizer.decay": ("cosine", "none"),
}

_POSITIVE = (
    "model.hidden_size", "model.intermediate_size", "model.num_layers", "model.num_heads",
    "model.num_kv_heads", "model.head_dim", "model.max_positions", "model.logprob_chunk",
    "tasks.train", "pool.request_timeout", "pool.max_attempts", "workflow.max_steps",
    "rollout.temperature", "rollout.max_prompt_tokens", "rollout.max_completion_tokens",
    "grpo.iterations", "grpo.prompts", "grpo.clip", "optimizer.learning_rate",
    "optimizer.clip_norm", "mesh.data", "mesh.fsdp", "mesh.tensor", "sft.steps", "sft.prompts",
    "sft.plans", "sft.learning_rate", "sft.checkpoint_every", "evaluation.tasks",
    "checkpoint.every", "checkpoint.keep", "report.rollouts_every",
)


def default_config() -> ConfigDict:
  """The whole tree."""
  return ConfigDict({
      # Every random choice of a run follows from it.
      "seed": 0,
      "model": {
          "hidden_size": 3584,
          "intermediate_size": 18944,
          "num_layers": 28,
          "num_heads": 28,
          "num_kv_heads": 4,
          "head_dim": 128,
          "max_positions": 32768,
          "rope_theta": 1e6,
          "norm_eps": 1e-6,
          "tied": False,
          "compute_dtype": "bfloat16",
          # What the backward pass keeps: "none" recomputes nothing, "dots", "full".
          "remat": "full",
          # Tokens whose logits exist at once.
          "logprob_chunk": 2048,
      },
      "tokenizer": {
          # The arena's own BPE is trained at the start; its size.
          "vocab_size": 1024,
      },
      "tasks": {
          # "arena" generates tasks; "files" reads benchmark rows in the hub's columns.
          "source": "arena",
          "path": "",
          "benchmarks": ("gsm8k", "mmlu", "math500"),
          # Of the files; training and held-out tasks are disjoint parts of it.
          "split": "test",
          # Training tasks at most.
          "train": 2400,
      },
      "pool": {
          # "arena": the specialists; "frontier": simulated frontier models that know the answers.
          "source": "arena",
          # Of the local server; 0 takes any free one.
          "port": 0,
          "request_timeout": 60.0,
          "max_attempts": 4,
      },
      "workflow": {
          "max_steps": 5,
          "access": "binary",
          # How a worker is shown earlier answers.
          "context": "messages",
      },
      "reward": {"unparsed": 0.0, "wrong": 0.5, "right": 1.0},
      "rollout": {
          "temperature": 1.0,
          "max_prompt_tokens": 8192,
          "max_completion_tokens": 1024,
      },
      "grpo": {
          "iterations": 200,
          # Questions an iteration, and rollouts a question.
          "prompts": 4,
          "group_size": 64,
          "clip": 0.2,
          # "std" divides by the group's standard deviation, "mean" does not (Dr. GRPO).
          "advantage": "std",
          # Weight of the KL term to the policy that RL started from; 0 loads no reference.
          "kl_coefficient": 0.0,
          # The part of it that is left, after a linear decay, at the last iteration.
          "kl_final_fraction": 1.0,
          # "k3" of the sampled tokens, or the "exact" sum over the vocabulary.
          "kl_estimator": "k3",
      },
      "optimizer": {
          "learning_rate": 1e-6,
          "warmup_fraction": 0.03,
          "decay": "cosine",
          "b1": 0.9,
          "b2": 0.999,
          "weight_decay": 0.0,
          "clip_norm": 1.0,
      },
      # Devices along each axis; their product is the number of devices.
      "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
      "sft": {
          "steps": 300,
          # Tasks a step, and example plans a task.
          "prompts": 16,
          "plans": 4,
          "learning_rate": 2e-3,
          "warmup_fraction": 0.05,
          "decay": "cosine",
          # Steps from one checkpoint to the next.
          "checkpoint_every": 100,
      },
      "evaluation": {
          # Held-out tasks, and training tasks that choose the best single worker.
          "tasks": 300,
          # Of the conductor's plans; 0 is greedy.
          "temperature": 1.0,
      },
      # GRPO iterations from one checkpoint to the next, and how many are kept.
      "checkpoint": {"every": 20, "keep": 3},
      # Iterations from one rollout file to the next.
      "report": {"rollouts_every": 10},
  })


def check_config(config: ConfigDict) -> None:
  """Refuses values that cannot work, before anything is loaded.

  Raises:
    UserError: names the key, its value and what it may be.
  """
  def value(key: str) -> Any:
    node = config
    for part in key.split("."):
      node = node[part]
    return node

  def refuse(key: str, remedy: str) -> None:
    raise UserError(f"--config.{key}={value(key)}: {remedy}")

  for key, choices in _CHOICES.items():
    if value(key) not in choices:
      refuse(key, f"must be one of {', '.join(choices)}")
  for key in _POSITIVE:
    if not value(key) > 0:
      refuse(key, "must be above 0")
  if config.seed < 0:
    refuse("seed", "must be 0 or above")
  if config.grpo.group_size < 2:
    refuse("grpo.group_size", "a group of one has no advantage over itself; 2 at least")
  if config.grpo.kl_coefficient < 0:
    refuse("grpo.kl_coefficient", "must be 0 or above")
  if not 0 <= config.grpo.kl_final_fraction <= 1:
    refuse("grpo.kl_final_fraction", "must be from 0 to 1")
  if config.model.num_heads % config.model.num_kv_heads:
    refuse("model.num_kv_heads", f"must divide model.num_heads={config.model.num_heads}")
  if config.model.head_dim % 2:
    refuse("model.head_dim", "must be even: rotary positions turn pairs")
  for key in ("model.num_heads", "model.num_kv_heads", "model.intermediate_size"):
    if value(key) % config.mesh.tensor:
      refuse(key, f"must be a multiple of mesh.tensor={config.mesh.tensor}")
  if config.model.hidden_size % config.mesh.fsdp:
    refuse("model.hidden_size", f"must be a multiple of mesh.fsdp={config.mesh.fsdp}")
  rows = config.mesh.data * config.mesh.fsdp
  for key in ("grpo.prompts", "sft.prompts"):
    if value(key) % rows:
      refuse(key, f"must be a multiple of mesh.data × mesh.fsdp = {rows}, over which rows spread")
  longest = config.rollout.max_prompt_tokens + config.rollout.max_completion_tokens
  if longest > config.model.max_positions:
    refuse("model.max_positions",
           f"prompt and completion may take {longest} tokens (rollout.max_prompt_tokens + "
           "rollout.max_completion_tokens)")
  if config.tokenizer.vocab_size < 258:
    refuse("tokenizer.vocab_size", "256 bytes and 2 special tokens have to fit in")
  if config.tokenizer.vocab_size % config.mesh.tensor:
    refuse("tokenizer.vocab_size", f"must be a multiple of mesh.tensor={config.mesh.tensor}")
  if not 0 <= config.pool.port < 65536:
    refuse("pool.port", "must be a port, or 0 for any free one")
  if config.tasks.source == "files" and not config.tasks.path:
    refuse("tasks.path", "must name the folder of the benchmark files")
  if config.pool.source == "frontier" and config.tasks.source != "files":
    refuse("pool.source", "the simulated frontier models know tasks.source=files only")
  if config.pool.source == "arena" and config.tasks.source != "arena":
    refuse("pool.source", "the arena's specialists answer tasks.source=arena only")
  for key in ("sft.warmup_fraction", "optimizer.warmup_fraction"):
    if not 0 <= value(key) < 1:
      refuse(key, "must be at least 0 and below 1")
