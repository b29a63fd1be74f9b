"""The checks of a config that need no loading."""

from collections.abc import Callable, Collection
from typing import Any

from ml_collections import ConfigDict

from conductor_jax.arena.specialists import SPECIALISTS
from conductor_jax.errors import UserError
from conductor_jax.models.lora import TARGETS as LORA_TARGETS
from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.tasks.code_benchmarks import BIGCODEBENCH_PROMPTS
from conductor_jax.tasks.configured import configured_table
from conductor_jax.workers.pools import listed_pool, open_pool
from conductor_jax.workflows.lists import ListFormat

_CHOICES = {
    "model.compute_dtype": ("float32", "bfloat16"),
    "model.param_dtype": ("float32", "bfloat16"),
    "model.remat": ("none", "dots", "full"),
    "model.attention": ("auto", "blockwise", "splash", "cudnn"),
    "optimizer.mu_dtype": ("float32", "bfloat16"),
    "rollout.sampler": ("jax", "vllm"),
    "rollout.vllm.dtype": ("bfloat16", "float32", "float16"),
    "tasks.source": ("arena", "files", "hub"),
    "tasks.bigcodebench_prompt": BIGCODEBENCH_PROMPTS,
    "pool.source": ("arena", "frontier", "vllm", "paper", "open", "listed"),
    "pool.vllm.dtype": ("bfloat16", "float32", "float16"),
    "workflow.access": ("binary", "positions", "none"),
    "workflow.few_shot_source": ("outside", "training", "file"),
    "pool.journal.mode": ("record", "replay", "replay-or-record"),
    "workflow.context": ("messages", "inlined"),
    "grpo.advantage": ("std", "mean", "leave-one-out"),
    "grpo.aggregation": ("token", "sequence", "constant"),
    "grpo.ratio": ("token", "sequence"),
    "grpo.kl_estimator": ("k1", "k2", "k3", "exact"),
    "grpo.recursion.first_reward": ("discounted", "own", "final"),
    "grpo.recursion.group": ("round", "question"),
    "sft.decay": ("cosine", "none"),
    "optimizer.decay": ("cosine", "none"),
}

_POSITIVE = (
    "model.hidden_size", "model.intermediate_size", "model.num_layers", "model.num_heads",
    "model.num_kv_heads", "model.head_dim", "model.max_positions", "model.logprob_chunk",
    "tasks.train", "sandbox.time_factor", "pool.request_timeout", "pool.connect_timeout",
    "pool.max_attempts", "pool.longest_wait", "pool.max_in_flight", "pool.breaker_failures",
    "pool.breaker_cooldown", "pool.vllm.max_model_len", "pool.vllm.max_tokens",
    "workflow.max_steps", "workflow.max_rounds", "rollout.temperature", "rollout.max_prompt_tokens",
    "rollout.max_completion_tokens", "rollout.vllm.start_timeout", "rollout.vllm.request_timeout",
    "rollout.vllm.sync_timeout", "grpo.iterations", "grpo.prompts", "grpo.micro_batches",
    "grpo.clip_low", "grpo.clip_high", "grpo.entropy_rate", "grpo.entropy_maximum",
    "grpo.recursion.micro_batches", "optimizer.learning_rate", "optimizer.clip_norm",
    "mesh.data", "mesh.fsdp", "mesh.tensor",
    "sft.prompts", "sft.plans", "sft.micro_batches", "sft.learning_rate", "sft.checkpoint_every",
    "evaluation.tasks", "evaluation.concurrent", "checkpoint.every", "checkpoint.keep",
    "report.rollouts_every",
)

_NOT_NEGATIVE = (
    "seed", "model.lora_rank", "sandbox.sessions", "pool.latency", "pool.read_timeout",
    "pool.budget.dollars", "pool.budget.tokens", "pool.budget.calls", "workflow.deadline",
    "workflow.few_shot", "workflow.max_dollars", "reward.per_dollar",
    "reward.per_thousand_tokens", "reward.per_second", "report.collapse.iterations",
    "report.collapse.worker_entropy_bits", "report.collapse.steps_per_plan",
    "rollout.max_staleness", "rollout.extra_groups", "sft.steps", "grpo.samples_per_row",
    "grpo.kl_coefficient", "grpo.entropy_coefficient", "grpo.entropy_target",
)


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
  _check_tasks(config, refuse)
  _check_workflow(config, refuse)
  _check_grpo(config, refuse)
  _check_recursion(config, refuse)
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
  noise, groups = config.pool.noise, config.pool.groups
  if not (all(map(_is_noise, noise)) and _are_distinct(noise)) or (
      noise and config.pool.source != "arena"):
    refuse("pool.noise", "must be pairs of a worker of pool.source=arena, each another one, and a "
           "share from 0 to 1, such as (('archivist-medium', 0.4),)")
  if not (all(map(_is_group, groups)) and _are_distinct(groups)):
    refuse("pool.groups", "must be pairs of a group, each another one, and its workers, such as "
           "(('open', ('gemma-3-27b', 'qwen3-32b')),)")
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
  for name in ("parse_rate", "access_density", "wrong_duplicates", "failed_groups"):
    if not 0 <= config.report.collapse[name] <= 1:
      refuse(f"report.collapse.{name}", "must be a share, from 0 to 1")
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


