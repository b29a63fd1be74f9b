"""The shared-prompt forward pass against a textbook one over every whole sequence."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from conductor_jax.models.attention import KeyValues
from conductor_jax.models.padding import pad_right

PROMPT_LENGTHS = (4, 7)
COMPLETION_LENGTHS = ((5, 2, 1), (3, 5, 4))
ROWS, SAMPLES, PROMPT, TOKENS = 2, 3, 7, 5

GENERATOR = np.random.default_rng(0)
PROMPTS = [GENERATOR.integers(31, size=n) for n in PROMPT_LENGTHS]
COMPLETIONS = [[GENERATOR.integers(31, size=n) for n in row] for row in COMPLETION_LENGTHS]
WEIGHTS = GENERATOR.normal(size=(ROWS, SAMPLES, TOKENS)).astype(np.float32)


def lay_out(prompt_width=PROMPT, pad=0):
  """prompt tokens and mask, completion tokens and mask."""
  tokens, mask = pad_right(PROMPTS, prompt_width, pad)
  flat, flat_mask = pad_right([c for row in COMPLETIONS for c in row], TOKENS, pad)
  shape = (ROWS, SAMPLES, TOKENS)
  return tokens, mask, flat.reshape(shape), flat_mask.reshape(shape)


def weighted_logprob(hidden, head, tokens, mask):
  logprobs = jnp.take_along_axis(
      jax.nn.log_softmax(hidden @ head), tokens[..., None], axis=-1)[..., 0]
  return jnp.sum(jnp.where(mask, logprobs * WEIGHTS, 0))


@partial(jax.jit, static_argnames="graph")
def shared(graph, params, batch):
  """Gradient of a weighted sum of log-probabilities, and the hidden states."""
  prompt, prompt_mask, tokens, mask = batch

  def objective(params):
    model = nnx.merge(graph, params)
    hidden = model.hidden_states(prompt, prompt_mask, tokens)
    return weighted_logprob(hidden, model.output_head(), tokens, mask), hidden

  return jax.grad(objective, has_aux=True)(params)


@partial(jax.jit, static_argnames="graph")
def shared_hidden(graph, params, batch):
  return nnx.merge(graph, params).hidden_states(*batch[:3])


def textbook(params, tokens):
  """Normed hidden states [tokens, embed] of one whole sequence, layer by layer."""
  half, eps, theta = 2, 1e-6, 100.0
  angles = jnp.arange(len(tokens))[:, None] * theta ** (-jnp.arange(half) / half)
  turns = jnp.exp(1j * angles)[:, None]

  def norm(x, scale):
    return x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * scale

  def heads(x, kernel, bias):
    return (x @ kernel + bias).reshape(len(tokens), -1, 2 * half)

  def turned(x):
    pairs = (x[..., :half] + 1j * x[..., half:]) * turns
    return jnp.concatenate([pairs.real, pairs.imag], axis=-1)

  x = params["embedding"][tokens]
  for index in range(2):
    layer = jax.tree.map(lambda leaf, index=index: leaf[index], params["layers"])
    y = norm(x, layer["attention_norm"])
    query = turned(heads(y, layer["query"], layer["query_bias"]))
    key = jnp.repeat(turned(heads(y, layer["key"], layer["key_bias"])), 2, axis=1)
    value = jnp.repeat(heads(y, layer["value"], layer["value_bias"]), 2, axis=1)
    scores = jnp.einsum("qhd,khd->hqk", query, key) / jnp.sqrt(2.0 * half)
    scores = jnp.where(jnp.tri(len(tokens), dtype=bool), scores, -jnp.inf)
    mixed = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), value)
    x = x + mixed.reshape(len(tokens), -1) @ layer["output"]
    y = norm(x, layer["mlp_norm"])
    x = x + (jax.nn.silu(y @ layer["gate"]) * (y @ layer["up"])) @ layer["down"]
  return norm(x, params["final_norm"])


@jax.jit
def expanded(params):
  """What `shared` returns of an untied model, each completion behind its own copy of the prompt."""
  sequences, _ = pad_right(
      [np.concatenate([prompt, completion])
       for prompt, row in zip(PROMPTS, COMPLETIONS, strict=True) for completion in row],
      PROMPT + TOKENS, 0)
  first = np.repeat(PROMPT_LENGTHS, SAMPLES) - 1
  places = first[:, None] + np.arange(TOKENS)
  _, _, tokens, mask = lay_out()

  def objective(params):
    hidden = jax.vmap(partial(textbook, params))(jnp.asarray(sequences))
    hidden = jnp.take_along_axis(hidden, places[..., None], axis=1)
    hidden = hidden.reshape(ROWS, SAMPLES, TOKENS, -1)
    return weighted_logprob(hidden, params["head"], tokens, mask), hidden

  return jax.grad(objective, has_aux=True)(params)


def assert_trees_close(actual, expected, tolerance):
  jax.tree_util.tree_map_with_path(
      lambda path, a, b: np.testing.assert_allclose(
          a, b, rtol=tolerance, atol=tolerance, err_msg=jax.tree_util.keystr(path)),
      actual, expected)


def real(hidden):
  return np.asarray(hidden)[lay_out()[3]]


@pytest.mark.parametrize("tied", [True, False])
def test_the_shared_prompt_forward_and_gradient_equal_those_of_the_expanded_batch(
    tiny_model, tied):
  graph, params = tiny_model(tied)
  assert ("head" in params) is not tied
  gradient, hidden = shared(graph, params, lay_out())
  expected_gradient, expected_hidden = expanded({"head": params["embedding"].T} | params)
  if tied:
    # The one matrix gets the gradient of both its roles.
    expected_gradient["embedding"] += expected_gradient.pop("head").T
  np.testing.assert_allclose(real(hidden), real(expected_hidden), rtol=1e-5, atol=1e-5)
  assert_trees_close(gradient, expected_gradient, 1e-5)
  assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("remat", ["dots", "full"])
def test_what_the_backward_pass_recomputes_changes_neither_value_nor_gradient(tiny_model, remat):
  expected = shared(tiny_model(True, "none")[0], tiny_model()[1], lay_out())
  actual = shared(tiny_model(True, remat)[0], tiny_model()[1], lay_out())
  assert_trees_close(actual, expected, 1e-6)


def test_padding_width_and_content_change_nothing(tiny_model):
  graph, params = tiny_model()
  expected_gradient, expected_hidden = shared(graph, params, lay_out())
  gradient, hidden = shared(graph, params, lay_out(pad=9))
  assert_trees_close(gradient, expected_gradient, 1e-6)
  for other in (hidden, shared_hidden(graph, params, lay_out(prompt_width=11, pad=3))):
    np.testing.assert_allclose(real(other), real(expected_hidden), rtol=1e-6, atol=1e-6)


def test_what_follows_a_token_never_changes_its_prediction(tiny_model):
  graph, params = tiny_model()
  prompt, prompt_mask, tokens, mask = lay_out()
  _, before = shared(graph, params, (prompt, prompt_mask, tokens, mask))
  changed = tokens.copy()
  changed[1, 1, 2] = (changed[1, 1, 2] + 1) % 31
  _, after = shared(graph, params, (prompt, prompt_mask, changed, mask))
  difference = np.abs(np.asarray(after) - before).max(axis=-1)
  assert (difference[1, 1, 3:] > 1e-3).all()
  difference[1, 1, 3:] = 0
  assert difference.max() == 0


def test_a_completion_may_be_a_single_token(tiny_model):
  graph, params = tiny_model()
  prompt, prompt_mask, tokens, mask = lay_out()
  _, expected = shared(graph, params, (prompt, prompt_mask, tokens, mask))
  actual = shared_hidden(graph, params, (prompt, prompt_mask, tokens[:, :, :1], mask))
  np.testing.assert_allclose(actual[:, :, 0], expected[:, :, 0], rtol=1e-6, atol=1e-6)


def test_a_prompt_token_changes_every_completion_of_its_row_and_no_other(tiny_model):
  graph, params = tiny_model()
  prompt, *rest = lay_out()
  _, before = shared(graph, params, (prompt, *rest))
  changed = prompt.copy()
  changed[1, 0] = (changed[1, 0] + 1) % 31
  _, after = shared(graph, params, (changed, *rest))
  difference = np.abs(np.asarray(after) - before).max(axis=-1)
  assert difference[0].max() == 0
  assert (difference[1] > 1e-4).all()


@pytest.mark.parametrize("name", ["query_bias", "key_bias", "value_bias"])
@pytest.mark.parametrize("layer", [0, 1])
def test_every_attention_bias_enters(tiny_model, name, layer):
  graph, params = tiny_model()
  _, before = shared(graph, params, lay_out())
  bias = params["layers"][name]
  perturbed = params | {"layers": params["layers"] | {name: bias.at[layer, 1].add(0.5)}}
  _, after = shared(graph, perturbed, lay_out())
  assert (np.abs(real(after) - real(before)).max(axis=-1) > 1e-4).all()


def test_prefill_and_decode_equal_the_forward_pass_token_by_token(tiny_model):
  graph, params = tiny_model()
  prompt_tokens, prompt_mask, tokens, mask = map(jnp.asarray, lay_out())
  _, expected = shared(graph, params, (prompt_tokens, prompt_mask, tokens, mask))
  model = nnx.merge(graph, params)
  hidden, prompt = jax.jit(model.prefill)(prompt_tokens, prompt_mask)
  np.testing.assert_allclose(
      np.broadcast_to(hidden[:, None], expected[:, :, 0].shape), expected[:, :, 0],
      rtol=1e-5, atol=1e-5)
  # The cache has room to spare, and what stands in it beyond the index is never read.
  shape = (2, ROWS, SAMPLES, TOKENS + 2, 2, 4)
  cache = KeyValues(jnp.full(shape, 7.0), jnp.full(shape, -7.0))
  decode = jax.jit(model.decode)
  for index in range(TOKENS - 1):
    hidden, cache = decode(
        tokens[:, :, index], jnp.int32(index), prompt, prompt_mask, cache)
    np.testing.assert_allclose(hidden, expected[:, :, index + 1], rtol=1e-5, atol=1e-5)
