"""The tree of options, every one present with its default, and the checks that need no loading.

The defaults are the paper's where it gives a value (RL Conductor, arXiv 2512.04388).
"""

from collections.abc import Callable
from typing import Any

from ml_collections import ConfigDict

from conductor_jax.errors import UserError
from conductor_jax.models.lora import TARGETS as LORA_TARGETS
from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.workers.pools import listed_pool, open_pool

_CHOICES = {
    "model.compute_dtype": ("float32", "bfloat16"),
    "model.param_dtype": ("float32", "bfloat16"),
    "model.remat": ("none", "dots", "full"),
    "model.attention": ("auto", "blockwise", "splash", "cudnn"),
    "optimizer.mu_dtype": ("float32", "bfloat16"),
    "rollout.sampler": ("jax", "vllm"),
    "rollout.vllm.dtype": ("bfloat16", "float32", "float16"),
    "tasks.source": ("arena", "files"),
    "pool.source": ("arena", "frontier", "vllm", "paper", "open", "listed"),
    "pool.vllm.dtype": ("bfloat16", "float32", "float16"),
    "workflow.access": ("binary", "positions"),
    "pool.journal.mode": ("record", "replay", "replay-or-record"),
    "workflow.context": ("messages", "inlined"),
    "grpo.advantage": ("std", "mean", "leave-one-out"),
    "grpo.aggregation": ("token", "sequence", "constant"),
    "grpo.ratio": ("token", "sequence"),
    "grpo.kl_estimator": ("k1", "k2", "k3", "exact"),
    "sft.decay": ("cosine", "none"),
    "optimizer.decay": ("cosine", "none"),
}

_POSITIVE = (
    "model.hidden_size", "model.intermediate_size", "model.num_layers", "model.num_heads",
    "model.num_kv_heads", "model.head_dim", "model.max_positions", "model.logprob_chunk",
    "tasks.train", "pool.request_timeout", "pool.connect_timeout", "pool.max_attempts",
    "pool.longest_wait", "pool.max_in_flight", "pool.breaker_failures", "pool.breaker_cooldown",
    "pool.vllm.max_model_len", "pool.vllm.max_tokens", "workflow.max_steps", "rollout.temperature",
    "rollout.max_prompt_tokens", "rollout.max_completion_tokens",
    "rollout.vllm.start_timeout", "rollout.vllm.request_timeout", "rollout.vllm.sync_timeout",
    "grpo.iterations", "grpo.prompts", "grpo.micro_batches", "grpo.clip_low", "grpo.clip_high",
    "grpo.entropy_rate", "grpo.entropy_maximum", "optimizer.learning_rate", "optimizer.clip_norm",
    "mesh.data", "mesh.fsdp", "mesh.tensor", "sft.prompts", "sft.plans",
    "sft.micro_batches", "sft.learning_rate", "sft.checkpoint_every", "evaluation.tasks",
    "checkpoint.every", "checkpoint.keep", "report.rollouts_every",
)

_NOT_NEGATIVE = (
    "seed", "model.lora_rank", "pool.latency", "pool.read_timeout", "pool.budget.dollars",
    "pool.budget.tokens", "pool.budget.calls", "workflow.deadline", "rollout.max_staleness",
    "rollout.extra_groups", "sft.steps", "grpo.samples_per_row", "grpo.kl_coefficient",
    "grpo.entropy_coefficient", "grpo.entropy_target",
)


