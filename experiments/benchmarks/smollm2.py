"""What the benchmarks on SmolLM2-135M share."""

import sys

from transformers import PreTrainedTokenizerBase

from conductor_jax.models.gguf import gguf_config, load_gguf, read_gguf, smollm2_path
from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.models.shapes import abstract_parameters
from conductor_jax.models.tokenizer import gguf_tokenizer
from conductor_jax.training.sharding import make_mesh, parameter_shardings


def load_policy(dtype: str) -> tuple[Qwen2Config, PreTrainedTokenizerBase, dict]:
  """Shape, tokenizer and parameters of the model, on one device."""
  file = read_gguf(smollm2_path())
  config = gguf_config(file)
  shardings = parameter_shardings(make_mesh(1, 1, 1), abstract_parameters(config))
  return config, gguf_tokenizer(file), load_gguf(file, config, shardings, dtype)


def say(line: str) -> None:
  """Prints a line of progress; standard output is for the result alone."""
  print(line, file=sys.stderr)
