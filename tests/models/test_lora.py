"""Low-rank adapters in the model's forward pass."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from conductor_jax.models.lora import TARGETS, LoraConfig, merge_trees, split_adapters
from conductor_jax.models.peft import merge_lora
from conductor_jax.models.qwen2 import Qwen2, Qwen2Config

CONFIG = Qwen2Config(
    vocab_size=32, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4,
    num_kv_heads=2, head_dim=4, max_positions=32)
GENERATOR = np.random.default_rng(0)
PROMPT = GENERATOR.integers(32, size=(2, 3))
PROMPT_MASK = np.array([[True, True, True], [True, False, False]])
COMPLETIONS = GENERATOR.integers(32, size=(2, 2, 4))


def model(targets):
  """Graph definition and parameters of a model with adapters of rank 3 on the targets."""
  lora = LoraConfig(rank=3, alpha=6.0, targets=targets) if targets else None
  graph, state = nnx.split(Qwen2(
      CONFIG, compute_dtype="float32", remat="none", lora=lora, rngs=nnx.Rngs(0)))
  return graph, nnx.to_pure_dict(state)


@partial(jax.jit, static_argnames="graph")
def outputs(graph, params):
  """Hidden states of the training pass, and of a prefill."""
  merged = nnx.merge(graph, params)
  return (merged.hidden_states(PROMPT, PROMPT_MASK, COMPLETIONS),
          merged.prefill(PROMPT, PROMPT_MASK)[0])


def drawn(adapters):
  """Adapters of which neither factor is 0."""
  generator = np.random.default_rng(1)
  return jax.tree.map(
      lambda x: jnp.asarray(generator.normal(0, 0.2, x.shape), jnp.float32), adapters)


def test_adapters_whose_second_factor_is_zero_leave_the_outputs_as_they_are():
  graph, params = model(TARGETS)
  adapters, base = split_adapters(params)
  for target in TARGETS:
    assert np.abs(adapters["layers"][f"{target}_lora_a"]).min(axis=(1, 2)).max() > 0
    assert not adapters["layers"][f"{target}_lora_b"].any()
  for ours, plain in zip(outputs(graph, params), outputs(model(())[0], base), strict=True):
    np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize("targets", [TARGETS, ("value", "down")])
def test_outputs_with_adapters_are_those_of_the_merged_weights(targets):
  graph, params = model(targets)
  adapters, base = split_adapters(params)
  adapters = drawn(adapters)
  plain, _ = model(())
  ours = outputs(graph, merge_trees(adapters, base))
  merged = outputs(plain, merge_lora(base, adapters, alpha=6.0))
  untouched = outputs(plain, base)
  for a, b, c in zip(ours, merged, untouched, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert np.abs(a - c).max() > 0.1


def test_splitting_and_merging_gives_the_parameters_back():
  _, params = model(("query", "gate"))
  adapters, base = split_adapters(params)
  assert sorted(adapters["layers"]) == [
      "gate_lora_a", "gate_lora_b", "query_lora_a", "query_lora_b"]
  assert list(adapters) == ["layers"]
  assert base.keys() == params.keys()
  assert not any("lora" in name for name in base["layers"])
  merged = merge_trees(adapters, base)
  assert jax.tree.structure(merged) == jax.tree.structure(params)
  jax.tree.map(np.testing.assert_array_equal, merged, params)


def test_without_anything_frozen_the_trained_parameters_are_all():
  _, params = model(())
  assert merge_trees(params, None) is params
