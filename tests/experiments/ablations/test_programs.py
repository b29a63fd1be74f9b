"""The arms of every program, on the smallest config and on the paper's."""

import importlib
from functools import partial
from pathlib import Path

import pytest

from conductor_jax.errors import UserError
from conductor_jax.models.shapes import SHAPES, parameter_count
from configs import conductor7b, quickstart
from experiments.ablations import ablation as ablations
from experiments.ablations import (
    access,
    adaptive,
    clipping,
    few_shot,
    group_size,
    model_size,
    recursion,
    rewards,
    subtasks,
)
from experiments.ablations.ablation import check_arms, with_changes
from experiments.policy import model_shape

PROGRAMS = (
    access, adaptive, clipping, few_shot, group_size, model_size, recursion, rewards, subtasks)
CONFIGS = {"quickstart": quickstart.get_config, "conductor7b": conductor7b.get_config}


def name_of(program):
  return program.__name__.rpartition(".")[2]


def made(program, config):
  if program is adaptive and config.pool.source != "arena":
    return adaptive.ablation(config, without=("gpt-5",))
  return program.ablation(config)


def arms(program, config=None):
  """The configs of the arms, by name."""
  config = config or quickstart.get_config()
  return {arm.name: with_changes(config, arm.changes) for arm in made(program, config).arms}


def test_every_program_of_the_folder_is_tested_here():
  folder = Path(ablations.__file__).parent
  assert {path.stem for path in folder.glob("*.py")} == {
      *map(name_of, PROGRAMS), "__init__", "ablation", "grid"}