def default_config() -> ConfigDict:
  """The whole tree."""
  return ConfigDict({
      # Every random choice of a run follows from it.
      "seed": 0,
      "model": {
          # A folder with a Hugging Face checkpoint, or a GGUF file: shape, weights and tokenizer.
          "weights": "",
          # A shape by its name, such as "qwen2.5-7b", with weights that are drawn from the seed.
          "name": "",
          # The shape where neither of the two is given.
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
          # Of the parameters as they are stored. Trained ones stand still in bfloat16 at a small
          # learning rate: it is meant for what lies frozen beside adapters.
          "param_dtype": "float32",
          # What the backward pass keeps: "none" recomputes nothing, "dots" keeps the results of
          # attention, gate and up, "full" recomputes every layer.
          "remat": "full",
          # Of training: XLA's "blockwise", TPUs' "splash", NVIDIA GPUs' "cudnn"; "auto" takes what
          # suits the platform.
          "attention": "auto",
          # Rank of adapters that are trained in place of the weights (LoRA); 0 for none. Their
          # product is scaled by alpha / rank.
          "lora_rank": 0,
          "lora_alpha": 32.0,
          "lora_targets": ("query", "key", "value", "output", "gate", "up", "down"),
          # Tokens whose logits exist at once.
          "logprob_chunk": 2048,
      },
      "tokenizer": {
          # Where there are no model.weights a BPE is trained at the start; its size.
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
          # "arena": the specialists; "frontier": simulated frontier models that know the answers;
          # "vllm": a language model behind a server that the run starts, as `vllm` says; "paper":
          # the paper's seven workers, at their vendors; "open": open models behind vLLM servers
          # that are running, as `open` says; "listed": the `workers`.
          "source": "arena",
          # Of the local server; 0 takes any free one.
          "port": 0,
          # Seconds that a simulated worker takes to answer.
          "latency": 0.0,
          # Seconds that one request may take in all, for its connection, and without a byte; 0 of
          # the last is no bound of its own.
          "request_timeout": 600.0,
          "connect_timeout": 10.0,
          "read_timeout": 0.0,
          # Requests of a call, and seconds that bound the wait for another one, whatever the
          # endpoint asks for.
          "max_attempts": 4,
          "longest_wait": 60.0,
          # Requests to all workers at once; each worker has a limit of its own beside it.
          "max_in_flight": 1024,
          # Requests in a row after which an endpoint is taken to be down, and seconds until it is
          # probed.
          "breaker_failures": 10,
          "breaker_cooldown": 1.0,
          # What a run may spend in its life, 0 for no limit; when it is spent, the run stops at a
          # checkpoint, and goes on with a higher one.
          "budget": {
              "dollars": 0.0,
              "tokens": 0,
              "calls": 0,
              # The same for single workers, such as ("gpt-5", "dollars", 50.0).
              "workers": (),
          },
          # Where requests and answers are written. "record" pays for every call, but not again for
          # what the run had before it was interrupted; "replay" pays for nothing and takes all
          # answers from the journal; "replay-or-record" pays for those that are not in it.
          "journal": {
              "mode": "record",
              # "" is journal.sqlite in the work directory. In another one, what others have spent
              # stands beside this run's, so it cannot be had with a budget.
              "path": "",
          },
          # Workers that are one model, each with a temperature of its own.
          "vllm": {
              # A folder that vLLM reads, or a GGUF file, as in model.weights.
              "weights": "",
              "dtype": "bfloat16",
              # The longest conversation in tokens, and the longest answer.
              "max_model_len": 2048,
              "max_tokens": 512,
              # Further arguments of the server.
              "arguments": (),
              # (name, temperature) of each.
              "workers": (),
          },
          "open": {
              # (model, endpoint) of each server, such as ("google/gemma-3-27b-it",
              # "http://127.0.0.1:8000/v1").
              "urls": (),
          },
          # A mapping of the fields of each, such as {"name": "solver", "model": "llama-3.3-70b",
          # "base_url": "http://127.0.0.1:8000/v1", "limits": {"concurrent": 8}}; all that there are
          # stand in workers/pool.py.
          "workers": (),
      },
      "workflow": {
          "max_steps": 5,
          "access": "binary",
          # How a worker is shown earlier answers.
          "context": "messages",
          # Seconds that a workflow may take; 0 for any.
          "deadline": 0.0,
          # Whether plans of a group that begin with the same call share its answer.
          "share_identical_calls": False,
      },
      "reward": {"unparsed": 0.0, "wrong": 0.5, "right": 1.0},
      "rollout": {
          # "jax" decodes with the trainer's own model, "vllm" asks servers beside it.
          "sampler": "jax",
          "temperature": 1.0,
          "max_prompt_tokens": 8192,
          "max_completion_tokens": 1024,
          # Updates that a rollout may lag behind the weights that it trains. 0 is strictly on
          # policy; above, rollouts are collected while a step trains.
          "max_staleness": 0,
          # Groups of rollouts that may be begun in place of late ones.
          "extra_groups": 0,
          "vllm": {
              # The Python of vLLM's environment, whose server the run starts and ends ...
              "python": "",
              # ... or servers that are running, such as ("http://127.0.0.1:8000",).
              "urls": (),
              # Of the run's own server; 0 takes any free one.
              "port": 0,
              "dtype": "bfloat16",
              # More of the server's own options, such as ("--enforce-eager",).
              "arguments": (),
              # New weights are handed over here: in memory, or on a disk that all servers see.
              "weights_folder": "/dev/shm",
              # Seconds for the server to start, for a completion, and for taking new weights.
              "start_timeout": 600.0,
              "request_timeout": 600.0,
              "sync_timeout": 120.0,
              # The server sleeps while the trainer uses the GPU that they share.
              "share_device": False,
          },
      },
      "grpo": {
          "iterations": 200,
          # Questions an iteration, and rollouts a question.
          "prompts": 4,
          "group_size": 64,
          # Rollouts of a question that share a row, and so its prompt; 0 for all of them. Rows are
          # what is spread over devices and micro-batches.
          "samples_per_row": 0,
          # Parts that a batch's rows are worked off in, one after the other.
          "micro_batches": 1,
          # "std" divides by the group's standard deviation, "mean" does not (Dr. GRPO);
          # "leave-one-out" leaves a rollout out of the mean that it is compared with (RLOO).
          "advantage": "std",
          # Masks out groups whose rewards are all equal, from counts and the KL term too.
          "drop_zero_variance": False,
          # The mean over all "token"s (DAPO), over each "sequence" and then over sequences, or
          # with the "constant" rollout.max_completion_tokens as every length (Dr. GRPO).
          "aggregation": "token",
          # Likelihood ratios of each "token", or of the whole "sequence" (GSPO).
          "ratio": "token",
          # How far a ratio may fall and rise.
          "clip_low": 0.2,
          "clip_high": 0.2,
          # Bounds the cost of an unwanted token whose ratio is above it; 0 is off.
          "dual_clip": 0.0,
          # Of the weights of the trainer's policy against the sampler's; 0 is off, and takes the
          # ratio against the sampler instead.
          "importance_cap": 0.0,
          # Weight of the KL term to the policy that RL started from; 0 loads no reference.
          "kl_coefficient": 0.0,
          # The part of it that is left, after a linear decay, at the last iteration.
          "kl_final_fraction": 1.0,
          # "k1", "k2" or "k3" of the sampled tokens, or the "exact" sum over the vocabulary. As a
          # loss, k1 has an expected gradient of zero.
          "kl_estimator": "k3",
          # Weight of the entropy bonus; where it starts if it is steered.
          "entropy_coefficient": 0.0,
          # Entropy in nats per token that the weight is steered to; 0 keeps the weight.
          "entropy_target": 0.0,
          # How far it moves in an iteration, and the most that it may be.
          "entropy_rate": 0.005,
          "entropy_maximum": 0.1,
      },
      "optimizer": {
          "learning_rate": 1e-6,
          "warmup_fraction": 0.03,
          "decay": "cosine",
          "b1": 0.9,
          "b2": 0.999,
          "weight_decay": 0.0,
          "clip_norm": 1.0,
          # Of AdamW's first moment.
          "mu_dtype": "float32",
      },
      # Devices along each axis; their product is the number of devices.
      "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
      "sft": {
          # 0 starts GRPO from the model as it is.
          "steps": 300,
          # Tasks a step, and example plans a task.
          "prompts": 16,
          "plans": 4,
          # Parts that a batch's rows are worked off in, one after the other.
          "micro_batches": 1,
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
  for key in _NOT_NEGATIVE:
    if not value(key) >= 0:
      refuse(key, "must be 0 or above")
  _check_grpo(config, refuse)
  _check_rollout(config, refuse)
  if config.model.num_heads % config.model.num_kv_heads:
    refuse("model.num_kv_heads", f"must divide model.num_heads={config.model.num_heads}")
  if config.model.head_dim % 2:
    refuse("model.head_dim", "must be even: rotary positions turn pairs")
  if not set(config.model.lora_targets) <= set(LORA_TARGETS) or not config.model.lora_targets:
    refuse("model.lora_targets", f"must be some of {', '.join(LORA_TARGETS)}")
  samples_per_row = config.grpo.samples_per_row or config.grpo.group_size
  rows_of_a_prompt = {"grpo": config.grpo.group_size // samples_per_row}
  if config.sft.steps:
    rows_of_a_prompt["sft"] = 1
  for phase, rows in rows_of_a_prompt.items():
    micro_batches = value(f"{phase}.micro_batches")
    parts = config.mesh.data * config.mesh.fsdp * micro_batches
    if value(f"{phase}.prompts") * rows % parts:
      each = f" of {rows} rows each" if rows > 1 else ""
      refuse(f"{phase}.prompts",
             f"prompts{each} cannot be spread evenly: rows must be a multiple of mesh.data × "
             f"mesh.fsdp × {phase}.micro_batches = {parts}")
  if config.tokenizer.vocab_size < 258:
    refuse("tokenizer.vocab_size", "256 bytes and 2 special tokens have to fit in")
  for key in ("pool.port", "rollout.vllm.port"):
    if not 0 <= value(key) < 65536:
      refuse(key, "must be a port, or 0 for any free one")
  if not all(map(_is_limit, config.pool.budget.workers)):
    refuse("pool.budget.workers",
           "must be triples of a worker's name, dollars, tokens or calls, and a limit above 0, "
           "such as (('gpt-5', 'dollars', 50.0),)")
  budget = config.pool.budget
  if config.pool.journal.path and (
      budget.dollars or budget.tokens or budget.calls or budget.workers):
    refuse("pool.journal.path", "a budget counts what is in the run's own journal: leave the path "
           "empty, or set no pool.budget")
  if config.pool.source == "frontier" and config.tasks.source != "files":
    refuse("pool.source", "the simulated frontier models know tasks.source=files only")
  if config.pool.source == "arena" and config.tasks.source != "arena":
    refuse("pool.source", "the arena's specialists answer tasks.source=arena only")
  if config.pool.source == "vllm":
    _check_vllm_pool(config, refuse)
  if config.pool.source == "open":
    _check_open_pool(config, refuse)
  if config.pool.source == "listed":
    _check_listed_pool(config, refuse)
  for key in ("sft.warmup_fraction", "optimizer.warmup_fraction"):
    if not 0 <= value(key) < 1:
      refuse(key, "must be at least 0 and below 1")


def check_shape(config: ConfigDict, shape: Qwen2Config) -> None:
  """Refuses a mesh that does not divide the model, and sequences that are too long for it.

  Args:
    config: the options.
    shape: of the configured model.

  Raises:
    UserError: names the key, its value and what it may be.
  """
  mesh = config.mesh
  widths = {
      "tensor": {"num_heads": shape.num_heads, "num_kv_heads": shape.num_kv_heads,
                 "intermediate_size": shape.intermediate_size},
      "fsdp": {"hidden_size": shape.hidden_size},
      "tensor × fsdp": {"num_heads × head_dim": shape.num_heads * shape.head_dim,
                        "intermediate_size": shape.intermediate_size},
      "data × fsdp × tensor": {"vocab_size": shape.vocab_size}}
  parts = {"tensor": mesh.tensor, "fsdp": mesh.fsdp, "tensor × fsdp": mesh.tensor * mesh.fsdp,
           "data × fsdp × tensor": mesh.data * mesh.fsdp * mesh.tensor}
  for axis, sizes in widths.items():
    for name, size in sizes.items():
      if size % parts[axis]:
        raise UserError(f"--config.mesh: {axis} = {parts[axis]} must divide the model's {name}, "
                        f"which is {size}")
  longest = config.rollout.max_prompt_tokens + config.rollout.max_completion_tokens
  if longest > shape.max_positions:
    raise UserError(
        f"--config.rollout.max_prompt_tokens={config.rollout.max_prompt_tokens} and "
        f"max_completion_tokens={config.rollout.max_completion_tokens} may take {longest} tokens, "
        f"and the model is meant for {shape.max_positions}: lower one of them")


def _check_grpo(config: ConfigDict, refuse: Callable[[str, str], None]) -> None:
  grpo = config.grpo
  if grpo.group_size < 2:
    refuse("grpo.group_size", "a group of one has no advantage over itself; 2 at least")
  if grpo.samples_per_row and grpo.group_size % grpo.samples_per_row:
    refuse("grpo.samples_per_row", f"must divide grpo.group_size={grpo.group_size}")
  if not grpo.clip_low <= 1:
    refuse("grpo.clip_low", "must be 1 at most: no ratio falls below 0")
  if not (grpo.dual_clip == 0 or grpo.dual_clip > 1):
    refuse("grpo.dual_clip", "must be above 1, or 0 for none")
  if not (grpo.importance_cap == 0 or grpo.importance_cap >= 1):
    refuse("grpo.importance_cap", "must be 1 at least, the weight of equal policies; or 0 for none")
  if not 0 <= grpo.kl_final_fraction <= 1:
    refuse("grpo.kl_final_fraction", "must be from 0 to 1")
  if grpo.entropy_target and grpo.entropy_coefficient > grpo.entropy_maximum:
    refuse("grpo.entropy_coefficient",
           f"starts above grpo.entropy_maximum={grpo.entropy_maximum}, which bounds it")


def _check_rollout(config: ConfigDict, refuse: Callable[[str, str], None]) -> None:
  rollout, vllm = config.rollout, config.rollout.vllm
  if rollout.extra_groups and not rollout.max_staleness:
    refuse("rollout.extra_groups",
           "late groups can be used only with --config.rollout.max_staleness above 0")
  if rollout.sampler == "vllm" and bool(vllm.python) == bool(vllm.urls):
    refuse("rollout.sampler", "needs either --config.rollout.vllm.python, the Python of an "
           "environment that BUILD.md says how to make, or --config.rollout.vllm.urls of servers "
           "that are running")
  if vllm.share_device and rollout.max_staleness:
    refuse("rollout.vllm.share_device",
           "a server that sleeps while a step trains cannot sample beside it: set "
           "--config.rollout.max_staleness=0")


def _check_vllm_pool(config: ConfigDict, refuse: Callable[[str, str], None]) -> None:
  if not config.rollout.vllm.python:
    refuse("rollout.vllm.python",
           "pool.source=vllm needs the interpreter of an environment with vLLM, see BUILD.md")
  options = config.pool.vllm
  if not options.weights:
    refuse("pool.vllm.weights", "must name the folder or the GGUF file of the workers' model")
  if not options.max_tokens < options.max_model_len:
    refuse("pool.vllm.max_tokens",
           f"must be below pool.vllm.max_model_len={options.max_model_len}, which holds the "
           "question too")
  workers = options.workers
  if not (workers and all(map(_is_worker, workers))
          and len({name for name, _ in workers}) == len(workers)):
    refuse("pool.vllm.workers",
           "must be pairs of a name, each another one, and a temperature of 0 or above, such as "
           "(('calm', 0.2), ('wild', 1.0))")


def _is_worker(pair: Any) -> bool:
  # From the command line and from a run's config.json it may come as a list.
  return (isinstance(pair, (tuple, list)) and list(map(type, pair)) in ([str, float], [str, int])
          and pair[1] >= 0)


def _is_limit(triple: Any) -> bool:
  return (isinstance(triple, (tuple, list)) and len(triple) == 3 and isinstance(triple[0], str)
          and triple[1] in ("dollars", "tokens", "calls") and type(triple[2]) in (int, float)
          and triple[2] > 0)


def _check_open_pool(config: ConfigDict, refuse: Callable[[str, str], None]) -> None:
  urls = config.pool.open.urls
  if not (urls and all(map(_is_server, urls))):
    refuse("pool.open.urls",
           "must be pairs of a model and the endpoint of its server, such as "
           "(('google/gemma-3-27b-it', 'http://127.0.0.1:8000/v1'),)")
  try:
    open_pool(urls)
  except UserError as fault:
    raise UserError(f"--config.pool.open.urls: {fault}") from fault


def _is_server(pair: Any) -> bool:
  return isinstance(pair, (tuple, list)) and list(map(type, pair)) == [str, str]


def _check_listed_pool(config: ConfigDict, refuse: Callable[[str, str], None]) -> None:
  if not config.pool.workers:
    refuse("pool.workers",
           "pool.source=listed needs a worker at least, such as ({'name': 'solver', 'model': "
           "'llama-3.3-70b', 'base_url': 'http://127.0.0.1:8000/v1'},)")
  try:
    listed_pool(config.pool.workers)
  except UserError as fault:
    raise UserError(f"--config.pool.workers: {fault}") from fault
