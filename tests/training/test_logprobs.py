"""Chunked log-probabilities, entropy and KL against the plain softmax."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conductor_jax.training.logprobs import token_statistics

GENERATOR = np.random.default_rng(0)
HIDDEN = GENERATOR.normal(size=(2, 5, 6)).astype(np.float32)
HEAD = GENERATOR.normal(size=(6, 11)).astype(np.float32)
TOKENS = GENERATOR.integers(11, size=(2, 5))
REFERENCE = (HIDDEN + GENERATOR.normal(size=(2, 5, 6)).astype(np.float32),
             GENERATOR.normal(size=(6, 11)).astype(np.float32))
WEIGHTS = GENERATOR.normal(size=(4, 2, 5)).astype(np.float32)


def plain(hidden, head, tokens, *, temperature):
  logprobs = jax.nn.log_softmax(hidden @ head / temperature)
  reference = jax.nn.log_softmax(REFERENCE[0] @ REFERENCE[1] / temperature)

  def chosen(logprobs):
    return jnp.take_along_axis(logprobs, tokens[..., None], axis=-1)[..., 0]

  return (chosen(logprobs), -jnp.sum(jnp.exp(logprobs) * logprobs, axis=-1), chosen(reference),
          jnp.sum(jnp.exp(logprobs) * (logprobs - reference), axis=-1))


def value_and_gradient(function, **options):
  def objective(hidden, head):
    statistics = tuple(function(hidden, head, TOKENS, **options))
    return sum(jnp.sum(w * x) for w, x in zip(WEIGHTS, statistics, strict=True)), statistics

  return jax.jit(jax.value_and_grad(objective, argnums=(0, 1), has_aux=True))(HIDDEN, HEAD)


@pytest.mark.parametrize("chunk, temperature", [(1, 1.0), (4, 0.7), (10, 1.0), (64, 0.7)])
def test_logprobs_entropy_kl_and_gradients_equal_the_plain_softmax(chunk, temperature):
  actual = value_and_gradient(
      token_statistics, temperature=temperature, chunk=chunk, reference=REFERENCE)
  expected = value_and_gradient(plain, temperature=temperature)
  for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_equal_logits_give_the_log_of_the_vocabulary_size_as_entropy():
  statistics = token_statistics(
      jnp.zeros((3, 6)), jnp.asarray(HEAD), jnp.array([0, 5, 10]), temperature=1.0, chunk=2)
  np.testing.assert_allclose(statistics.logprobs, [-math.log(11)] * 3, rtol=1e-6)
  np.testing.assert_allclose(statistics.entropy, [math.log(11)] * 3, rtol=1e-6)
  assert statistics.kl is None and statistics.reference_logprobs is None


def test_the_kl_of_a_policy_to_itself_is_zero_and_so_is_its_gradient():
  def kl(hidden):
    return token_statistics(
        hidden, HEAD, TOKENS, temperature=1.0, chunk=4, reference=(HIDDEN, HEAD)).kl.sum()

  value, gradient = jax.value_and_grad(kl)(jnp.asarray(HIDDEN))
  assert abs(value) < 1e-5 and abs(gradient).max() < 1e-5


def test_no_array_holds_the_logits_of_all_tokens_even_in_the_backward_pass():
  count, embed, vocab, chunk = 40, 3, 50, 4

  def largest(chunk):
    def objective(hidden, head):
      statistics = token_statistics(
          hidden, head, jnp.zeros(count, int), temperature=1.0, chunk=chunk,
          reference=(hidden + 1, head))
      return jnp.sum(statistics.logprobs + statistics.entropy + statistics.kl)

    program = jax.make_jaxpr(jax.grad(objective, argnums=(0, 1)))(
        jnp.zeros((count, embed)), jnp.zeros((embed, vocab)))
    shapes = re.findall(r"\b(?:f32|bool|i32)\[([\d,]+)\]", str(program))
    return max(math.prod(map(int, shape.split(","))) for shape in shapes)

  assert largest(count) == count * vocab
  assert largest(chunk) == chunk * vocab
