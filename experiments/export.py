"""Writes a run's policy as a Hugging Face checkpoint, which transformers and vLLM load.

    python -m experiments.export --workdir=runs/quickstart --output=runs/quickstart/policy

It takes the newest checkpoint of GRPO, or of the warm start where RL has not begun. Of a run that
trained adapters it writes these, in PEFT's format; `--merge` writes the whole model instead, with
the adapters merged into its weights.
"""

from pathlib import Path

import jax
from absl import flags

from conductor_jax.config_checks import check_shape
from conductor_jax.errors import UserError
from conductor_jax.models.hf import export_safetensors
from conductor_jax.models.peft import export_peft, merge_lora
from conductor_jax.models.tokenizer import load_tokenizer
from conductor_jax.models.whole_folder import is_free
from experiments.policy import abstract_policy, load_policy, model_shape, open_mesh
from experiments.program import start
from experiments.trained import newest_state, read_run_config


def export(
    workdir: Path, output: Path, *, merge: bool = False, dtype: str = "bfloat16") -> None:
  """Reads the newest checkpoint and writes it in another format.

  Args:
    workdir: of the run.
    output: the folder to write; it is not there, or empty.
    merge: whether adapters are merged into the weights.
    dtype: of the tensors in the files, "bfloat16" or "float32".

  Raises:
    UserError: there is no run or checkpoint, or the folder is not free or cannot be written.
  """
  # Known before anything large is read.
  if not is_free(output):
    raise UserError(f"--output={output} exists: remove it, or name another folder to write to")
  config = read_run_config(workdir, "workdir")
  # The run's own mesh may be one of devices that are not here.
  config.mesh.update(dict(data=1, fsdp=jax.device_count(), tensor=1))
  check_shape(config, model_shape(config))
  policy = abstract_policy(config, open_mesh(config))
  phase, step, state = newest_state(workdir, config, policy, "export")
  if policy.frozen is None or merge:
    params = state.params
    if policy.frozen is not None:
      params = merge_lora(
          load_policy(config, policy.mesh).frozen, params, config.model.lora_alpha)
    export_safetensors(
        output, params, policy.shape, dtype,
        tokenizer=load_tokenizer(workdir / "tokenizer"))
  else:
    export_peft(
        output, state.params, alpha=config.model.lora_alpha, base_model=config.model.weights,
        dtype=dtype)
  size = sum(path.stat().st_size for path in output.iterdir()) / 2**20
  if not jax.process_index():
    print(f"{output}: {phase} after step {step}, {size:.1f} MiB")


def _main() -> None:
  workdir = flags.DEFINE_string("workdir", None, "The work directory of the run.")
  output = flags.DEFINE_string("output", None, "The folder to write; it is not there, or empty.")
  merge = flags.DEFINE_bool("merge", False, "Merges adapters into the weights.")
  dtype = flags.DEFINE_enum(
      "dtype", "bfloat16", ["bfloat16", "float32"], "Of the tensors in the files.")
  start(lambda: export(
      Path(workdir.value), Path(output.value), merge=merge.value, dtype=dtype.value),
      ["workdir", "output"])


if __name__ == "__main__":
  _main()
