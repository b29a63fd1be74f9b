import json
import sys

import pytest
from absl import flags
from ml_collections import config_flags

from conductor_jax.config import default_config
from conductor_jax.config_checks import check_config, check_shape
from conductor_jax.errors import UserError
from configs import dryrun, quickstart, smollm_cpu
from experiments.policy import model_shape
from tests.config_values import with_values


def check(config):
  check_config(config)
  check_shape(config, model_shape(config))


def test_the_shipped_configs_and_the_defaults_are_possible():
  for config in (default_config(), quickstart.get_config(), dryrun.get_config()):
    check(config)


def test_smollm_on_a_cpu_is_possible_once_vllm_is_named(smollm2_file):
  config = smollm_cpu.get_config()
  assert config.model.weights == config.pool.vllm.weights == str(smollm2_file)
  config.rollout.vllm.python = "python"
  check(config)


@pytest.mark.parametrize(("key", "value", "remedy"), [
    ("grpo.group_size", 1, "2 at least"),
    ("grpo.prompts", 0, "above 0"),
    ("grpo.samples_per_row", 3, "must divide grpo.group_size=16"),
    ("grpo.samples_per_row", -1, "0 or above"),
    ("grpo.micro_batches", 0, "above 0"),
    ("grpo.advantage", "rank", "one of std, mean, leave-one-out"),
    ("grpo.aggregation", "group", "one of token, sequence, constant"),
    ("grpo.ratio", "step", "one of token, sequence"),
    ("grpo.clip_low", 0.0, "above 0"),
    ("grpo.clip_low", 1.1, "1 at most"),
    ("grpo.clip_high", 0.0, "above 0"),
    ("grpo.dual_clip", 1.0, "above 1, or 0 for none"),
    ("grpo.importance_cap", 0.5, "1 at least"),
    ("grpo.entropy_coefficient", -0.1, "0 or above"),
    ("grpo.entropy_target", -0.1, "0 or above"),
    ("grpo.entropy_rate", 0.0, "above 0"),
    ("grpo.entropy_maximum", 0.0, "above 0"),
    ("sft.micro_batches", 0, "above 0"),
    ("report.collapse.iterations", -1, "0 or above"),
    ("report.collapse.worker_entropy_bits", -0.1, "0 or above"),
    ("report.collapse.steps_per_plan", -1.0, "0 or above"),
    ("report.collapse.parse_rate", -0.1, "a share, from 0 to 1"),
    ("report.collapse.access_density", 1.1, "a share, from 0 to 1"),
    ("report.collapse.wrong_duplicates", 1.5, "a share, from 0 to 1"),
    ("report.collapse.failed_groups", -0.5, "a share, from 0 to 1"),
    ("grpo.kl_coefficient", -0.1, "0 or above"),
    ("grpo.kl_final_fraction", 1.5, "from 0 to 1"),
    ("grpo.kl_estimator", "k4", "one of k1, k2, k3, exact"),
    ("model.num_kv_heads", 4, "must divide model.num_heads=6"),
    ("model.head_dim", 31, "must be even"),
    ("model.compute_dtype", "float16", "one of float32, bfloat16"),
    ("model.remat", "some", "one of none, dots, full"),
    ("model.param_dtype", "float16", "one of float32, bfloat16"),
    ("model.attention", "flash", "one of auto, blockwise, splash, cudnn"),
    ("model.lora_rank", -1, "0 or above"),
    ("model.lora_targets", ("query", "head"), "some of query, key, value, output, gate, up, down"),
    ("model.lora_targets", (), "some of query"),
    ("optimizer.mu_dtype", "float16", "one of float32, bfloat16"),
    ("optimizer.decay", "linear", "one of cosine, none"),
    ("sft.steps", -1, "0 or above"),
    ("evaluation.concurrent", 0, "above 0"),
    ("mesh.fsdp", 0, "above 0"),
    ("tokenizer.vocab_size", 200, "256 bytes"),
    ("pool.port", 70_000, "must be a port"),
    ("pool.max_in_flight", 0, "above 0"),
    ("pool.longest_wait", 0.0, "above 0"),
    ("pool.breaker_failures", 0, "above 0"),
    ("pool.read_timeout", -1.0, "0 or above"),
    ("pool.budget.dollars", -1.0, "0 or above"),
    ("pool.budget.workers", ("solver",), "triples of a worker's name, dollars, tokens or calls"),
    ("pool.budget.workers", (("solver", "euros", 5.0),), "such as (('gpt-5', 'dollars', 50.0),)"),
    ("pool.budget.workers", (("solver", "dollars", 0.0),), "a limit above 0"),
    ("pool.journal.mode", "forget", "one of record, replay, replay-or-record"),
    ("pool.source", "frontier", "tasks.source=files"),
    ("pool.source", "hired", "one of arena, frontier, vllm, paper, open, listed"),
    ("tasks.source", "web", "one of arena, files, hub"),
    ("tasks.bigcodebench_prompt", "chat", "one of instruct, complete"),
    ("tasks.benchmarks", ("gsm9k",), "there is no benchmark 'gsm9k': choose from gsm8k, mmlu,"),
    ("tasks.evaluated", ("gsm9k",), "there is no benchmark 'gsm9k'"),
    ("tasks.evaluated", ("gsm8k",), "gsm8k is trained on, and a part of it held out already"),
    ("tasks.files", (("gsm8k", "a.jsonl"),), "is read with --config.tasks.source=files only"),
    ("tasks.revisions", (("gsm8k", "v1"),), "is read with --config.tasks.source=hub only"),
    ("workflow.access", "some", "one of binary, positions, none"),
    ("workflow.max_steps", 0, "above 0"),
    ("workflow.few_shot", -1, "0 or above"),
    ("workflow.few_shot", 6, "5 at most"),
    ("workflow.few_shot_source", "web", "one of outside, training, file"),
    ("workflow.max_rounds", 0, "above 0"),
    ("workflow.max_dollars", -1.0, "0 or above"),
    ("reward.per_dollar", -1.0, "0 or above"),
    ("reward.per_thousand_tokens", -1.0, "0 or above"),
    ("reward.per_second", -1.0, "0 or above"),
    ("grpo.recursion.first_reward", "later", "one of discounted, own, final"),
    ("grpo.recursion.group", "batch", "one of round, question"),
    ("grpo.recursion.micro_batches", 0, "above 0"),
    ("grpo.recursion.share", -0.5, "must be from 0 to 1"),
    ("grpo.recursion.share", 1.5, "must be from 0 to 1"),
    ("grpo.recursion.discount", 1.25, "must be from 0 to 1"),
    ("grpo.recursion.discount", -0.25, "must be from 0 to 1"),
    ("grpo.recursion.share", 0.5, "trains a second round, and --config.workflow.max_rounds=1 has "
                                  "none: set it to 2"),
    ("pool.noise", ("archivist-medium",), "such as (('archivist-medium', 0.4),)"),
    ("pool.noise", (("nobody", 0.4),), "pairs of a worker of pool.source=arena"),
    ("pool.noise", (("archivist-medium", 1.1),), "a share from 0 to 1"),
    ("pool.noise", (("archivist-medium", "0.4"),), "a share from 0 to 1"),
    ("pool.noise", (("archivist-medium", 0.1), ("archivist-medium", 0.4)), "each another one"),
    ("pool.groups", (("open", "gemma-3-27b"),), "such as (('open', ('gemma-3-27b', 'qwen3-32b'))"),
    ("pool.groups", ("open",), "pairs of a group, each another one, and its workers"),
    ("pool.groups", (("open", ("a",)), ("open", ("b",))), "each another one"),
    ("workflow.context", "mail", "one of messages, inlined"),
    ("workflow.deadline", -1.0, "0 or above"),
    ("optimizer.warmup_fraction", 1.0, "below 1"),
    ("rollout.temperature", 0.0, "above 0"),
    ("rollout.sampler", "sglang", "one of jax, vllm"),
    ("rollout.sampler", "vllm", "needs either --config.rollout.vllm.python"),
    ("rollout.max_staleness", -1, "0 or above"),
    ("rollout.extra_groups", 2, "only with --config.rollout.max_staleness above 0"),
    ("rollout.vllm.dtype", "int8", "one of bfloat16, float32, float16"),
    ("rollout.vllm.port", -1, "must be a port"),
    ("rollout.vllm.request_timeout", 0.0, "above 0"),
    ("seed", -1, "0 or above"),
])
def test_an_impossible_value_is_refused_in_one_line_that_names_it(key, value, remedy):
  with pytest.raises(UserError) as fault:
    check_config(with_values(**{key.replace(".", "__"): value}))
  message = str(fault.value)
  assert "\n" not in message
  assert message.startswith(f"--config.{key}={value}: ") and remedy in message


