"""Writes a run's policy as a Hugging Face checkpoint, which transformers and vLLM load.

    python -m experiments.export --workdir=runs/quickstart --output=runs/quickstart/policy

It takes the newest checkpoint of GRPO, or of the warm start where RL has not begun. Of a run that
trained adapters it writes these, in PEFT's format; `--merge` writes the whole model instead, with
the adapters merged into its weights.
"""

import json
from pathlib import Path

import jax
from absl import flags
from ml_collections import ConfigDict

from conductor_jax.config import default_config
from conductor_jax.errors import UserError
from conductor_jax.models.hf import export_safetensors
from conductor_jax.models.peft import export_peft, merge_lora
from conductor_jax.models.tokenizer import load_tokenizer
from conductor_jax.training.checkpoint import Checkpoints
from experiments.policy import load_policy, open_mesh
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
    raise UserError(f"there is no run in {workdir}: it has no {path.name}") from fault
  except (OSError, ValueError, TypeError, KeyError) as fault:
    raise UserError(f"{path} cannot be read: {fault}") from fault
  return config


def export() -> None:
  """Reads the newest checkpoint and writes it in another format."""
  workdir, output = Path(_WORKDIR.value), Path(_OUTPUT.value)
  config = read_run_config(workdir)
  policy = load_policy(config, open_mesh(config))
  for phase, build in (("grpo", lambda: grpo_step(config, policy, None)),
                       ("sft", lambda: sft_step(config, policy))):
    folder = workdir / "checkpoints" / phase
    if folder.exists():
      break
  else:
    raise UserError(f"{workdir} has no checkpoint yet")
  checkpoints = Checkpoints(folder.absolute(), keep=config.checkpoint.keep, say=print)
  found = checkpoints.restore(build()[1])
  checkpoints.close()
  if found is None:
    raise UserError(f"{workdir} has no checkpoint yet")
  step, state, _ = found
  if policy.frozen is None or _MERGE.value:
    params = policy.whole(state.params)
    if policy.frozen is not None:
      params = merge_lora(policy.frozen, state.params, config.model.lora_alpha)
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
