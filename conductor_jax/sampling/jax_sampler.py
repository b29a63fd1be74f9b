"""The embedded sampler: the model that is trained, decoding in the same process."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
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
    graph: nnx.GraphDef, params: dict,
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


@dataclass(frozen=True, eq=False)
class _Request:
  """A prompt that waits for its turn."""

  prompt: Sequence[int]
  width: int
  seeds: np.ndarray
  temperature: float
  completions: asyncio.Future

  @property
  def kind(self) -> tuple[int, int, float]:
    """What requests that are decoded together have in common."""
    return self.width, len(self.seeds), self.temperature


class JaxSampler:
  """Samples with the trainer's own model, in turns: what waits at the end of one is the next.

  A prompt is padded to the next quarter of `max_prompt`, and only with prompts of the same width is
  it decoded: the sums behind a log-probability then never depend, not even in their last bit, on
  what happened to be asked for at the same moment.

  Args:
    graph: the model's graph definition.
    max_tokens: completion limit.
    max_prompt: prompt limit.
    eos: the end-of-sequence token.
    rows: prompts decoded together.
    copies: whether it keeps weights of its own, as it must where the trainer gives its arrays away
      while completions are sampled.
  """

  def __init__(
      self, graph: nnx.GraphDef, *, max_tokens: int, max_prompt: int, eos: int, rows: int,
      copies: bool = False):
    self._graph, self._copies = graph, copies
    self._max_tokens, self._max_prompt, self._eos, self._rows = max_tokens, max_prompt, eos, rows
    self._staged: tuple[dict, int] | None = None
    self._weights: tuple[dict, int] | None = None
    self._waiting: list[_Request] = []
    self._turns: asyncio.Task | None = None

  def stage(self, params: dict, version: int) -> None:
    """See `Sampler.stage`."""
    self._staged = (jax.tree.map(jnp.copy, params) if self._copies else params, version)

  async def load(self) -> None:
    """See `Sampler.load`. A turn that is under way ends with the weights it began with."""
    self._weights = self._staged

  async def rest(self) -> None:
    """See `Sampler.rest`. The weights are the trainer's own, so there is nothing to give up."""

  async def sample(
      self, prompt: Sequence[int], seeds: np.ndarray, temperature: float) -> list[Completion]:
    """See `Sampler.sample`.

    Raises:
      ValueError: the prompt is longer than `max_prompt`.
    """
    if len(prompt) > self._max_prompt:
      raise ValueError(f"a prompt of {len(prompt)} tokens is longer than {self._max_prompt}")
    width = min(round_up(len(prompt), -(-self._max_prompt // 4)), self._max_prompt)
    completions = asyncio.get_running_loop().create_future()
    self._waiting.append(_Request(prompt, width, np.asarray(seeds), temperature, completions))
    if self._turns is None:
      # It starts when all that is asked for at this moment is in the queue.
      self._turns = asyncio.create_task(self._take_turns())
    return await completions

  async def _take_turns(self) -> None:
    try:
      while self._waiting:
        kind = self._waiting[0].kind
        turn = [each for each in self._waiting if each.kind == kind][:self._rows]
        self._waiting = [each for each in self._waiting if each not in turn]
        await self._take_turn(turn)
    finally:
      self._turns = None

  async def _take_turn(self, turn: list[_Request]) -> None:
    try:
      # It takes seconds: in a thread, it leaves the event loop to whatever else is under way.
      groups = await asyncio.to_thread(self._decode, turn, *self._weights)
    except Exception as fault:
      for request in turn:
        if not request.completions.done():
          request.completions.set_exception(fault)
      return
    for request, group in zip(turn, groups, strict=True):
      if not request.completions.done():  # nobody waits for it any more
        request.completions.set_result(group)

  def _decode(self, turn: list[_Request], params: dict, version: int) -> list[list[Completion]]:
    # A short turn is filled up with copies, so that one compiled program serves all turns.
    rows = [*turn, *[turn[0]] * (self._rows - len(turn))]
    prompts = [row.prompt for row in rows]
    seeds = np.stack([row.seeds for row in rows]).astype(np.uint32)
    tokens, mask = pad_right(prompts, turn[0].width, self._eos)
    arguments = jax.device_put((tokens, mask, seeds, np.float32(turn[0].temperature)))
    tokens, logprobs, lengths = jax.device_get(generate(
        self._graph, params, *arguments, max_tokens=self._max_tokens, eos=self._eos))

    def completion(row, sample):
      length = lengths[row, sample]
      written = tokens[row, sample, :length]
      return Completion(
          tokens=written, logprobs=logprobs[row, sample, :length],
          finish_reason="stop" if written[-1] == self._eos else "length",
          weight_versions=np.full(length, version, np.int32))

    return [[completion(r, s) for s in range(seeds.shape[1])] for r in range(len(turn))]
