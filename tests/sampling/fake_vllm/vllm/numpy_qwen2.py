"""A Qwen2 forward pass in float32 numpy: what the stand-in server computes with."""

import json
from pathlib import Path

# It teaches numpy the type bfloat16, which the reader of safetensors asks for by its name.
import ml_dtypes  # noqa: F401
import numpy as np
from safetensors.numpy import load_file


class Qwen2:
  """The model of a Hugging Face folder; for tiny models only.

  Attributes:
    vocab_size: tokens.
    eos: the token ids that end a completion.
  """

  def __init__(self, folder: Path):
    config = json.loads((folder / "config.json").read_text())
    self.vocab_size = config["vocab_size"]
    eos = config.get("eos_token_id")
    self.eos = set(eos if isinstance(eos, list) else [eos]) - {None}
    self._layers = config["num_hidden_layers"]
    self._heads, self._kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    self._head_dim = config.get("head_dim") or config["hidden_size"] // self._heads
    self._theta = (config.get("rope_parameters") or config)["rope_theta"]
    self._epsilon = config["rms_norm_eps"]
    self._weights = read_weights(folder)

  def load(self, folder: Path) -> None:
    """Takes the weights of another folder, as `reload_weights` does.

    Raises:
      ValueError: they are not of the same names and shapes.
    """
    weights = read_weights(folder)
    if "lm_head.weight" not in self._weights:
      # A model with a tied head leaves out another one.
      weights.pop("lm_head.weight", None)
    if _shapes(weights) != _shapes(self._weights):
      raise ValueError(f"the weights of {folder} do not fit the model")
    self._weights = weights

  def forget(self) -> None:
    """Loses the weights, as sleeping at level 2 does."""
    self._weights = {name: np.zeros_like(array) for name, array in self._weights.items()}

  def forward(self, tokens: list[int], cache: list | None) -> tuple[np.ndarray, list]:
    """Continues a sequence.

    Args:
      tokens: the ids that follow what is in the cache, one at least.
      cache: keys and values of each layer, float32[positions, kv_heads, head_dim]; None at the
        start.

    Returns:
      float32[tokens, vocab] logits, and the longer cache.
    """
    weights = self._weights
    start = len(cache[0][0]) if cache else 0
    positions = np.arange(start, start + len(tokens))
    hidden = weights["model.embed_tokens.weight"][tokens]
    longer = []
    for index in range(self._layers):
      name = f"model.layers.{index}."
      past = cache[index] if cache else None
      normed = self._norm(hidden, name + "input_layernorm.weight")
      attended, keys_values = self._attend(normed, name + "self_attn.", positions, past)
      longer.append(keys_values)
      hidden = hidden + attended
      normed = self._norm(hidden, name + "post_attention_layernorm.weight")
      gate = normed @ weights[name + "mlp.gate_proj.weight"].T
      up = normed @ weights[name + "mlp.up_proj.weight"].T
      hidden = hidden + (gate / (1 + np.exp(-gate)) * up) @ weights[name + "mlp.down_proj.weight"].T
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return self._norm(hidden, "model.norm.weight") @ head.T, longer

  def _norm(self, x, name):
    scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self._epsilon)
    return (x * scale * self._weights[name]).astype(np.float32)

  def _attend(self, x, name, positions, past):
    def project(part, heads):
      weight, bias = (self._weights[f"{name}{part}_proj.{kind}"] for kind in ("weight", "bias"))
      return (x @ weight.T + bias).reshape(len(x), heads, self._head_dim)

    query = self._rotate(project("q", self._heads), positions)
    keys = self._rotate(project("k", self._kv_heads), positions)
    values = project("v", self._kv_heads)
    if past is not None:
      keys, values = np.concatenate([past[0], keys]), np.concatenate([past[1], values])
    repeats = self._heads // self._kv_heads
    scores = np.einsum("qhd,khd->hqk", query, np.repeat(keys, repeats, 1)) / self._head_dim ** 0.5
    scores = np.where(np.arange(len(keys)) <= positions[:, None], scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    mixed = np.einsum("hqk,khd->qhd", scores, np.repeat(values, repeats, 1))
    output = mixed.reshape(len(x), -1) @ self._weights[name + "o_proj.weight"].T
    return output.astype(np.float32), (keys, values)

  def _rotate(self, x, positions):
    half = self._head_dim // 2
    angles = positions[:, None] / self._theta ** (np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate(
        [first * cos - second * sin, second * cos + first * sin], -1).astype(np.float32)


def read_weights(folder: Path) -> dict[str, np.ndarray]:
  """All tensors of a folder as float32.

  Raises:
    FileNotFoundError: the folder has no safetensors.
  """
  files = sorted(folder.glob("*.safetensors"))
  if not files:
    raise FileNotFoundError(f"Cannot find any model weights with `{folder}`")
  return {
      name: array.astype(np.float32) for file in files for name, array in load_file(file).items()}


def log_softmax(logits: np.ndarray) -> np.ndarray:
  shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
  return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _shapes(weights):
  return {name: array.shape for name, array in weights.items()}