def test_a_budget_is_that_of_the_runs_own_journal():
  shared = {"pool__journal__path": "others.sqlite"}
  check_config(with_values(**shared))
  for budget in ({"pool__budget__calls": 5}, {"pool__budget__workers": (("a", "calls", 5),)}):
    with pytest.raises(UserError, match="pool.journal.path=others.sqlite: a budget counts what is"):
      check_config(with_values(**shared, **budget))


def test_servers_are_either_started_or_attached_to_and_sleep_only_where_nothing_is_sampled():
  vllm = dict(rollout__sampler="vllm", rollout__vllm__python="python3")
  check(with_values(**vllm))
  check(with_values(rollout__sampler="vllm", rollout__vllm__urls=("http://127.0.0.1:8000",)))
  with pytest.raises(UserError, match="needs either"):
    check(with_values(**vllm, rollout__vllm__urls=("http://127.0.0.1:8000",)))
  check(with_values(**vllm, rollout__vllm__share_device=True))
  with pytest.raises(UserError, match="--config.rollout.vllm.share_device=True: .*staleness=0"):
    check(with_values(**vllm, rollout__vllm__share_device=True, rollout__max_staleness=1))


@pytest.mark.parametrize(("key", "value", "remedy"), [
    ("rollout.vllm.python", "", "an environment with vLLM"),
    ("pool.vllm.weights", "", "the folder or the GGUF file"),
    ("pool.vllm.dtype", "int8", "one of bfloat16, float32, float16"),
    ("pool.vllm.max_tokens", 0, "above 0"),
    ("pool.vllm.max_model_len", 512, "must be below pool.vllm.max_model_len=512"),
    ("pool.vllm.workers", (), "pairs of a name"),
    ("pool.vllm.workers", ("calm", "wild"), "pairs of a name"),
    ("pool.vllm.workers", (("calm", -0.1),), "a temperature of 0 or above"),
    ("pool.vllm.workers", (("calm", "0.1"),), "a temperature of 0 or above"),
    ("pool.vllm.workers", (("calm", 0.1), ("calm", 0.2)), "each another one"),
])
def test_a_pool_that_vllm_cannot_serve_is_refused(key, value, remedy):
  served = {
      "pool.source": "vllm", "rollout.vllm.python": "python", "pool.vllm.weights": "weights",
      "pool.vllm.workers": [["calm", 0]]}
  check_config(with_values(**served))
  with pytest.raises(UserError) as fault:
    check_config(with_values(**{**served, key: value}))
  message = str(fault.value)
  assert message.startswith("--config.") and remedy in message and "\n" not in message


