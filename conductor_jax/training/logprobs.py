"""Log-probabilities, entropy and KL without ever holding the logits of all tokens at once."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from conductor_jax.training.batch import GroupedBatch

Params = dict[str, Any]


class TokenStatistics(NamedTuple):
  """What a policy says of given tokens, float32 of the tokens' shape.

  Attributes:
    logprobs: log-probability of each token.
    entropy: of the distribution that each token comes from, in nats.
    reference_logprobs: log-probability of each token under a reference, None without one; no
      gradient goes to it.
    kl: KL(policy ‖ reference) of that distribution, in nats; None without a reference.
  """

  logprobs: Array
  entropy: Array
  reference_logprobs: Array | None
  kl: Array | None


def token_statistics(
    hidden: Float[Array, "*batch embed"],
    head: Float[Array, "embed vocab"],
    tokens: Int[Array, "*batch"],
    *,
    temperature: float,
    chunk: int,
    reference: tuple[Float[Array, "*batch embed"], Float[Array, "embed vocab"]] | None = None,
) -> TokenStatistics:
  """Statistics of each token's distribution, whole vocabulary included.

  The vocabulary's logits exist for `chunk` tokens at a time and are recomputed in the backward
  pass, so memory grows with `chunk`, not with the batch.

  Args:
    hidden: states that predict `tokens`.
    head: output matrix.
    tokens: token ids.
    temperature: divides the logits; that of sampling.
    chunk: tokens per chunk.
    reference: hidden states and head of a reference policy, no gradient goes to them.
  """
  shape = tokens.shape
  count = tokens.size
  chunk = min(chunk, count)

  def chunks(x, width):
    x = x.reshape(count, *width)
    return jnp.pad(x, ((0, -count % chunk), *((0, 0) for _ in width))).reshape(-1, chunk, *width)

  def distribution(hidden, head):
    logits = jnp.einsum("te,ev->tv", hidden, head, preferred_element_type=jnp.float32)
    return jax.nn.log_softmax(logits / temperature)

  @jax.checkpoint
  def one(tokens, hidden, reference_hidden=None):
    logprobs = distribution(hidden, head)
    probabilities = jnp.exp(logprobs)

    def chosen(logprobs):
      return jnp.take_along_axis(logprobs, tokens[:, None], axis=-1)[:, 0]

    reference_logprobs = kl = None
    if reference_hidden is not None:
      other = jax.lax.stop_gradient(distribution(reference_hidden, reference[1]))
      reference_logprobs = chosen(other)
      kl = jnp.sum(probabilities * (logprobs - other), axis=-1)
    entropy = -jnp.sum(probabilities * logprobs, axis=-1)
    return chosen(logprobs), entropy, reference_logprobs, kl

  states = [hidden] if reference is None else [hidden, reference[0]]
  parts = (chunks(tokens, ()), *(chunks(state, state.shape[-1:]) for state in states))
  statistics = jax.lax.map(lambda part: one(*part), parts)
  return TokenStatistics(
      *(x if x is None else x.reshape(-1)[:count].reshape(shape) for x in statistics))


def batch_statistics(
    graph: nnx.GraphDef, params: Params, batch: GroupedBatch, *, temperature: float, chunk: int,
    reference: Params | None = None
) -> TokenStatistics:
  """Statistics of every completion token, float32[rows, samples, tokens].

  Args:
    graph: the model.
    params: of the policy.
    batch: rows of prompts and completions.
    temperature: that of sampling.
    chunk: tokens whose logits are held at once.
    reference: parameters of the reference policy, None for no KL.
  """
  def states(params):
    model = nnx.merge(graph, params)
    hidden = model.hidden_states(batch.prompt_tokens, batch.prompt_mask, batch.completion_tokens)
    return hidden, model.output_head()

  return token_statistics(
      *states(params), batch.completion_tokens, temperature=temperature, chunk=chunk,
      reference=None if reference is None else jax.lax.stop_gradient(states(reference)))
