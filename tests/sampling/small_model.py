"""A small random Qwen2 with a tokenizer: a real vLLM loads it in a moment."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from transformers import PreTrainedTokenizerBase

from conductor_jax.arena.tokenizer import train_tokenizer
from conductor_jax.models.hf import export_safetensors
from conductor_jax.models.padding import pad_right, round_up
from conductor_jax.models.qwen2 import Qwen2, Qwen2Config
from conductor_jax.training.logprobs import token_statistics

TEXTS = [
    f"<|im_start|>user\nWhat is {i} plus {j}?<|im_end|>\n" for i in range(30) for j in range(9)]


@dataclass(frozen=True)
class SmallModel:
  """A float32 model and what the trainer says of it.

  Attributes:
    config: its shape.
    graph: its graph definition.
    tokenizer: its tokenizer.
  """

  config: Qwen2Config
  graph: nnx.GraphDef
  tokenizer: PreTrainedTokenizerBase

  def params(self, seed: int) -> dict:
    """Random parameters, norms and biases included."""
    state = nnx.eval_shape(lambda: Qwen2(
        self.config, compute_dtype="float32", remat="none", rngs=nnx.Rngs(0)))
    generator = np.random.default_rng(seed)

    def values(path, shape):
      centre = 1.0 if "norm" in path[-1].key else 0.0
      return jnp.asarray(generator.normal(centre, 0.1, shape.shape), jnp.float32)

    return jax.tree_util.tree_map_with_path(values, nnx.to_pure_dict(nnx.state(state)))

  def export(self, folder: Path, params: dict) -> None:
    """Writes a checkpoint in float32 with the tokenizer beside it."""
    export_safetensors(folder, params, self.config, "float32", tokenizer=self.tokenizer)

  def logprobs(
      self, params: dict, prompt: Sequence[int], completion: Sequence[int], temperature: float
  ) -> np.ndarray:
    """float32[completion], the trainer's log-probabilities."""
    # What stands behind a token changes nothing of it; few lengths are few programs to compile.
    tokens, _ = pad_right([completion], round_up(len(completion), 32), 0)
    return np.asarray(_logprobs(
        self.graph, params, np.asarray([prompt], np.int32), tokens[None],
        np.float32(temperature)))[0, 0, :len(completion)]


@functools.partial(jax.jit, static_argnames="graph")
def _logprobs(graph, params, prompt, completion, temperature):
  model = nnx.merge(graph, params)
  hidden = model.hidden_states(prompt, jnp.ones(prompt.shape, bool), completion)
  return token_statistics(
      hidden, model.output_head(), completion, temperature=temperature, chunk=64).logprobs


def make_small_model() -> SmallModel:
  tokenizer = train_tokenizer(TEXTS, 320)
  config = Qwen2Config(
      vocab_size=len(tokenizer), hidden_size=128, intermediate_size=256, num_layers=2, num_heads=4,
      num_kv_heads=2, head_dim=32, max_positions=256, rope_theta=10_000.0, tied=False)
  graph, _ = nnx.split(nnx.eval_shape(lambda: Qwen2(
      config, compute_dtype="float32", remat="none", rngs=nnx.Rngs(0))))
  return SmallModel(config, graph, tokenizer)