SOLVER = {"name": "solver", "base_url": "http://127.0.0.1:8000/v1", "model": "m"}
GEMMA = ("google/gemma-3-27b-it", "http://127.0.0.1:8000/v1")


@pytest.mark.parametrize("tasks", ["arena", "files"])
@pytest.mark.parametrize("pool", [
    {"pool.source": "paper"},
    {"pool.source": "open", "pool.open.urls": [GEMMA]},
    {"pool.source": "listed", "pool.workers": [SOLVER]},
], ids=lambda pool: pool["pool.source"])
def test_workers_that_are_running_answer_tasks_of_any_source(pool, tasks):
  check_config(with_values(**pool, tasks__source=tasks))


@pytest.mark.parametrize(("source", "key", "value", "message"), [
    ("open", "pool.open.urls", (), "=(): must be pairs of a model and the endpoint"),
    ("open", "pool.open.urls", GEMMA, f"={GEMMA}: must be pairs of a model and the endpoint"),
    ("open", "pool.open.urls", ((*GEMMA, "x"),), f"={((*GEMMA, 'x'),)}: must be pairs"),
    ("open", "pool.open.urls", (("llama", "http://h/v1"),),
     ": model 'llama' must be one of Qwen/Qwen3-32B, "),
    ("open", "pool.open.urls", (GEMMA, GEMMA), ": 2 workers are called 'gemma-3-27b'"),
    ("listed", "pool.workers", (), "=(): pool.source=listed needs a worker at least, such as "),
    ("listed", "pool.workers", ("solver",), ": worker 0: 'solver' must be a mapping"),
    ("listed", "pool.workers", (SOLVER, {"name": "b"}),
     ": worker 'b': base_url is missing: add it"),
    ("listed", "pool.workers", ({**SOLVER, "price_in": -1.0},),
     ": worker 'solver': price_in=-1.0 must be 0 or above"),
    ("listed", "pool.workers", ({**SOLVER, "prise": 1},), ": worker 'solver': prise=1 must go"),
])
def test_a_pool_that_is_described_wrongly_is_refused_before_anything_is_loaded(
    source, key, value, message):
  with pytest.raises(UserError) as fault:
    check_config(with_values(**{"pool.source": source, key: value}))
  assert str(fault.value).startswith(f"--config.{key}{message}")
  assert "\n" not in str(fault.value)


