"""The embedded sampler: the model that is trained, decoding in the same process."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, UInt

from conductor_jax.models.attention import KeyValues
from conductor_jax.models.padding import pad_right, round_up
from conductor_jax.models.qwen2 import Qwen2
from conductor_jax.sampling.sampler import Completion


def choose(
    logits: Float[Array, "rows samples vocab"], seeds: UInt[Array, "rows samples"],
    index: Int[Array, ""], temperature: Float[Array, ""]
) -> tuple[Int[Array, "rows samples"], Float[Array, "rows samples"]]:
  """Draws each completion's token at `index` by the Gumbel-max rule.

  The noise depends on the completion's seed and on `index` alone, so a batch is no more than the
  sum of its parts. At temperature 0 the most likely token is taken, with its log-probability at
  temperature 1.
  """
  greedy = temperature == 0
  logprobs = jax.nn.log_softmax(logits / jnp.where(greedy, 1, temperature))

  def noise(seed):
    return jax.random.gumbel(jax.random.fold_in(jax.random.key(seed), index), logits.shape[-1:])

  noisy = logprobs + jnp.where(greedy, 0, jax.vmap(jax.vmap(noise))(seeds))
  tokens = jnp.argmax(noisy, axis=-1)
  return tokens, jnp.take_along_axis(logprobs, tokens[..., None], axis=-1)[..., 0]


@partial(jax.jit, static_argnames=("graph", "max_tokens", "eos"))
def generate(
    graph: nnx.GraphDef, params: nnx.State,
    prompt_tokens: Int[Array, "rows prompt"], prompt_mask: Bool[Array, "rows prompt"],
    seeds: UInt[Array, "rows samples"], temperature: Float[Array, ""],
    *, max_tokens: int, eos: int,
) -> tuple[Int[Array, "rows samples tokens"], Float[Array, "rows samples tokens"], Array]:
  """Samples completions; the prompt's keys and values are computed once a row.

  Returns:
    Tokens, log-probabilities, and each completion's length with its end-of-sequence token. What
    stands beyond the length is padding.
  """
  model: Qwen2 = nnx.merge(graph, params)
  head = model.output_head().astype(model.compute_dtype)
  rows, samples = seeds.shape
  config = model.config
  hidden, prompt = model.prefill(prompt_tokens, prompt_mask)

  def logits(hidden):
    return jnp.einsum("...e,ev->...v", hidden, head, preferred_element_type=jnp.float32)

  first = jnp.broadcast_to(logits(hidden)[:, None], (rows, samples, config.vocab_size))
  shape = (config.num_layers, rows, samples, max_tokens, config.num_kv_heads, config.head_dim)
  cache = KeyValues(jnp.zeros(shape, hidden.dtype), jnp.zeros(shape, hidden.dtype))

  def write(state, index, logits):
    tokens, logprobs, lengths, running = state
    token, logprob = choose(logits, seeds, index, temperature)
    token = jnp.where(running, token, eos)
    tokens = tokens.at[:, :, index].set(token)
    logprobs = logprobs.at[:, :, index].set(jnp.where(running, logprob, 0))
    return tokens, logprobs, lengths + running, running & (token != eos)

  def step(carry):
    index, cache, state = carry
    hidden, cache = model.decode(state[0][:, :, index], index, prompt, prompt_mask, cache)
    return index + 1, cache, write(state, index + 1, logits(hidden))

  def unfinished(carry):
    index, _, state = carry
    return (index + 1 < max_tokens) & jnp.any(state[3])

  state = (
      jnp.full((rows, samples, max_tokens), eos, jnp.int32),
      jnp.zeros((rows, samples, max_tokens), jnp.float32),
      jnp.zeros((rows, samples), jnp.int32),
      jnp.ones((rows, samples), bool))
  state = write(state, jnp.int32(0), first)
  _, _, (tokens, logprobs, lengths, _) = jax.lax.while_loop(
      unfinished, step, (jnp.int32(0), cache, state))
  return tokens, logprobs, lengths


class JaxSampler:
  """Samples with the trainer's own model.

  Args:
    graph: the model's graph definition.
    params: its parameters.
    version: the parameters' version.
    max_tokens: completion limit.
    max_prompt: prompt limit.
    eos: the end-of-sequence token.
    rows: prompts decoded together; a longer list is worked off in turns.
  """

  def __init__(
      self, graph: nnx.GraphDef, params: nnx.State, *, version: int, max_tokens: int,
      max_prompt: int, eos: int, rows: int):
    self._graph, self._params, self._version = graph, params, version
    self._max_tokens, self._max_prompt, self._eos, self._rows = max_tokens, max_prompt, eos, rows

  def update_weights(self, params: nnx.State, version: int) -> None:
    self._params, self._version = params, version

  def sample(
      self, prompts: Sequence[Sequence[int]], seeds: np.ndarray, temperature: float
  ) -> list[list[Completion]]:
    """See `Sampler.sample`.

    Raises:
      ValueError: a prompt is longer than `max_prompt`.
    """
    longest = max(map(len, prompts))
    if longest > self._max_prompt:
      raise ValueError(f"a prompt of {longest} tokens is longer than {self._max_prompt}")
    groups = []
    for start in range(0, len(prompts), self._rows):
      part = slice(start, start + self._rows)
      groups += self._sample_rows(prompts[part], np.asarray(seeds[part]), temperature)
    return groups

  def _sample_rows(self, prompts, seeds, temperature):
    # A short last turn is filled up with copies, so that one compiled program serves all turns.
    count = len(prompts)
    filler = self._rows - count
    prompts = [*prompts, *[prompts[0]] * filler]
    seeds = np.concatenate([seeds, np.repeat(seeds[:1], filler, axis=0)]).astype(np.uint32)
    width = min(round_up(max(map(len, prompts)), 16), self._max_prompt)
    tokens, mask = pad_right(prompts, width, self._eos)
    arguments = jax.device_put((tokens, mask, seeds, np.float32(temperature)))
    tokens, logprobs, lengths = jax.device_get(generate(
        self._graph, self._params, *arguments, max_tokens=self._max_tokens, eos=self._eos))

    def completion(row, sample):
      length = lengths[row, sample]
      written = tokens[row, sample, :length]
      return Completion(
          tokens=written, logprobs=logprobs[row, sample, :length],
          finish_reason="stop" if written[-1] == self._eos else "length",
          weight_version=self._version)

    return [[completion(r, s) for s in range(seeds.shape[1])] for r in range(count)]