@pytest.mark.parametrize("get_config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_all_arms_and_measurements_pass_the_checks(program, get_config):
  config = get_config()
  check_arms(made(program, config), config)


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_arms_differ_from_one_another(program):
  config = quickstart.get_config()
  made_arms = made(program, config).arms
  options = {with_changes(config, arm.changes).to_json_best_effort() for arm in made_arms}
  assert len(options) == len(made_arms)


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_the_command_in_a_programs_docstring_is_its_own(program):
  command = f"python -m experiments.ablations.{name_of(program)} --config=configs/quickstart.py"
  assert command in program.__doc__ and "arXiv 2512.04388" in program.__doc__
  assert importlib.import_module(program.__name__) is program  # needs no flag to be imported


def test_few_shot_arms_differ_in_their_examples_only():
  found = arms(few_shot)
  assert [(c.workflow.few_shot, c.workflow.few_shot_source) for c in found.values()] == [
      (0, "outside"), (4, "outside"), (4, "training")]
  assert {(c.rollout.max_prompt_tokens, c.model.max_positions) for c in found.values()} == {
      (256, 296)}


def test_subtasks_are_there_or_not():
  assert [c.workflow.subtasks for c in arms(subtasks).values()] == [True, False]


def test_access_lists_have_three_forms_and_are_emptied_in_the_second_measurement():
  assert [c.workflow.access for c in arms(access).values()] == ["binary", "positions", "none"]
  assert [each.strategy for each in access.ablation(quickstart.get_config()).measurements] == [
      "conductor", "conductor_without_access"]


def test_a_shape_of_the_configs_own_becomes_smaller_as_3b_is_smaller_than_7b():
  # 192 · 2048 / 3584 is 109.7; 768 · 11008 / 18944 is 446.3; 2 · 36 / 28 is 2.6 layers;
  # 6 · 16 / 28 is 3.4 heads and 2 · 2 / 4 one of keys.
  assert model_size.smaller_shape(quickstart.get_config()) == {
      "model.hidden_size": 112, "model.intermediate_size": 448, "model.num_layers": 3,
      "model.num_heads": 3, "model.num_kv_heads": 1}
  large, small = (parameter_count(model_shape(c)) for c in arms(model_size).values())
  assert small < 0.65 * large


def test_the_proportions_of_the_7b_shape_give_the_3b_shape():
  config = quickstart.get_config()
  large, small = SHAPES["qwen2.5-7b"], SHAPES["qwen2.5-3b"]
  names = ("hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads")
  config.model.update({name: getattr(large, name) for name in names})
  assert model_size.smaller_shape(config) == {f"model.{n}": getattr(small, n) for n in names}


def test_a_smaller_shape_is_one_that_its_mesh_divides():
  config = quickstart.get_config()
  config.mesh.update(dict(fsdp=4, tensor=2))
  check_arms(model_size.ablation(config), config)
  assert model_size.smaller_shape(config)["model.num_kv_heads"] == 2


def test_named_shapes_are_compared_by_name_and_weights_by_their_folders():
  named = arms(model_size, conductor7b.get_config())
  assert [c.model.name for c in named.values()] == ["qwen2.5-7b", "qwen2.5-3b"]
  config = conductor7b.get_config()
  config.model.weights = "LARGE"
  found = model_size.ablation(config, smaller="SMALL").arms
  assert [arm.changes for arm in found] == [{"model.weights": "LARGE"}, {"model.weights": "SMALL"}]


@pytest.mark.parametrize(("weights", "smaller"), [("LARGE", ""), ("", "SMALL")])
def test_weights_of_one_size_alone_are_one_line(weights, smaller):
  config = conductor7b.get_config()
  config.model.weights = weights
  with pytest.raises(UserError, match=(
      f"^--smaller={smaller} and --config.model.weights={weights}: name the weights of both")):
    model_size.ablation(config, smaller)


def test_the_reduced_pool_lacks_two_workers_and_every_arm_knows_it():
  found = arms(adaptive)
  for config in found.values():
    (name, group), = config.pool.groups
    assert name == "reduced" and set(group) == {
        "abacus-small", "scribe-medium", "scribe-small", "clerk-medium", "archivist-medium"}
  assert {name: (c.pool.offer, c.grpo.iterations, round(c.grpo.kl_coefficient, 6), c.sft.offer,
                 c.grpo.entropy_coefficient)
          for name, c in found.items()} == {
      "ordinary": ("all", 140, 0.3, "", 0.0), "fine-tuned": ("uniform:4-7", 140, 0.03, "", 0.0),
      "from-scratch": ("uniform:4-7", 280, 0.3, "uniform:1-4", 0.02),
      "longer": ("all", 280, 0.3, "uniform:1-4", 0.02)}
  made_now = adaptive.ablation(quickstart.get_config())
  assert [m.changes["evaluation.offer"] for m in made_now.measurements] == [
      "all", "groups:reduced"]
  assert [arm.after for arm in made_now.arms] == [None, "ordinary", None, None]


def test_a_model_that_can_read_already_is_taught_no_other_way():
  for each in arms(adaptive, conductor7b.get_config()).values():
    assert (each.sft.offer, each.sft.steps, each.grpo.entropy_coefficient) == ("", 0, 0.0)


def test_a_pool_of_three_workers_has_laws_too():
  config = quickstart.get_config()
  config.pool.source = "vllm"
  config.pool.vllm.update(dict(weights="FOLDER", workers=(("a", 0.0), ("b", 0.5), ("c", 1.0))))
  config.rollout.vllm.python = "PYTHON"
  config.tasks.update(dict(source="files", path="FOLDER"))
  check_arms(adaptive.ablation(config, without=["c"]), config)


def test_the_law_and_the_workers_left_out_are_the_users():
  config = quickstart.get_config()
  config.pool.groups = (("reduced", ("clerk-medium",)), ("two", ("clerk-medium", "scribe-small")))
  found = adaptive.ablation(config, "fixed:3", ["clerk-medium"])
  changes = found.arms[1].changes
  assert changes["pool.offer"] == "fixed:3" and "fixed:3" in found.title
  groups = dict(changes["pool.groups"])
  assert list(groups) == ["two", "reduced"] and len(groups["reduced"]) == 6
  assert "clerk-medium" not in groups["reduced"]


def test_who_cannot_be_left_out_is_one_line():
  with pytest.raises(UserError, match="^--without: there is no worker 'x', of "):
    adaptive.ablation(quickstart.get_config(), without=["x"])
  with pytest.raises(UserError, match="^--without must name workers .*, of gemini-2.5-pro, "):
    adaptive.ablation(conductor7b.get_config())


def test_recursive_arms_train_second_rounds_and_all_are_measured_with_one_to_three():
  found = recursion.ablation(quickstart.get_config())
  configs = arms(recursion)
  assert [c.grpo.recursion.share for c in configs.values()] == [0, 0.5, 0.5]
  assert {c.workflow.max_rounds for c in configs.values()} == {2}
  assert {(c.rollout.max_prompt_tokens, c.model.max_positions, c.pool.noise)
          for c in configs.values()} == {(192, 256, (("archivist-medium", 0.4),))}
  assert (found.arms[2].after, found.arms[2].changes["grpo.iterations"]) == ("ordinary", 14)
  assert [m.changes["workflow.max_rounds"] for m in found.measurements] == [1, 2, 3]


def test_second_rounds_of_the_papers_size_have_a_row_for_a_device_and_workers_as_they_are():
  config = arms(recursion, conductor7b.get_config())["recursive"]
  assert config.rollout.max_prompt_tokens == 4096 and config.pool.noise == ()
  assert config.grpo.recursion.micro_batches == 32


def test_rewards_are_the_papers_others_and_the_papers_less_a_price():
  terms = ("unparsed", "wrong", "right", "per_dollar", "per_thousand_tokens", "per_second")
  found = {name: tuple(config.reward[term] for term in terms)
           for name, config in arms(rewards).items()}
  assert found == {
      "0-0.5-1": (0, 0.5, 1, 0, 0, 0), "0-0.5-1.5": (0, 0.5, 1.5, 0, 0, 0),
      "0-0-1": (0, 0, 1, 0, 0, 0), "cost": (0, 0.5, 1, 800, 0, 0),
      "tokens": (0, 0.5, 1, 0, 1.25, 0)}


@pytest.mark.parametrize(("config", "dollars", "tokens"), [
    (quickstart.get_config(), 0.000036, 23), (conductor7b.get_config(), 0.0238 / 3, 1820 / 3)],
    ids=CONFIGS)
def test_a_step_is_priced_at_two_to_five_hundredths(config, dollars, tokens):
  found = arms(rewards, config)
  assert 0.02 <= found["cost"].reward.per_dollar * dollars <= 0.05
  assert 0.02 <= found["tokens"].reward.per_thousand_tokens * tokens / 1000 <= 0.05


@pytest.mark.parametrize(("get_config", "sizes"), [
    (quickstart.get_config, [16, 4, 8, 32]), (conductor7b.get_config, [64, 4, 8, 16, 32])],
    ids=CONFIGS)
def test_groups_of_all_sizes_have_as_many_rollouts_and_the_configs_own_comes_first(
    get_config, sizes):
  found = arms(group_size, get_config())
  assert [c.grpo.group_size for c in found.values()] == sizes
  assert {c.grpo.group_size * c.grpo.prompts for c in found.values()} == {256}


def test_rollouts_that_groups_cannot_share_are_one_line():
  config = quickstart.get_config()
  config.grpo.prompts = 3
  with pytest.raises(UserError, match="are 48 rollouts an iteration, which groups of 32 cannot"):
    group_size.ablation(config)


def test_clips_act_on_rollouts_that_may_be_one_update_old():
  found = arms(clipping)
  assert {(c.rollout.max_staleness, c.grpo.importance_cap) for c in found.values()} == {(1, 0)}
  bounds = partial(map, lambda c: (
      c.grpo.ratio, c.grpo.clip_low, c.grpo.clip_high, c.grpo.dual_clip))
  assert dict(zip(found, bounds(found.values()), strict=True)) == {
      "symmetric": ("token", 0.2, 0.2, 0), "higher": ("token", 0.2, 0.28, 0),
      "dual": ("token", 0.2, 0.2, 3), "sequence": ("sequence", 3e-4, 4e-4, 0)}