@pytest.fixture
def from_command_line(monkeypatch):
  """A function arguments → the quickstart with these options."""

  def parse(*arguments):
    # The overrides are read from sys.argv, whatever is parsed.
    monkeypatch.setattr(sys, "argv", ["program", f"--config={quickstart.__file__}", *arguments])
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", flag_values=values)
    values(sys.argv)
    return values.config

  return parse


def test_workers_can_be_listed_on_the_command_line(from_command_line):
  workers = ({**SOLVER, "limits": {"concurrent": 8}},)
  config = from_command_line("--config.pool.source=listed", f"--config.pool.workers={workers}")
  assert config.pool.workers == workers
  check_config(config)
  config = from_command_line("--config.pool.source=open", f"--config.pool.open.urls=({GEMMA},)")
  assert config.pool.open.urls == (GEMMA,)
  check_config(config)


def test_benchmarks_of_ones_own_can_be_described_on_the_command_line(from_command_line):
  own = ({"name": "riddles", "grader": "text"},)
  config = from_command_line(
      "--config.tasks.source=hub", "--config.pool.source=open",
      f"--config.pool.open.urls=({GEMMA},)", f"--config.tasks.own={own}",
      "--config.tasks.benchmarks=('riddles', 'gsm8k')")
  assert config.tasks.own == own and config.tasks.benchmarks == ("riddles", "gsm8k")
  check_config(config)
  assert json.loads(config.to_json_best_effort())["tasks"]["own"] == [*own]


def test_one_worker_in_place_of_a_list_is_refused(from_command_line):
  config = from_command_line("--config.pool.source=listed", f"--config.pool.workers={SOLVER}")
  with pytest.raises(UserError, match="^--config.pool.workers: worker 0: 'name' must be a mapping"):
    check_config(config)


def test_listed_workers_outlive_a_runs_config_json():
  workers = ({**SOLVER, "limits": {"concurrent": 8}, "fallbacks": ("other",)},
             {**SOLVER, "name": "other"})
  config = with_values(pool__source="listed", pool__workers=workers)
  written = json.loads(config.to_json_best_effort())
  assert written["pool"]["workers"][0]["limits"] == {"concurrent": 8}
  restored = default_config()
  restored.update(written)
  check_config(restored)
  assert json.loads(restored.to_json_best_effort()) == written


