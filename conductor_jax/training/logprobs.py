"""Log-probabilities, entropy and KL without ever holding the logits of all tokens at once."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from conductor_jax.models.placement import ONE_DEVICE, Placement
from conductor_jax.training.batch import GroupedBatch

Params = dict[str, Any]


class TokenStatistics(NamedTuple):
  """What a policy says of given tokens, float32 of the tokens' shape.

  Attributes:
    logprobs: log-probability of each token.
    entropy: of the distribution that each token comes from, in nats.
    reference_logprobs: log-probability of each token under the reference, without a gradient; None
      without one.
    kl: KL(policy ‖ reference) of the distribution, in nats; None without a reference.
  """

  logprobs: Array
  entropy: Array
  reference_logprobs: Array | None
  kl: Array | None


class _Predictor(NamedTuple):
  """Hidden states [rows, tokens, embed] that a head [embed, vocab] turns into logits."""

  hidden: Array
  head: Array


def _log_probabilities(placement, temperature, predictor):
  """float32[rows, tokens, vocab]; every device has the logits of its part of the vocabulary."""
  hidden = placement.constrain(predictor.hidden, None, None, None)
  logits = jnp.einsum(
      "rte,ev->rtv", hidden, predictor.head, preferred_element_type=jnp.float32) / temperature
  return jax.nn.log_softmax(placement.constrain(logits, None, None, "logits"))


def _is_token(placement, tokens, vocab):
  # One row of ids, broadcast where it is compared: as wide as the logits it would be kept for all
  # chunks.
  return placement.constrain(jnp.arange(vocab, dtype=tokens.dtype), "logits") == tokens[..., None]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _chunk(placement, temperature, hidden, head, working_head, tokens, reference):
  """Statistics of one chunk. `working_head` is `head` as it enters the product."""
  del head
  logprobs = _log_probabilities(placement, temperature, _Predictor(hidden, working_head))
  probabilities = jnp.exp(logprobs)
  chosen = _is_token(placement, tokens, logprobs.shape[-1])
  of_reference = kl = None
  if reference is not None:
    other = _log_probabilities(placement, temperature, reference)
    of_reference = jnp.sum(jnp.where(chosen, other, 0), axis=-1)
    kl = jnp.sum(probabilities * (logprobs - other), axis=-1)
  return TokenStatistics(
      jnp.sum(jnp.where(chosen, logprobs, 0), axis=-1),
      -jnp.sum(probabilities * logprobs, axis=-1), of_reference, kl)


def _chunk_forward(placement, temperature, hidden, head, working_head, tokens, reference):
  statistics = _chunk(placement, temperature, hidden, head, working_head, tokens, reference)
  return statistics, (temperature, hidden, head, working_head, tokens, reference, statistics)


def _chunk_backward(placement, saved, gradient):
  # With p the policy and q the reference, of the logits z:
  #   ∂ log p(t) = 1ₜ − p     ∂ entropy = −p (log p + entropy)     ∂ KL = p (log p − log q − KL)
  temperature, hidden, head, working_head, tokens, reference, statistics = saved
  logprobs = _log_probabilities(placement, temperature, _Predictor(hidden, working_head))
  weight = -gradient.logprobs[..., None] - gradient.entropy[..., None] * (
      logprobs + statistics.entropy[..., None])
  if reference is not None:
    other = _log_probabilities(placement, temperature, reference)
    weight += gradient.kl[..., None] * (logprobs - other - statistics.kl[..., None])
  of_logits = jnp.exp(logprobs) * weight + jnp.where(
      _is_token(placement, tokens, logprobs.shape[-1]), gradient.logprobs[..., None], 0)
  of_logits = (of_logits / temperature).astype(hidden.dtype)
  of_hidden = jnp.einsum(
      "rtv,ev->rte", of_logits, working_head, preferred_element_type=jnp.float32)
  of_head = jnp.einsum(
      "te,tv->ev", placement.constrain(hidden, None, None, None).reshape(-1, hidden.shape[-1]),
      of_logits.reshape(-1, of_logits.shape[-1]), preferred_element_type=jnp.float32)
  return (None, placement.constrain(of_hidden.astype(hidden.dtype), "rows", None, None),
          of_head.astype(head.dtype), None, None, None)


_chunk.defvjp(_chunk_forward, _chunk_backward)


def token_statistics(
    hidden: Float[Array, "rows ... embed"],
    head: Float[Array, "embed vocab"],
    tokens: Int[Array, "rows ..."],
    *,
    temperature: float | Float[Array, ""],
    chunk: int,
    reference: tuple[Float[Array, "rows ... embed"], Float[Array, "embed vocab"]] | None = None,
    placement: Placement = ONE_DEVICE,
) -> TokenStatistics:
  """Statistics of each token's distribution, whole vocabulary included.

  The vocabulary's logits exist for about `chunk` tokens at a time and are computed again in the
  backward pass, so memory grows with `chunk`, not with the batch.

  Args:
    hidden: states that predict `tokens`.
    head: output matrix, whose gradient is summed in its own dtype.
    tokens: token ids.
    temperature: divides the logits; that of sampling.
    chunk: tokens per chunk, over all rows.
    reference: hidden states and head of a reference policy, no gradient goes to them.
    placement: where the arrays live.
  """
  rows, count = tokens.shape[0], tokens[0].size
  turns = -(-count // max(1, min(chunk // rows, count)))
  width = -(-count // turns)

  def split(x, *inner):
    x = x.reshape(rows, count, *inner)
    x = jnp.pad(x, ((0, 0), (0, turns * width - count), *[(0, 0)] * len(inner)))
    return jnp.moveaxis(x.reshape(rows, turns, width, *inner), 1, 0)

  def working(head):
    return jax.lax.stop_gradient(head.astype(hidden.dtype))

  working_head = working(head)
  other_head = None if reference is None else working(reference[1])

  def one(part):
    hidden, tokens, other = part
    other = None if other is None else _Predictor(other, other_head)
    return _chunk(placement, temperature, hidden, head, working_head, tokens, other)

  embed = hidden.shape[-1]
  parts = (split(hidden, embed), split(tokens),
           None if reference is None else split(reference[0], embed))
  statistics = jax.lax.map(one, parts)
  return jax.tree.map(
      lambda x: jnp.moveaxis(x, 0, 1).reshape(rows, -1)[:, :count].reshape(tokens.shape),
      statistics)


def batch_statistics(
    params: Params, reference: Params | None, batch: GroupedBatch, *, graph: nnx.GraphDef,
    temperature: float, chunk: int
) -> TokenStatistics:
  """Statistics of every completion token, float32[rows, samples, tokens].

  Args:
    params: of the policy.
    reference: parameters of the reference policy, None for none.
    batch: rows of prompts and completions.
    graph: the model.
    temperature: that of sampling.
    chunk: tokens whose logits are held at once.
  """
  def states(model):
    hidden = model.hidden_states(batch.prompt_tokens, batch.prompt_mask, batch.completion_tokens)
    return hidden, model.output_head()

  model = nnx.merge(graph, params)
  other = (None if reference is None
           else jax.lax.stop_gradient(states(nnx.merge(graph, reference))))
  return token_statistics(
      *states(model), batch.completion_tokens, temperature=temperature, chunk=chunk,
      reference=other, placement=model.placement)
