"""How much arithmetic a training step is, and what share of a device's peak it reaches.

Products of matrices alone are counted, two operations for a multiplication and its addition.
Forward, with W weights in the kernels of a layer, L layers, H heads of width D, width E and
vocabulary V:

    layers      2 · L · W        a token; a row's prompt is computed once for all its samples
    head        2 · E · V        a completion token
    attention   4 · L · H · D    a pair of a query and a token that it sees, itself included

Backward is twice the forward: every product has two operands, and a gradient for each. A frozen
kernel has none, so with adapters the layers and the head cost 2 + 2 and the adapters 2 + 4 a token.
The convention, without recomputation, is that of PaLM (arXiv 2204.02311, appendix B).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.training.batch import Batches
from conductor_jax.training.hardware import find_accelerator


class ForwardFlops(NamedTuple):
  """Operations of one forward pass, by part."""

  layers: float
  head: float
  attention: float


def layer_weights(config: Qwen2Config) -> int:
  """Weights in the kernels of one layer."""
  heads = config.num_heads * config.head_dim
  kv_heads = config.num_kv_heads * config.head_dim
  return config.hidden_size * (2 * heads + 2 * kv_heads + 3 * config.intermediate_size)


def head_weights(config: Qwen2Config) -> int:
  """Weights of the output head, tied or not."""
  return config.hidden_size * config.vocab_size


def _tokens(prompt_lengths: np.ndarray, completion_lengths: np.ndarray) -> float:
  return float(np.sum(prompt_lengths) + np.sum(completion_lengths))


def forward_flops(
    config: Qwen2Config, prompt_lengths: Int[np.ndarray, " rows"],
    completion_lengths: Int[np.ndarray, "rows samples"]
) -> ForwardFlops:
  """Operations of one forward pass over rows.

  Args:
    config: the model.
    prompt_lengths: tokens of each row's prompt.
    completion_lengths: tokens of each completion.
  """
  prompts = np.asarray(prompt_lengths, np.float64)
  completions = np.asarray(completion_lengths, np.float64)
  pairs = np.sum(prompts * (prompts + 1) / 2) + np.sum(
      completions * prompts[:, None] + completions * (completions + 1) / 2)
  width = config.num_heads * config.head_dim
  return ForwardFlops(
      layers=2.0 * config.num_layers * layer_weights(config) * _tokens(prompts, completions),
      head=2.0 * head_weights(config) * float(completions.sum()),
      attention=4.0 * config.num_layers * width * float(pairs))


def model_flops(
    config: Qwen2Config, prompt_lengths: Int[np.ndarray, " rows"],
    completion_lengths: Int[np.ndarray, "rows samples"], *, adapter_weights: int = 0,
    reference: bool = False
) -> float:
  """Operations that one training step over rows takes at least; recomputation is not counted.

  Args:
    config: the model.
    prompt_lengths: tokens of each row's prompt.
    completion_lengths: tokens of each completion.
    adapter_weights: weights of the adapters that are trained beside frozen kernels; 0 where the
      kernels themselves are trained.
    reference: whether a reference policy's forward pass is part of the step.
  """
  forward = forward_flops(config, prompt_lengths, completion_lengths)
  passes = 2 if adapter_weights else 3
  adapters = 6.0 * adapter_weights * _tokens(prompt_lengths, completion_lengths)
  return (passes * (forward.layers + forward.head) + 3 * forward.attention + adapters
          + (sum(forward) if reference else 0.0))


def hardware_flops(
    config: Qwen2Config, prompt_lengths: Int[np.ndarray, " rows"],
    completion_lengths: Int[np.ndarray, "rows samples"], *, remat: str, adapter_weights: int = 0,
    reference: bool = False
) -> float:
  """Operations that the step is made to do: `model_flops`, and what the backward pass recomputes.

  That is the logits and the attention's scores always, and with the policy "full" the forward pass
  of every layer too. Attention is counted as if it skipped whatever the mask hides.

  Args:
    config: the model.
    prompt_lengths: tokens of each row's prompt.
    completion_lengths: tokens of each completion.
    remat: the model's policy.
    adapter_weights: as for `model_flops`.
    reference: as for `model_flops`.
  """
  forward = forward_flops(config, prompt_lengths, completion_lengths)
  again = forward.head + forward.attention / 2
  if remat == "full":
    again += forward.layers + forward.attention
    again += 2.0 * adapter_weights * _tokens(prompt_lengths, completion_lengths)
  return again + model_flops(
      config, prompt_lengths, completion_lengths, adapter_weights=adapter_weights,
      reference=reference)


def utilisation(flops: float, seconds: float, devices: int, device_kind: str) -> float | None:
  """Model FLOPs utilisation: the share of the devices' peak that the model's arithmetic takes.

  Args:
    flops: of a step, from `model_flops`.
    seconds: that the step took.
    devices: how many took part.
    device_kind: JAX's name of them.

  Returns:
    From 0 to 1; None where the peak of such a device is not known.
  """
  accelerator = find_accelerator(device_kind)
  if accelerator is None:
    return None
  return flops / (seconds * devices * accelerator.peak_flops)


def throughput(
    config: Qwen2Config, batches: Batches, seconds: float, *, devices: int, device_kind: str,
    adapter_weights: int = 0, reference: bool = False
) -> dict[str, float]:
  """How fast a training step was: what is recorded of it.

  Args:
    config: the model.
    batches: what it trained on; padding does not count.
    seconds: that it took.
    devices: how many took part.
    device_kind: JAX's name of them.
    adapter_weights: as for `model_flops`.
    reference: as for `model_flops`.

  Returns:
    tokens_per_second, prompts counted once a row; model_flops_per_second over all devices; and mfu,
    see `utilisation`, where the devices' peak is known.
  """
  lengths = [(batch.prompt_mask.sum(axis=-1), batch.completion_mask.sum(axis=-1))
             for batch in batches]
  flops = sum(model_flops(config, *each, adapter_weights=adapter_weights, reference=reference)
              for each in lengths)
  values = {"tokens_per_second": sum(_tokens(*each) for each in lengths) / seconds,
            "model_flops_per_second": flops / seconds}
  share = utilisation(flops, seconds, devices, device_kind)
  return values if share is None else values | {"mfu": share}