# The quickstart is 192 wide with 6 heads of 32, 2 key-value heads and a vocabulary of 1024.
@pytest.mark.parametrize(("mesh", "fault"), [
    ({"tensor": 4}, "tensor = 4 must divide the model's num_heads, which is 6"),
    ({"tensor": 3}, "tensor = 3 must divide the model's num_kv_heads, which is 2"),
    ({"fsdp": 5}, "fsdp = 5 must divide the model's hidden_size, which is 192"),
    ({"tensor": 2, "fsdp": 64}, "tensor × fsdp = 128 must divide the model's num_heads × head_dim, "
                                "which is 192"),
    ({"tensor": 2, "fsdp": 48}, "data × fsdp × tensor = 96 must divide the model's vocab_size, "
                                "which is 1024"),
])
def test_a_mesh_that_does_not_divide_the_model_is_refused_with_what_it_should_divide(mesh, fault):
  config = with_values(**{f"mesh__{axis}": size for axis, size in mesh.items()})
  with pytest.raises(UserError) as refused:
    check_shape(config, model_shape(config))
  assert str(refused.value) == f"--config.mesh: {fault}"


def test_a_mesh_is_checked_against_the_shape_that_is_trained_not_against_the_options():
  config = with_values(model__name="qwen2.5-7b", mesh__tensor=4)
  check_shape(config, model_shape(config))  # 28 heads and 4 key-value heads, not 6 and 2


def test_sequences_may_be_as_long_as_the_model_is_meant_for():
  check(with_values(model__max_positions=136))
  config = with_values(model__max_positions=135)
  with pytest.raises(UserError, match=(
      "--config.rollout.max_prompt_tokens=96 and max_completion_tokens=40 may take 136 tokens, and "
      "the model is meant for 135: lower one of them$")):
    check_shape(config, model_shape(config))


@pytest.mark.parametrize(("values", "possible"), [
    # 16 prompts of 16 rollouts.
    ({"grpo__micro_batches": 16}, True),
    ({"grpo__micro_batches": 32}, False),
    ({"grpo__micro_batches": 32, "grpo__samples_per_row": 8}, True),
    ({"grpo__micro_batches": 32, "grpo__samples_per_row": 8, "mesh__data": 2}, False),
    ({"grpo__micro_batches": 8, "mesh__data": 2}, True),
    ({"grpo__micro_batches": 8, "mesh__data": 2, "mesh__fsdp": 2}, False),
])
def test_the_rows_of_a_batch_must_be_spread_evenly_over_devices_and_micro_batches(
    values, possible):
  config = with_values(**values)
  if possible:
    check_config(config)
  else:
    with pytest.raises(UserError, match=(
        "--config.grpo.prompts=16: .* a multiple of mesh.data × mesh.fsdp × grpo.micro_batches = "
        r"(32|64)$")):
      check_config(config)


def test_the_rows_of_the_warm_start_are_its_prompts():
  check_config(with_values(sft__micro_batches=4, mesh__data=4))
  with pytest.raises(UserError, match=r"--config.sft.prompts=16: .*sft.micro_batches = 32$"):
    check_config(with_values(sft__micro_batches=32))
  check_config(with_values(sft__micro_batches=32, sft__steps=0))  # there is none


def test_a_steered_entropy_coefficient_starts_within_its_bound_and_a_fixed_one_has_none():
  check_config(with_values(grpo__entropy_coefficient=0.2))
  check_config(with_values(grpo__entropy_coefficient=0.05, grpo__entropy_target=0.2))
  with pytest.raises(UserError, match=(
      r"--config.grpo.entropy_coefficient=0.2: starts above grpo.entropy_maximum=0.1")):
    check_config(with_values(grpo__entropy_coefficient=0.2, grpo__entropy_target=0.2))
