"""The environment of all tests, and what several of them share."""

import functools
import os

import pytest

# All must stand before jax is imported. Tolerances are those of float32 on a CPU, and programs this
# small take longer to optimise than to run: XLA's plainer code generator compiles them in a third
# of the time.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")


@pytest.fixture(scope="session")
def benchmarks() -> str:
  """A directory of real benchmark files, where there is one."""
  path = os.environ.get("CONDUCTOR_BENCHMARKS")
  if not path:
    pytest.skip("CONDUCTOR_BENCHMARKS does not name a directory of benchmark files")
  return path


@pytest.fixture(scope="session")
def smollm2_file():
  """The GGUF file with the weights of SmolLM2-135M, where its package is installed."""
  from conductor_jax.errors import UserError
  from conductor_jax.models.gguf import smollm2_path

  # Found, not imported: the import would want llama.cpp.
  try:
    return smollm2_path()
  except UserError as fault:
    pytest.skip(str(fault))


@pytest.fixture(scope="session")
def tiny_model():
  """A function (tied, remat) → graph definition and parameters of a float32 model.

  The parameters are random, norms and biases included, and the same for every remat policy.
  Vocabulary 31, width 16, 2 layers, 4 heads of width 4, 2 key-value heads.
  """
  # Tests without arrays do not wait for these imports.
  import jax
  import jax.numpy as jnp
  import numpy as np
  from flax import nnx

  from conductor_jax.models.qwen2 import Qwen2, Qwen2Config

  @functools.cache
  def build(tied=True, remat="none"):
    config = Qwen2Config(
        vocab_size=31, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4,
        num_kv_heads=2, head_dim=4, max_positions=64, rope_theta=100.0, tied=tied)
    graph, state = nnx.split(nnx.eval_shape(
        lambda: Qwen2(config, compute_dtype="float32", remat=remat, rngs=nnx.Rngs(0))))
    generator = np.random.default_rng(7)

    def values(path, shape):
      centre = 1.0 if "norm" in path[-1].key else 0.0
      return jnp.asarray(generator.normal(centre, 0.2, shape.shape), jnp.float32)

    return graph, jax.tree_util.tree_map_with_path(values, nnx.to_pure_dict(state))

  return build
