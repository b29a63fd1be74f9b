"""Writes a run's policy as a Hugging Face checkpoint, which transformers and vLLM load.

    python -m experiments.export --workdir=runs/quickstart --output=runs/quickstart/policy

It takes the newest checkpoint of GRPO, or of the warm start where RL has not begun. Of a run that
trained adapters it writes these, in PEFT's format; `--merge` writes the whole model instead, with
the adapters merged into its weights.
"""

import json
from functools import partial
from pathlib import Path

import jax
from absl import flags
from ml_collections import ConfigDict

from conductor_jax.config import default_config
from conductor_jax.config_checks import check_shape
from conductor_jax.errors import UserError
from conductor_jax.models.hf import export_safetensors
from conductor_jax.models.peft import export_peft, merge_lora
from conductor_jax.models.tokenizer import load_tokenizer
from conductor_jax.models.whole_folder import is_free
from conductor_jax.training.checkpoint import Checkpoints
from conductor_jax.training.step import TrainState
from experiments.policy import Policy, abstract_policy, load_policy, model_shape, open_mesh
from experiments.program import start
from experiments.steps import grpo_step, sft_step

_WORKDIR = flags.DEFINE_string("workdir", None, "The work directory of the run.")
_OUTPUT = flags.DEFINE_string("output", None, "The folder to write; it is not there, or empty.")
_MERGE = flags.DEFINE_bool("merge", False, "Merges adapters into the weights.")
_DTYPE = flags.DEFINE_enum(
    "dtype", "bfloat16", ["bfloat16", "float32"], "Of the tensors in the files.")


def read_run_config(workdir: Path) -> ConfigDict:
  """The options that a run was started with.

  Raises:
    UserError: there is no run in the work directory, or its config cannot be read.
  """
  path = workdir / "config.json"
  config = default_config()
  try:
    config.update(json.loads(path.read_text()))
  except FileNotFoundError as fault:
    raise UserError(
        f"--workdir={workdir}: there is no run in it, it has no {path.name}") from fault
  except (OSError, ValueError, TypeError, KeyError) as fault:
    raise UserError(f"{path} cannot be read: {fault}") from fault
  return config


def newest_state(
    workdir: Path, config: ConfigDict, policy: Policy) -> tuple[str, int, TrainState]:
  """The phase, step and state of a run's newest checkpoint, for a policy in shapes.

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
  raise UserError(f"{workdir} has no checkpoint yet: export when the run has written one")


def export() -> None:
  """Reads the newest checkpoint and writes it in another format."""
  workdir, output = Path(_WORKDIR.value), Path(_OUTPUT.value)
  # Known before anything large is read.
  if not is_free(output):
    raise UserError(f"--output={output} exists: remove it, or name another folder to write to")
  config = read_run_config(workdir)
  # The run's own mesh may be one of devices that are not here.
  config.mesh.update(dict(data=1, fsdp=jax.device_count(), tensor=1))
  check_shape(config, model_shape(config))
  policy = abstract_policy(config, open_mesh(config))
  phase, step, state = newest_state(workdir, config, policy)
  if policy.frozen is None or _MERGE.value:
    params = state.params
    if policy.frozen is not None:
      params = merge_lora(
          load_policy(config, policy.mesh).frozen, params, config.model.lora_alpha)
    export_safetensors(
        output, params, policy.shape, _DTYPE.value,
        tokenizer=load_tokenizer(workdir / "tokenizer"))
  else:
    export_peft(
        output, state.params, alpha=config.model.lora_alpha, base_model=config.model.weights,
        dtype=_DTYPE.value)
  size = sum(path.stat().st_size for path in output.iterdir()) / 2**20
  if not jax.process_index():
    print(f"{output}: {phase} after step {step}, {size:.1f} MiB")


if __name__ == "__main__":
  start(export, ["workdir", "output"])
