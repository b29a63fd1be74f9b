"""The tiny model of the stand-in server as the trainer has it, and samplers of it.

Its vocabulary has 61 tokens, 2 ends a completion, and the server reads up to 64.
"""

import functools
import sys
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from conductor_jax.models.hf import load_safetensors
from conductor_jax.models.hf_config import read_config
from conductor_jax.models.padding import pad_right
from conductor_jax.models.qwen2 import Qwen2
from conductor_jax.models.shapes import abstract_parameters
from conductor_jax.sampling.probe import Probe, make_probe
from conductor_jax.sampling.sampler import Completion
from conductor_jax.sampling.vllm_sampler import VllmSampler
from conductor_jax.sampling.vllm_server import VllmServer
from conductor_jax.sampling.weight_folder import WeightFolder
from conductor_jax.training.sharding import make_mesh, parameter_shardings

FOLDER = Path(__file__).parent.parent / "models" / "goldens" / "qwen2-tied"
CONFIG = read_config(FOLDER / "config.json")
EOS, MAX_TOKENS = 2, 12
PROBE_TOKENS = [5, 17, 40, 3, 22, 9, 58, 31]


@functools.cache
def params() -> dict:
  mesh = make_mesh(1, 1, 1, devices=jax.devices()[:1])
  return load_safetensors(
      FOLDER, CONFIG, parameter_shardings(mesh, abstract_parameters(CONFIG)), "float32")


def moved(by: float) -> dict:
  """Other parameters: each number multiplied by 1 + `by` times noise that is always the same."""
  generator = np.random.default_rng(3)
  return jax.tree.map(
      lambda x: x * (1 + by * generator.normal(size=x.shape).astype(np.float32)), params())


def make_tokenizer() -> PreTrainedTokenizerFast:
  vocabulary = {f"t{i}": i for i in range(CONFIG.vocab_size)}
  return PreTrainedTokenizerFast(
      tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="t0")),
      eos_token=f"t{EOS}")


def make_folder(root: Path, dtype: str = "float32") -> WeightFolder:
  return WeightFolder(root, CONFIG, dtype, tokenizer=make_tokenizer(), probe=_probe(dtype))


@functools.cache
def _probe(dtype: str) -> Probe:
  return make_probe(CONFIG, PROBE_TOKENS, dtype)  # compiled once


def make_server(folder: WeightFolder, log: Path, say, **options) -> VllmServer:
  """A stand-in server as one of ours; options are variables of its environment."""
  return VllmServer(
      Path(sys.executable), max_model_len=64, dtype="float32",
      environment={"PYTHONPATH": str(Path(__file__).parent / "fake_vllm"), **options},
      log=log, start_timeout=30.0, remove=[folder.folder], say=say)


@asynccontextmanager
async def open_sampler(
    root: Path, *, urls: Sequence[str] = (), own: bool = False, request_timeout: float = 20.0,
    sync_timeout: float = 20.0, look_again: float = 0.1, load: bool = True,
    max_tokens: int = MAX_TOKENS, share_device: bool = False, **environment: str):
  """A sampler with version 1 loaded; what it says is in its `said`, the process in `server`."""
  said: list[str] = []
  folder = make_folder(root)
  servers = [make_server(folder, root / "log", said.append, **environment)] if own else []
  sampler = VllmSampler(
      folder, servers=servers, urls=urls, max_tokens=max_tokens, eos=EOS,
      request_timeout=request_timeout, sync_timeout=sync_timeout, look_again=look_again,
      share_device=share_device, say=said.append)
  sampler.said, sampler.folder = said, folder.folder
  sampler.server = servers[0] if own else None
  async with sampler:
    if load:
      sampler.stage(params(), 1)
      await sampler.load()
    yield sampler
  assert not folder.folder.exists()


@functools.partial(jax.jit, static_argnames="graph")
def _logits(graph, params, tokens):
  model = nnx.merge(graph, params)
  hidden = model.hidden_states(tokens[:, :1], jnp.ones((1, 1), bool), tokens[:, None, 1:])
  return (hidden @ model.output_head())[0, 0]


@functools.cache
def _graph() -> nnx.GraphDef:
  return nnx.split(nnx.eval_shape(
      lambda: Qwen2(CONFIG, compute_dtype="float32", remat="none", rngs=nnx.Rngs(0))))[0]


def trainer_logprobs(
    params: dict, prompt: Sequence[int], completion: Completion, temperature: float = 1.0
) -> np.ndarray:
  """float32[tokens], what the trainer says of a completion."""
  whole = [*prompt, *completion.tokens.tolist()]
  tokens, _ = pad_right([whole], 64, 0)
  logprobs = jax.nn.log_softmax(_logits(_graph(), params, tokens) / (temperature or 1.0))
  rows = np.arange(len(prompt) - 1, len(whole) - 1)
  return np.asarray(logprobs)[rows, whole[len(prompt):]]



def check(completion: Completion, prompt: Sequence[int], weights: dict[int, dict]) -> None:
  """Every token's log-probability is the trainer's under the weights that it is said to be from."""
  for version in set(completion.weight_versions.tolist()):
    own = completion.weight_versions == version
    np.testing.assert_allclose(
        completion.logprobs[own], trainer_logprobs(weights[version], prompt, completion)[own],
        rtol=0, atol=1e-4)
