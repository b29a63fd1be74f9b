"""Named shapes against the hub's published parameter counts."""

import jax
import pytest
from flax import nnx

from conductor_jax.models.qwen2 import Qwen2
from conductor_jax.models.shapes import SHAPES, abstract_parameters, parameter_count


@pytest.mark.parametrize("name, count", [
    ("qwen2.5-0.5b", 494_032_768),
    ("qwen2.5-1.5b", 1_543_714_304),
    ("qwen2.5-3b", 3_085_938_688),
    ("qwen2.5-7b", 7_615_616_512),
    ("qwen2.5-14b", 14_770_033_664),
    ("qwen2.5-32b", 32_763_876_352),
    # The hub's 134,515,008, and 30 layers' biases of 576 queries, 192 keys and 192 values.
    ("smollm2-135m", 134_515_008 + 30 * 960),
])
def test_a_named_shape_has_the_published_number_of_parameters(name, count):
  assert parameter_count(SHAPES[name]) == count


@pytest.mark.parametrize("name", ["qwen2.5-0.5b", "qwen2.5-7b"])
def test_abstract_parameters_are_the_models(name):
  model = nnx.eval_shape(lambda: Qwen2(
      SHAPES[name], compute_dtype="bfloat16", remat="full", rngs=nnx.Rngs(0)))
  expected = nnx.to_pure_dict(nnx.split(model)[1])
  actual = abstract_parameters(SHAPES[name])
  assert jax.tree.structure(actual) == jax.tree.structure(expected)
  assert jax.tree.leaves(actual) == jax.tree.leaves(expected)


def test_abstract_parameters_have_the_dtype_asked_for():
  leaves = jax.tree.leaves(abstract_parameters(SHAPES["smollm2-135m"], "bfloat16"))
  assert {leaf.dtype.name for leaf in leaves} == {"bfloat16"}
