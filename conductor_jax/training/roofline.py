"""The least time that a training step can take on given devices (Williams et al., 2009).

Each micro-batch takes the longest of three times, as if the other two hid behind it completely; the
optimizer's update follows once:

    seconds = micro-batches · max(arithmetic, memory, interconnect) + update

    arithmetic     hardware FLOPs of a micro-batch / (devices · peak)
    memory         bytes of a micro-batch / memory bandwidth
    interconnect   bytes that reach a device / interconnect bandwidth
    update         the longer of its bytes / memory bandwidth, and the all-reduce of the gradients
                   over "data" / interconnect bandwidth

On one device, with f, t and d devices along "fsdp", "tensor" and "data", b bytes a number in
computation, s bytes a stored weight, N = L · W / t weights of the layers that a pass multiplies
with, n = E · V / (f t d) of the head, T tokens and C completion tokens, c = 1 where the backward
pass computes the layers again (else 0) and r = 1 with a reference (else 0):

    memory         weights       (2 + r) (s N / f + b N) + (2 + c + r) b N
                                 each pass reads its shard and writes what was gathered, then reads
                                 it for every product
                   head          (s + b) n + (3 + r) b n
                   gradients     2 b N + 8 N / f + 8 n
                                 written whole, read to be scattered, added to float32 shards
                   activations   (3 + c + r) b T L (7 E + (2 H D + 2 K D + 3 M) / t)
                                 every product reads its input and writes its output
                   logits        (3 + r) · 8 C V / t
                                 float32, written and read: forward, again, and their gradient
    interconnect   weights       (2 + r) (f − 1) / f · b N          all-gather
                   gradients     (f − 1) / f · b N                  reduce-scatter
                   activations   (2 + c + r) · 4 L (t − 1) / t · b T E
                                 two all-reduces a layer and pass
                   head          (3 + r) (f d − 1) · b C E
                                 hidden states of all rows, twice, and their gradient
    update         memory        32 P / (f t): AdamW reads and writes float32 weights and moments,
                                 and reads the gradients twice, of P trained parameters
                   interconnect  8 (d − 1) / d · P / (f t)

Attention's scores count for no bytes, as if they never left the chip, and neither does anything
elementwise.
"""

from dataclasses import dataclass

import numpy as np

from conductor_jax.models.qwen2 import Qwen2Config
from conductor_jax.models.shapes import parameter_count
from conductor_jax.training.flops import (
    hardware_flops,
    head_weights,
    layer_weights,
    model_flops,
)
from conductor_jax.training.hardware import Accelerator


@dataclass(frozen=True)
class StepShape:
  """What one training step works on, all lengths at their longest.

  Attributes:
    config: the model.
    rows: of the whole batch.
    samples: completions a row.
    prompt: tokens a prompt.
    completion: tokens a completion.
    micro_batches: parts that the rows are worked off in.
    remat: the model's policy.
    compute_bytes: of a number in computation.
    stored_bytes: of a stored weight.
    adapter_weights: as for `model_flops`.
    reference: as for `model_flops`.
  """

  config: Qwen2Config
  rows: int
  samples: int
  prompt: int
  completion: int
  micro_batches: int
  remat: str
  compute_bytes: int
  stored_bytes: int = 4
  adapter_weights: int = 0
  reference: bool = False

  def _lengths(self):
    return np.full(self.rows, self.prompt), np.full((self.rows, self.samples), self.completion)

  def model_flops(self) -> float:
    return model_flops(
        self.config, *self._lengths(), adapter_weights=self.adapter_weights,
        reference=self.reference)

  def hardware_flops(self) -> float:
    return hardware_flops(
        self.config, *self._lengths(), remat=self.remat, adapter_weights=self.adapter_weights,
        reference=self.reference)


