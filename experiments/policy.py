"""The configured model on its mesh: its shape, its weights, and which of them are trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh
from ml_collections import ConfigDict
from transformers import PreTrainedTokenizerBase

from conductor_jax.errors import UserError
from conductor_jax.models.gguf import gguf_config, load_gguf, read_gguf
from conductor_jax.models.hf import load_safetensors
from conductor_jax.models.hf_config import read_config
from conductor_jax.models.lora import LoraConfig, merge_trees, split_adapters
from conductor_jax.models.placement import Placement
from conductor_jax.models.qwen2 import Qwen2, Qwen2Config
from conductor_jax.models.shapes import SHAPES
from conductor_jax.models.tokenizer import gguf_tokenizer, load_tokenizer
from conductor_jax.training.logprobs import Params
from conductor_jax.training.sharding import abstract, initialise, make_mesh


@dataclass(frozen=True)
class Policy:
  """A model on a mesh, in arrays or, for the compiler, in their shapes.

  Attributes:
    shape: of the model.
    mesh: where it lives.
    graph: its graph definition.
    trained: the parameters that an optimizer changes.
    frozen: those that stay as they are, beside adapters; None where all are trained.
  """

  shape: Qwen2Config
  mesh: Mesh
  graph: nnx.GraphDef
  trained: Params
  frozen: Params | None

  @property
  def adapter_weights(self) -> int:
    """Numbers in the adapters that are trained; 0 where all parameters are."""
    return 0 if self.frozen is None else sum(
        leaf.size for leaf in jax.tree.leaves(self.trained))

  def whole(self, trained: Params) -> Params:
    """All parameters of the model, with the given ones in place of those trained."""
    return merge_trees(trained, self.frozen)


def is_gguf(weights: str) -> bool:
  """Whether weights are a GGUF file, and not a folder."""
  return weights.endswith(".gguf")


def model_shape(config: ConfigDict) -> Qwen2Config:
  """The shape of the configured model: that of its weights, a named one, or the options' own.

  Raises:
    UserError: the weights have no shape that can be read, or the name is not known.
  """
  model = config.model
  if is_gguf(model.weights):
    return gguf_config(read_gguf(Path(model.weights)))
  if model.weights:
    return read_config(Path(model.weights) / "config.json")
  if model.name:
    if model.name not in SHAPES:
      raise UserError(f"--config.model.name={model.name}: must be one of {', '.join(SHAPES)}, or "
                      "empty for the shape that the other options give")
    return SHAPES[model.name]
  return Qwen2Config(
      vocab_size=config.tokenizer.vocab_size, hidden_size=model.hidden_size,
      intermediate_size=model.intermediate_size, num_layers=model.num_layers,
      num_heads=model.num_heads, num_kv_heads=model.num_kv_heads, head_dim=model.head_dim,
      max_positions=model.max_positions, rope_theta=model.rope_theta, norm_eps=model.norm_eps,
      tied=model.tied)


def model_tokenizer(config: ConfigDict) -> PreTrainedTokenizerBase | None:
  """The tokenizer of the configured weights, None where there are none.

  Raises:
    UserError: there is none beside the weights, or it cannot be read.
  """
  weights = config.model.weights
  if not weights:
    return None
  return gguf_tokenizer(read_gguf(Path(weights))) if is_gguf(weights) else load_tokenizer(
      Path(weights))


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, shape: Qwen2Config) -> None:
  """Refuses a tokenizer with tokens that the model does not have.

  Raises:
    UserError: says how many there are of each.
  """
  if len(tokenizer) > shape.vocab_size:
    raise UserError(
        f"the tokenizer has {len(tokenizer)} tokens, and the model {shape.vocab_size}: take the "
        "tokenizer of the weights, or a smaller --config.tokenizer.vocab_size")


def _adapters(config: ConfigDict) -> LoraConfig | None:
  model = config.model
  if not model.lora_rank:
    return None
  return LoraConfig(
      rank=model.lora_rank, alpha=model.lora_alpha, targets=tuple(model.lora_targets))


# Where JAX says "gpu" of a device, and "cuda" of one that is there for the compiler only.
_PLATFORMS = {"splash": ("tpu",), "cudnn": ("gpu", "cuda")}


def attention_of(config: ConfigDict, shape: Qwen2Config, platform: str) -> str:
  """The kernel of training's attention: the configured one, or what suits the platform.

  Raises:
    UserError: the configured one is not for the platform.
  """
  model = config.model
  if platform not in _PLATFORMS.get(model.attention, (platform,)):
    raise UserError(f"--config.model.attention={model.attention}: is not for {platform}; auto "
                    "takes what is")
  if model.attention != "auto":
    return model.attention
  # The kernels' own limits: splash works on whole lanes, cuDNN in half precision only.
  if platform == "tpu" and shape.head_dim % 128 == 0:
    return "splash"
  half = model.compute_dtype == "bfloat16"
  if platform in _PLATFORMS["cudnn"] and half and shape.head_dim <= 128:
    return "cudnn"
  return "blockwise"


def _builder(config: ConfigDict, shape: Qwen2Config, mesh: Mesh):
  model = config.model
  attention = attention_of(config, shape, mesh.devices.flat[0].platform)

  def build(placement: Placement) -> Qwen2:
    return Qwen2(
        shape, compute_dtype=model.compute_dtype, param_dtype=model.param_dtype,
        remat=model.remat, attention=attention, lora=_adapters(config), placement=placement,
        rngs=nnx.Rngs(config.seed))

  return build


def open_mesh(config: ConfigDict, devices: Sequence[jax.Device] | None = None) -> Mesh:
  """The configured mesh, of all devices or of the given ones.

  Raises:
    UserError: it does not have as many.
  """
  try:
    return make_mesh(**config.mesh, devices=devices)
  except ValueError as fault:
    raise UserError(
        f"--config.mesh: {fault}: set, for example, --config.mesh.fsdp to the number of devices "
        "and the others to 1") from fault


def _policy(config: ConfigDict, shape: Qwen2Config, mesh: Mesh, graph: nnx.GraphDef,
            params: dict[str, Any]) -> Policy:
  trained, frozen = split_adapters(params) if config.model.lora_rank else (params, None)
  return Policy(shape, mesh, graph, trained, frozen)


def abstract_policy(config: ConfigDict, mesh: Mesh) -> Policy:
  """The policy in shapes and shardings; nothing is allocated or read but the shape."""
  shape = model_shape(config)
  graph, params = abstract(mesh, _builder(config, shape, mesh))
  return _policy(config, shape, mesh, graph, params)


def load_policy(config: ConfigDict, mesh: Mesh) -> Policy:
  """The policy in arrays: the configured weights, or drawn from the seed where there are none.

  Raises:
    UserError: the weights cannot be read, or are not of the model's shape.
  """
  shape, weights = model_shape(config), config.model.weights
  build = _builder(config, shape, mesh)
  if not weights:
    graph, params = initialise(mesh, build)
    return _policy(config, shape, mesh, graph, params)
  graph, shapes = abstract(mesh, build)
  _, base = split_adapters(shapes)
  shardings = jax.tree.map(lambda x: x.sharding, base)
  dtype = config.model.param_dtype
  if is_gguf(weights):
    params = load_gguf(read_gguf(Path(weights)), shape, shardings, dtype)
  else:
    params = load_safetensors(Path(weights), shape, shardings, dtype)
  if config.model.lora_rank:
    params = merge_trees(initialise(mesh, build, only=lambda p: split_adapters(p)[0])[1], params)
  return _policy(config, shape, mesh, graph, params)
