"""What an ablation is: arms that are trained, and measurements that are taken of each."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from conductor_jax.config_checks import check_config, check_shape
from conductor_jax.errors import UserError
from experiments.components import make_offers, worker_names
from experiments.policy import model_shape
from experiments.strategies import strategy_names

# Names are those of folders.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Arm:
  """One way to train.

  Attributes:
    name: also of its folder.
    changes: options by their keys in the config, such as "grpo.group_size".
    after: an earlier arm whose policy of the same seed this one goes on from, without a warm start;
      None begins anew.
  """

  name: str
  changes: Mapping[str, Any] = field(default_factory=dict)
  after: str | None = None


@dataclass(frozen=True)
class Measurement:
  """One evaluation of every trained policy.

  Attributes:
    name: also of its folder.
    changes: options that differ from those in training.
    strategy: how tasks are answered, a name in `experiments.strategies`.
  """

  name: str = "heldout"
  changes: Mapping[str, Any] = field(default_factory=dict)
  strategy: str = "conductor"


@dataclass(frozen=True)
class Ablation:
  """Arms that are compared with the first one.

  Attributes:
    title: says what is compared.
    arms: in the order that they are trained in.
    measurements: taken of each.

  Raises:
    ValueError: two arms or measurements have one name, a name is no folder's, or an arm goes on
      from none that comes before it.
  """

  title: str
  arms: Sequence[Arm]
  measurements: Sequence[Measurement] = (Measurement(),)

  def __post_init__(self):
    for parts in (self.arms, self.measurements):
      names = [part.name for part in parts]
      if len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
        raise ValueError(f"names must be different ones of folders: {names}")
    for number, arm in enumerate(self.arms):
      if arm.after is not None and arm.after not in [each.name for each in self.arms[:number]]:
        raise ValueError(f"{arm.name} goes on from {arm.after}, which is no earlier arm")

  def chosen(self, names: Sequence[str]) -> list[Arm]:
    """The arms of these names, all where there are none, and those that they go on from.

    Raises:
      UserError: there is no arm of a name.
    """
    known = {arm.name: arm for arm in self.arms}
    wanted = set(names or known)
    if unknown := wanted - known.keys():
      raise UserError(f"--arms: there is no arm {min(unknown)!r}: choose from {', '.join(known)}")
    for arm in reversed(self.arms):
      if arm.name in wanted and arm.after is not None:
        wanted.add(arm.after)
    return [arm for arm in self.arms if arm.name in wanted]


# Makes an ablation of a config; raises UserError where the config has nothing to compare.
MakeAblation = Callable[[ConfigDict], Ablation]


def with_changes(config: ConfigDict, changes: Mapping[str, Any]) -> ConfigDict:
  """A copy with other values of some options, each of the type that it had.

  Raises:
    KeyError, TypeError: there is no such option, or it is of another type.
  """
  changed = config.copy_and_resolve_references().lock()
  changed.update_from_flattened_dict(changes)
  return changed


def has_own_shape(config: ConfigDict) -> bool:
  """Whether the model's shape is that of the options, and not of a name or of weights."""
  return not (config.model.weights or config.model.name)


def room(config: ConfigDict, more: int) -> dict[str, int]:
  """Changes by which prompts may have more tokens, where the model has a shape of its own.

  Named shapes and weights have room, and so have the configs with them.

  Args:
    config: the options.
    more: tokens than its prompts may have.
  """
  if not has_own_shape(config):
    return {}
  prompt = config.rollout.max_prompt_tokens + more
  return {"rollout.max_prompt_tokens": prompt, "model.max_positions": max(
      config.model.max_positions, prompt + config.rollout.max_completion_tokens)}


def policy_folder(workdir: Path, arm: str, seed: int) -> Path:
  """Where the policy of a run lies for arms that go on from it."""
  return run_folder(workdir, arm, seed) / "policy"


def run_folder(workdir: Path, arm: str, seed: int) -> Path:
  """The work directory of an arm's run."""
  return workdir / arm / f"seed-{seed}"


def training_config(config: ConfigDict, arm: Arm, seed: int, workdir: Path) -> ConfigDict:
  """The options that an arm is trained with.

  Args:
    config: that all arms share.
    arm: which one.
    seed: of the run.
    workdir: of the grid.
  """
  changed = with_changes(config, {**arm.changes, "seed": seed})
  if arm.after is not None:
    # Whatever folder the next session is started in.
    folder = policy_folder(workdir.absolute(), arm.after, seed)
    changed.update_from_flattened_dict({"model.weights": str(folder), "sft.steps": 0})
  return changed


def check_arms(ablation: Ablation, config: ConfigDict) -> None:
  """Checks the options of all arms and measurements, before anything is trained.

  Raises:
    UserError: those of one cannot work; names it.
  """
  strategy_names([each.strategy for each in ablation.measurements], worker_names(config))
  for arm in ablation.arms:
    for name, changes in (("training", {}), *(
        (each.name, each.changes) for each in ablation.measurements)):
      own = with_changes(config, {**arm.changes, **changes})
      try:
        check_config(own)
        check_shape(own, model_shape(own))
        make_offers(own)
      except UserError as fault:
        raise UserError(f"{arm.name}, {name}: {fault}") from fault