@dataclass(frozen=True)
class Roofline:
  """Seconds of one step, each part as if it were alone.

  Attributes:
    arithmetic: of all micro-batches.
    memory: of all micro-batches.
    interconnect: of all micro-batches.
    update: of the optimizer.
    useful: that the model's own FLOPs take on all devices at their peak.
  """

  arithmetic: float
  memory: float
  interconnect: float
  update: float
  useful: float

  @property
  def seconds(self) -> float:
    return max(self.arithmetic, self.memory, self.interconnect) + self.update

  @property
  def mfu(self) -> float:
    """Model FLOPs utilisation of a step as fast as this."""
    return self.useful / self.seconds

  def followed_by(self, later: "Roofline") -> "Roofline":
    """Of a step that works off two batches and updates once."""
    return Roofline(
        self.arithmetic + later.arithmetic, self.memory + later.memory,
        self.interconnect + later.interconnect, self.update, self.useful + later.useful)

  @property
  def bound(self) -> str:
    """Which of the three decides."""
    return max(("arithmetic", "memory", "interconnect"), key=lambda name: getattr(self, name))


def roofline(
    step: StepShape, accelerator: Accelerator, *, data: int, fsdp: int, tensor: int
) -> Roofline:
  """The step's least time on a mesh of one kind of device; the formula stands above."""
  peak = data * fsdp * tensor * accelerator.peak_flops
  memory = step.micro_batches * _memory_bytes(step, data, fsdp, tensor)
  received = step.micro_batches * _received_bytes(step, data, fsdp, tensor)
  trained = (step.adapter_weights or parameter_count(step.config)) / (fsdp * tensor)
  return Roofline(
      arithmetic=step.hardware_flops() / peak,
      memory=memory / accelerator.memory_bandwidth,
      interconnect=received / accelerator.interconnect_bandwidth,
      update=max(32 * trained / accelerator.memory_bandwidth,
                 8 * (data - 1) / data * trained / accelerator.interconnect_bandwidth),
      useful=step.model_flops() / peak)


def _layers(config: Qwen2Config) -> int:
  return config.num_layers * layer_weights(config)


def _passes(step: StepShape) -> tuple[int, int]:
  """c and r of the formula."""
  return int(step.remat == "full"), int(step.reference)


def _rows_on_a_device(step: StepShape, data: int, fsdp: int) -> float:
  return step.rows / (step.micro_batches * data * fsdp)


def _memory_bytes(step: StepShape, data: int, fsdp: int, tensor: int) -> float:
  config, b, s = step.config, step.compute_bytes, step.stored_bytes
  again, reference = _passes(step)
  layers = _layers(config) / tensor
  head = head_weights(config) / (data * fsdp * tensor)
  gradients = (step.adapter_weights or _layers(config)) / tensor
  rows = _rows_on_a_device(step, data, fsdp)
  completions = rows * step.samples * step.completion
  tokens = rows * step.prompt + completions
  split = (2 * (config.num_heads + config.num_kv_heads) * config.head_dim
           + 3 * config.intermediate_size)
  width = 7 * config.hidden_size + split / tensor
  return (
      (2 + reference) * (s * layers / fsdp + b * layers)
      + (2 + again + reference) * b * layers
      + (s + b) * head + (3 + reference) * b * head
      + 2 * b * gradients + 8 * gradients / fsdp + (0 if step.adapter_weights else 8 * head)
      + (3 + again + reference) * b * tokens * config.num_layers * width
      + (3 + reference) * 8 * completions * config.vocab_size / tensor)


def _received_bytes(step: StepShape, data: int, fsdp: int, tensor: int) -> float:
  config, b = step.config, step.compute_bytes
  again, reference = _passes(step)
  layers = _layers(config) / tensor
  gradients = (step.adapter_weights or _layers(config)) / tensor
  rows = _rows_on_a_device(step, data, fsdp)
  completions = rows * step.samples * step.completion
  tokens = rows * step.prompt + completions
  reduced = 4 * config.num_layers * (tensor - 1) / tensor * b * tokens * config.hidden_size
  hidden = (data * fsdp - 1) * b * completions * config.hidden_size
  return (
      (fsdp - 1) / fsdp * b * ((2 + reference) * layers + gradients)
      + (2 + again + reference) * reduced + (3 + reference) * hidden)
