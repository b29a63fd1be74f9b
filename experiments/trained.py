"""What a training run has made: its options, and the policy of its newest checkpoint."""

import hashlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from conductor_jax.config import default_config
from conductor_jax.config_checks import check_shape
from conductor_jax.errors import UserError
from conductor_jax.training.checkpoint import Checkpoints
from conductor_jax.training.step import TrainState
from experiments.policy import Policy, abstract_policy, load_policy, model_shape, open_mesh
from experiments.steps import grpo_step, sft_step


def read_run_config(workdir: Path, flag: str) -> ConfigDict:
  """The options that a run was started with.

  Args:
    workdir: its work directory.
    flag: that named it.

  Raises:
    UserError: there is no run in the work directory, or its config cannot be read.
  """
  path = workdir / "config.json"
  config = default_config()
  try:
    config.update(json.loads(path.read_text()))
  except FileNotFoundError as fault:
    raise UserError(
        f"--{flag}={workdir}: there is no run in it, it has no {path.name}") from fault
  except (OSError, ValueError, TypeError, KeyError) as fault:
    raise UserError(f"{path} cannot be read: {fault}") from fault
  return config


def newest_state(
    workdir: Path, config: ConfigDict, policy: Policy, purpose: str) -> tuple[str, int, TrainState]:
  """The phase, step and state of a run's newest checkpoint, for a policy in shapes.

  Args:
    workdir: the run's.
    config: its options.
    policy: of these options.
    purpose: what the checkpoint is wanted for, a verb.

  Raises:
    UserError: there is no checkpoint, or none that can be read.
  """
  for phase, build in (("grpo", partial(grpo_step, reference=None)), ("sft", sft_step)):
    folder = (workdir / "checkpoints" / phase).absolute()
    # A phase that has begun has its folder, and not yet a checkpoint.
    if not folder.exists():
      continue
    checkpoints = Checkpoints(folder, keep=config.checkpoint.keep, say=print)
    found = checkpoints.restore(build(config, policy, compile_only=True)[1])
    checkpoints.close()
    if found is not None:
      return phase, *found[:2]
  raise UserError(
      f"{workdir} has no checkpoint yet: {purpose} when the run has written one")


class Trained(NamedTuple):
  """A policy that a run has trained.

  Attributes:
    config: the run's options, with the mesh that the policy is on.
    policy: in arrays.
    step: how many steps of its last phase it was trained.
    variant: which one it is: the phase, these steps, and a digest of the run's options.
  """

  config: ConfigDict
  policy: Policy
  step: int
  variant: str


def trained_policy(workdir: Path, mesh: ConfigDict) -> Trained:
  """The policy of a run's newest checkpoint, on another mesh than the run's own.

  Raises:
    UserError: there is no such run or checkpoint, or it does not fit the mesh.
  """
  config = read_run_config(workdir, "run")
  digest = _digest(config)
  config.mesh.update(mesh)
  check_shape(config, model_shape(config))
  shapes = abstract_policy(config, open_mesh(config))
  phase, step, state = newest_state(workdir, config, shapes, "evaluate")
  # What else the optimizer keeps would fill the devices.
  jax.tree.map(lambda leaf: leaf.delete(), state.optimizer)
  frozen = None if shapes.frozen is None else load_policy(config, shapes.mesh).frozen
  policy = replace(shapes, trained=state.params, frozen=frozen)
  return Trained(config, policy, step, f"{phase} after step {step} of run {digest}")


def _digest(config: ConfigDict) -> str:
  """32 bits of the options, but for the budget, which may change while a run goes on."""
  options = json.loads(config.to_json_best_effort())
  del options["pool"]["budget"]
  return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:8]
