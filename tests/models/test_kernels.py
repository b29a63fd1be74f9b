"""Every way to attend over rows, against a plain masked softmax over whole rows."""

from functools import partial

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from conductor_jax.models import attention
from conductor_jax.models.attention import KeyValues
from conductor_jax.models.kernels import blockwise, cudnn, splash_attention

ROWS, PROMPT, SAMPLES, LENGTH, HEADS, KV_HEADS, HEAD_DIM = 2, 24, 3, 16, 4, 2, 128
TOKENS = PROMPT + SAMPLES * LENGTH
PROMPT_MASK = np.arange(PROMPT) < np.array([[24], [9]])
REAL = np.concatenate([PROMPT_MASK, np.ones((ROWS, SAMPLES * LENGTH), bool)], axis=1)

GENERATOR = np.random.default_rng(0)
QUERY = GENERATOR.normal(size=(ROWS, TOKENS, HEADS, HEAD_DIM)).astype(np.float32)
KEYS, VALUES = GENERATOR.normal(size=(2, ROWS, TOKENS, KV_HEADS, HEAD_DIM)).astype(np.float32)
WEIGHTS = GENERATOR.normal(size=QUERY.shape).astype(np.float32) * REAL[..., None, None]


def plain(query, own, prompt_mask, samples):
  place = np.arange(TOKENS)
  part = np.where(place < PROMPT, -1, (place - PROMPT) // LENGTH)
  seen = (place[:, None] >= place) & ((part == -1) | (part[:, None] == part))
  mask = seen & REAL[:, None]
  keys, values = (jnp.repeat(x, HEADS // KV_HEADS, axis=2) for x in own)
  scores = jnp.einsum("rqhd,rkhd->rhqk", query, keys) / jnp.sqrt(HEAD_DIM)
  weights = jax.nn.softmax(jnp.where(mask[:, None], scores, -jnp.inf))
  return jnp.einsum("rhqk,rkhd->rqhd", weights, values)


def outcome(attend):
  """Attention of the real tokens, and the gradients of a weighted sum of it."""
  def objective(query, keys, values):
    attended = jnp.where(
        REAL[..., None, None], attend(query, KeyValues(keys, values), PROMPT_MASK, SAMPLES), 0)
    return jnp.sum(attended * WEIGHTS), attended

  gradients, attended = jax.jit(jax.grad(objective, argnums=(0, 1, 2), has_aux=True))(
      QUERY, KEYS, VALUES)
  return attended, *gradients


@pytest.fixture(scope="module")
def expected():
  return outcome(plain)


# Blocks of 512 queries hold everything, blocks of 20 one completion at a time, and blocks of 7
# split prompts and completions both.
@pytest.mark.parametrize("block", [512, 40, 20, 7])
def test_blockwise_attention_is_exact_whatever_the_block(expected, monkeypatch, block):
  monkeypatch.setattr(attention, "BLOCK", block)
  for actual, wanted in zip(outcome(blockwise), expected, strict=True):
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attend", [
    pytest.param(partial(cudnn, implementation="xla"), id="expanded"),
    pytest.param(partial(splash_attention, interpret=True), id="splash"),
])
def test_the_kernels_of_platforms_are_given_what_makes_them_exact(expected, attend):
  for actual, wanted in zip(outcome(attend), expected, strict=True):
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def largest_product(length):
  """Elements of the largest product within attention of a row of one prompt, gradient included."""
  query = jax.ShapeDtypeStruct((1, 3 * length, 1, 2), jnp.float32)
  own = KeyValues(query, query)
  program = jax.make_jaxpr(jax.grad(
      lambda query, own: blockwise(query, own, jnp.ones((1, length), bool), 2).sum(),
      argnums=(0, 1)))(query, own)

  def sizes(jaxpr):
    for equation in jaxpr.eqns:
      if equation.primitive.name == "dot_general":
        yield equation.outvars[0].aval.size
      for inner in jax.extend.core.jaxprs_in_params(equation.params):
        yield from sizes(inner)

  return max(sizes(program.jaxpr))


def test_scores_exist_for_one_block_of_queries_at_a_time(monkeypatch):
  monkeypatch.setattr(attention, "BLOCK", 16)
  # A block of a completion sees its prompt and its own tokens, in two products.
  assert largest_product(64) == 16 * 64
  assert largest_product(256) == 16 * 256
