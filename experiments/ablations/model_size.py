"""What the size of the conductor is worth: the shapes of Qwen2.5-7B and 3B.

    python -m experiments.ablations.model_size --config=configs/conductor7b.py \\
        --workdir=runs/model-size --config.model.weights=Qwen2.5-7B-Instruct \\
        --smaller=Qwen2.5-3B-Instruct --config.tasks.path=DIR

    python -m experiments.ablations.model_size --config=configs/quickstart.py \\
        --workdir=runs/model-size

`--smaller` names the weights of the smaller model where the config names those of the larger one.
Where the config has a shape of its own, that is compared with one that is smaller as 3B is than 7B:
narrower, and deeper.

The paper (arXiv 2512.04388) compares the two on the same questions and workers; its 7B conductor
has a mean of 72.35 over MATH-500, MMLU, RLPR and LiveCodeBench.
"""

from typing import Any

from absl import flags
from ml_collections import ConfigDict

from conductor_jax.errors import UserError
from conductor_jax.models.shapes import SHAPES
from experiments.ablations.ablation import Ablation, Arm
from experiments.ablations.grid import run

_LARGE, _SMALL = "qwen2.5-7b", "qwen2.5-3b"
# Of a hidden size and that of an MLP.
_MULTIPLE = 16


def ablation(config: ConfigDict, smaller: str = "") -> Ablation:
  """
  Args:
    config: the options.
    smaller: weights of the smaller model, where the config has those of a larger one.

  Raises:
    UserError: one of the two has weights, and the other has none.
  """
  if bool(config.model.weights) != bool(smaller):
    raise UserError(
        f"--smaller={smaller} and --config.model.weights={config.model.weights}: name the weights "
        "of both models, or of none")
  if smaller:
    sizes = ({"model.weights": config.model.weights}, {"model.weights": smaller})
  elif config.model.name:
    sizes = ({"model.name": _LARGE}, {"model.name": _SMALL})
  else:
    sizes = ({}, smaller_shape(config))
  return Ablation("Size of the conductor", (Arm("7b", sizes[0]), Arm("3b", sizes[1])))


def smaller_shape(config: ConfigDict) -> dict[str, Any]:
  """The config's shape in the proportions of 3B to 7B, rounded to what a mesh can divide."""
  model, mesh = config.model, config.mesh
  large, small = SHAPES[_LARGE], SHAPES[_SMALL]

  def scaled(name: str, multiple: int = 1) -> int:
    size = model[name] * getattr(small, name) / getattr(large, name)
    return max(round(size / multiple), 1) * multiple

  kv_heads = scaled("num_kv_heads", mesh.tensor)
  return {
      "model.hidden_size": scaled("hidden_size", _MULTIPLE * mesh.fsdp),
      "model.intermediate_size": scaled("intermediate_size", _MULTIPLE * mesh.fsdp * mesh.tensor),
      "model.num_layers": scaled("num_layers"), "model.num_kv_heads": kv_heads,
      "model.num_heads": scaled("num_heads", kv_heads)}


def _main() -> None:
  smaller = flags.DEFINE_string("smaller", "", "The weights of the smaller model.")
  run(lambda config: ablation(config, smaller.value))


if __name__ == "__main__":
  _main()
