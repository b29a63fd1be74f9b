import pytest

from conductor_jax.config import check_config, default_config
from conductor_jax.errors import UserError
from configs import dryrun, quickstart


def with_values(**values):
  config = quickstart.get_config()
  config.update_from_flattened_dict({key.replace("__", "."): v for key, v in values.items()})
  return config


def test_the_shipped_configs_and_the_defaults_are_possible():
  check_config(default_config())
  check_config(quickstart.get_config())
  check_config(with_values(**{"tasks__source": "files", "tasks__path": "x",
                              "pool__source": "frontier"}))


def test_the_dry_run_asks_for_the_path_of_the_files():
  with pytest.raises(UserError, match=r"--config.tasks.path=: must name the folder"):
    check_config(dryrun.get_config())


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
    ("grpo.kl_coefficient", -0.1, "0 or above"),
    ("grpo.kl_final_fraction", 1.5, "from 0 to 1"),
    ("grpo.kl_estimator", "k4", "one of k1, k2, k3, exact"),
    ("model.num_kv_heads", 4, "must divide model.num_heads=6"),
    ("model.head_dim", 31, "must be even"),
    ("model.compute_dtype", "float16", "one of float32, bfloat16"),
    ("model.remat", "some", "one of none, dots, full"),
    ("model.max_positions", 100, "136 tokens"),
    ("mesh.tensor", 4, None),
    ("mesh.fsdp", 5, None),
    ("mesh.data", 3, None),
    ("tokenizer.vocab_size", 200, "256 bytes"),
    ("pool.port", 70_000, "must be a port"),
    ("pool.source", "frontier", "tasks.source=files"),
    ("tasks.source", "hub", "one of arena, files"),
    ("workflow.access", "some", "one of binary, positions"),
    ("workflow.context", "mail", "one of messages, inlined"),
    ("optimizer.warmup_fraction", 1.0, "below 1"),
    ("rollout.temperature", 0.0, "above 0"),
    ("seed", -1, "0 or above"),
])
def test_an_impossible_value_is_refused_in_one_line_that_names_it(key, value, remedy):
  with pytest.raises(UserError) as fault:
    check_config(with_values(**{key.replace(".", "__"): value}))
  message = str(fault.value)
  assert "\n" not in message
  if remedy is not None:
    assert message.startswith(f"--config.{key}={value}: ") and remedy in message


@pytest.mark.parametrize(("axis", "size", "key"), [
    ("tensor", 4, "model.num_heads"), ("fsdp", 5, "model.hidden_size"),
    ("data", 3, "grpo.prompts")])
def test_a_mesh_that_does_not_divide_is_refused_with_what_it_should_divide(axis, size, key):
  with pytest.raises(UserError, match=rf"--config.{key}=\d+: .*must be a multiple of mesh"):
    check_config(with_values(**{f"mesh__{axis}": size}))


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


def test_a_steered_entropy_coefficient_starts_within_its_bound_and_a_fixed_one_has_none():
  check_config(with_values(grpo__entropy_coefficient=0.2))
  check_config(with_values(grpo__entropy_coefficient=0.05, grpo__entropy_target=0.2))
  with pytest.raises(UserError, match=(
      r"--config.grpo.entropy_coefficient=0.2: starts above grpo.entropy_maximum=0.1")):
    check_config(with_values(grpo__entropy_coefficient=0.2, grpo__entropy_target=0.2))