def _check_tasks(config: ConfigDict, refuse: Callable[[str, str], None]) -> None:
  tasks, known = config.tasks, configured_table(config.tasks)
  for key in ("benchmarks", "evaluated"):
    for name in tasks[key]:
      if name not in known:
        refuse(f"tasks.{key}", f"there is no benchmark {name!r}: choose from {', '.join(known)}, "
               "or describe it in --config.tasks.own")
  if tasks.source != "arena" and not tasks.benchmarks:
    refuse("tasks.benchmarks", "must name a benchmark at least")
  both = set(tasks.benchmarks) & set(tasks.evaluated)
  if both:
    refuse("tasks.evaluated", f"{', '.join(sorted(both))} is trained on, and a part of it held out "
           "already: leave it out here or in tasks.benchmarks")
  for key, source in (("files", "files"), ("revisions", "hub")):
    if tasks[key] and tasks.source != source:
      refuse(f"tasks.{key}", f"is read with --config.tasks.source={source} only")
    for pair in tasks[key]:
      if not (_is_pair_of_texts(pair) and pair[0] in known):
        refuse(f"tasks.{key}", "must be pairs of a benchmark and its "
               f"{'file' if key == 'files' else 'revision'}, got {pair!r}")
  if tasks.files and config.pool.source == "frontier":
    refuse("tasks.files", "the simulated frontier models know the files of the usual names only")


def _check_workflow(config: ConfigDict, refuse: Callable[[str, str], None]) -> None:
  workflow = config.workflow
  if workflow.few_shot > 5:
    refuse("workflow.few_shot", "must be 5 at most")
  if workflow.few_shot and (workflow.few_shot_source == "file") != bool(workflow.few_shot_file):
    refuse("workflow.few_shot_file",
           "names the file of --config.workflow.few_shot_source=file, and is empty otherwise")
  for name in ListFormat().names:
    if name in workflow.prefill:
      raise UserError(f"--config.workflow.prefill={workflow.prefill!r}: must not begin the plan, "
                      f"and holds {name}")


def _check_recursion(config: ConfigDict, refuse: Callable[[str, str], None]) -> None:
  grpo, recursion = config.grpo, config.grpo.recursion
  if not 0 <= recursion.share <= 1:
    refuse("grpo.recursion.share", "must be from 0 to 1")
  if not 0 <= recursion.discount <= 1:
    refuse("grpo.recursion.discount", "must be from 0 to 1")
  if not recursion.share:
    return
  if config.workflow.max_rounds < 2:
    refuse("grpo.recursion.share", "trains a second round, and "
           f"--config.workflow.max_rounds={config.workflow.max_rounds} has none: set it to 2")
  questions = recursion.share * grpo.prompts
  if abs(questions - round(questions)) > 1e-6:
    refuse("grpo.recursion.share", f"must be a whole number of grpo.prompts={grpo.prompts}")
  parts = config.mesh.data * config.mesh.fsdp * recursion.micro_batches
  if grpo.group_size % parts:
    refuse("grpo.group_size", "rows of the second round cannot be spread evenly: must be a "
           f"multiple of mesh.data × mesh.fsdp × grpo.recursion.micro_batches = {parts}")


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


def _is_noise(pair: Any) -> bool:
  return (isinstance(pair, (tuple, list)) and len(pair) == 2
          and pair[0] in {specialist.name for specialist in SPECIALISTS}
          and type(pair[1]) in (int, float) and 0 <= pair[1] <= 1)


def _is_group(pair: Any) -> bool:
  return (isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str)
          and isinstance(pair[1], (tuple, list)) and all(type(name) is str for name in pair[1]))


def _are_distinct(pairs: Collection[Any]) -> bool:
  """Whether no two of them are about the same name."""
  return len({name for name, _ in pairs}) == len(pairs)


def _is_limit(triple: Any) -> bool:
  return (isinstance(triple, (tuple, list)) and len(triple) == 3 and isinstance(triple[0], str)
          and triple[1] in ("dollars", "tokens", "calls") and type(triple[2]) in (int, float)
          and triple[2] > 0)


def _check_open_pool(config: ConfigDict, refuse: Callable[[str, str], None]) -> None:
  urls = config.pool.open.urls
  if not (urls and all(map(_is_pair_of_texts, urls))):
    refuse("pool.open.urls",
           "must be pairs of a model and the endpoint of its server, such as "
           "(('google/gemma-3-27b-it', 'http://127.0.0.1:8000/v1'),)")
  try:
    open_pool(urls)
  except UserError as fault:
    raise UserError(f"--config.pool.open.urls: {fault}") from fault


def _is_pair_of_texts(pair: Any) -> bool:
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
