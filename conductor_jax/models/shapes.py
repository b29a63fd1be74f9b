"""Named shapes, and what a shape says of a model's parameters.

Values of config.json on the hub: those of Qwen2.5-*-Instruct (arXiv 2412.15115) and of
SmolLM2-135M-Instruct (arXiv 2502.02737). The base models of 14B and 32B differ in `norm_eps`, 1e-5,
and some in `max_positions`; a downloaded checkpoint is described by its own config.json.
"""

import jax
from flax import nnx

from conductor_jax.models.qwen2 import Qwen2, Qwen2Config


def _qwen(
    width: int, mlp: int, layers: int, heads: int, kv_heads: int, *, head_dim: int = 128,
    vocab: int = 151_936, tied: bool = True
) -> Qwen2Config:
  return Qwen2Config(
      vocab_size=vocab, hidden_size=width, intermediate_size=mlp, num_layers=layers,
      num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, max_positions=32_768, tied=tied)


SHAPES: dict[str, Qwen2Config] = {
    "qwen2.5-0.5b": _qwen(896, 4_864, 24, 14, 2, head_dim=64),
    "qwen2.5-1.5b": _qwen(1_536, 8_960, 28, 12, 2),
    "qwen2.5-3b": _qwen(2_048, 11_008, 36, 16, 2),
    "qwen2.5-7b": _qwen(3_584, 18_944, 28, 28, 4, vocab=152_064, tied=False),
    "qwen2.5-14b": _qwen(5_120, 13_824, 48, 40, 8, vocab=152_064, tied=False),
    "qwen2.5-32b": _qwen(5_120, 27_648, 64, 40, 8, vocab=152_064, tied=False),
    # Llama's layout is Qwen2's with biases of zero.
    "smollm2-135m": Qwen2Config(
        vocab_size=49_152, hidden_size=576, intermediate_size=1_536, num_layers=30, num_heads=9,
        num_kv_heads=3, head_dim=64, max_positions=8_192, rope_theta=100_000.0, norm_eps=1e-5),
}


def abstract_parameters(config: Qwen2Config, dtype: str = "float32") -> dict:
  """Shape and dtype of every parameter, a nested dict like the parameters themselves."""
  model = nnx.eval_shape(lambda: Qwen2(
      config, compute_dtype=dtype, param_dtype=dtype, remat="none", rngs=nnx.Rngs(0)))
  return nnx.to_pure_dict(nnx.split(model)[1])


def parameter_count(config: Qwen2Config) -> int:
  """How many numbers the parameters are; Llama's missing biases are counted, as they are held."""
  return sum(leaf.size for leaf in jax.tree.leaves(abstract_parameters(config)))
