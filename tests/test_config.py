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
    ("grpo.clip", 0.0, "above 0"),
    ("grpo.advantage", "rank", "one of std, mean"),
    ("grpo.kl_coefficient", -0.1, "0 or above"),
    ("grpo.kl_final_fraction", 1.5, "from 0 to 1"),
    ("grpo.kl_estimator", "k2", "one of k3, exact"),
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
  with pytest.raises(UserError, match=rf"--config.{key}=\d+: must be a multiple of mesh"):
    check_config(with_values(**{f"mesh__{axis}": size}))
