from pathlib import Path

import pytest

from conductor_jax.errors import UserError
from configs import conductor7b, quickstart
from experiments.ablations.ablation import (
    Ablation,
    Arm,
    Measurement,
    check_arms,
    room,
    training_config,
    with_changes,
)

A, B, C = Arm("a"), Arm("b", after="a"), Arm("c", after="b")


def test_changes_are_made_to_a_copy():
  config = quickstart.get_config()
  changed = with_changes(config, {"grpo.group_size": 4, "pool.groups": (("one", ("x",)),)})
  assert (changed.grpo.group_size, changed.pool.groups) == (4, (("one", ("x",)),))
  assert (config.grpo.group_size, config.pool.groups) == (16, ())


@pytest.mark.parametrize(("changes", "fault"), [
    ({"grpo.groupsize": 4}, KeyError), ({"grpo.group_size": "four"}, TypeError)])
def test_a_change_of_no_option_or_to_another_type_is_refused(changes, fault):
  with pytest.raises(fault):
    with_changes(quickstart.get_config(), changes)


@pytest.mark.parametrize("parts", [
    dict(arms=(A, A)), dict(arms=(Arm("a/b"),)), dict(arms=(Arm(".."),)), dict(arms=(B,)),
    dict(arms=(B, A)), dict(arms=(A,), measurements=(Measurement("m"), Measurement("m")))])
def test_arms_that_cannot_be_told_apart_or_go_on_from_nothing_are_refused(parts):
  with pytest.raises(ValueError, match="names must be|no earlier arm"):
    Ablation("Title", **parts)


def test_arms_are_chosen_with_those_that_they_go_on_from_in_their_order():
  ablation = Ablation("Title", (A, B, Arm("d"), C))
  assert ablation.chosen(["c"]) == [A, B, C]
  assert ablation.chosen(["d", "a"]) == [A, Arm("d")]
  assert ablation.chosen([]) == list(ablation.arms)


def test_an_arm_that_is_not_there_is_refused_in_one_line():
  with pytest.raises(UserError, match=r"^--arms: there is no arm 'x': choose from a, b$"):
    Ablation("Title", (A, B)).chosen(["a", "x"])


def test_an_arm_after_another_starts_from_its_policy_of_the_same_seed_without_a_warm_start():
  config = training_config(quickstart.get_config(), B, 3, Path("/grid"))
  assert (config.model.weights, config.sft.steps, config.seed) == ("/grid/a/seed-3/policy", 0, 3)
  config = training_config(quickstart.get_config(), A, 3, Path("/grid"))
  assert (config.model.weights, config.sft.steps, config.seed) == ("", 300, 3)


@pytest.mark.parametrize(("arms", "measurements", "line"), [
    ((A, Arm("b", {"grpo.group_size": 1})), (Measurement(),), "^b, training: --config.grpo.group"),
    ((A,), (Measurement("many", {"workflow.max_rounds": 0}),),
     "^a, many: --config.workflow.max_rounds=0: must be above 0"),
    ((Arm("long", {"rollout.max_prompt_tokens": 999}),), (Measurement(),),
     "^long, training: --config.rollout.max_prompt_tokens=999"),
    ((Arm("many", {"pool.offer": "fixed:8"}),), (Measurement(),),
     "^many, training: --config.pool.offer: 'fixed:8' asks for 8 workers"),
    ((A,), (Measurement(strategy="oracle"),), "^--strategies: there is no strategy 'oracle'")])
def test_options_that_cannot_work_are_one_line_that_names_the_arm(arms, measurements, line):
  with pytest.raises(UserError, match=line) as fault:
    check_arms(Ablation("Title", arms, measurements), quickstart.get_config())
  assert "\n" not in str(fault.value)


def test_room_is_made_in_a_shape_of_the_configs_own_only():
  assert room(quickstart.get_config(), 100) == {
      "rollout.max_prompt_tokens": 196, "model.max_positions": 256}
  assert room(quickstart.get_config(), 200) == {
      "rollout.max_prompt_tokens": 296, "model.max_positions": 336}
  assert room(conductor7b.get_config(), 200) == {}
