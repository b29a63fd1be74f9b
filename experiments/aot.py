"""Compiles a config's training step for accelerators that are not there, and says whether it fits.

    python -m experiments.aot --config=configs/quickstart.py --topology=v5e:2x2 \\
        --config.mesh.fsdp=4

The compiler for TPUs comes with `pip install -e ".[tpu-aot]"`, that for NVIDIA GPUs with
`pip install -e ".[cuda12]"`; neither needs its device. Memory is the compiler's own account of one
device, with every prompt and completion at its longest. Seconds and MFU are no measurement: they
are the least and the most that `conductor_jax/training/roofline.py` allows.

`--json` prints one line for programs instead. The exit status is 1 if the step does not fit.
"""

import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from ml_collections import ConfigDict
from rich import box
from rich.console import Console
from rich.table import Table

from conductor_jax.models.padding import padded_width
from conductor_jax.models.shapes import parameter_count
from conductor_jax.training.batch import LATER_PROMPT_MULTIPLE, GroupedBatch
from conductor_jax.training.roofline import StepShape, roofline
from experiments.policy import Policy, abstract_policy, attention_of, open_mesh
from experiments.program import run
from experiments.steps import grpo_step
from experiments.topology import Topology, find_topology

_TOPOLOGY = flags.DEFINE_string(
    "topology", None, "What to compile for: a TPU slice, such as v5e:4x4, or GPUs, such as h100:8.")
_JSON = flags.DEFINE_bool("json", False, "Prints one JSON line instead of a table.")

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# The two ways in which libtpu says it: "… (20.95G) exceeds available HBM (15.75G)" and
# "Used 20.95G of 15.75G hbm".
_NEEDED = re.compile(r"\(([\d.]+)([KMGT])\) exceeds available|Used ([\d.]+)([KMGT]) of [\d.]+")


def step_shapes(config: ConfigDict, policy: Policy) -> list[StepShape]:
  """What a GRPO step of a config works off, its lengths rounded up as batches are packed: the first
  rounds, and the second ones where there are any."""
  grpo, rollout, model = config.grpo, config.rollout, config.model
  samples = grpo.samples_per_row or grpo.group_size
  first = StepShape(
      config=policy.shape, rows=grpo.prompts * grpo.group_size // samples, samples=samples,
      prompt=padded_width(rollout.max_prompt_tokens, 8),
      completion=padded_width(rollout.max_completion_tokens, 8),
      micro_batches=grpo.micro_batches, remat=model.remat,
      compute_bytes=jnp.dtype(model.compute_dtype).itemsize,
      stored_bytes=jnp.dtype(model.param_dtype).itemsize, adapter_weights=policy.adapter_weights,
      reference=grpo.kl_coefficient > 0)
  questions = round(grpo.recursion.share * grpo.prompts)
  if not questions:
    return [first]
  return [first, replace(
      first, rows=questions * grpo.group_size, samples=1,
      prompt=padded_width(rollout.max_prompt_tokens, LATER_PROMPT_MULTIPLE),
      micro_batches=grpo.recursion.micro_batches)]


def lower_step(
    config: ConfigDict, policy: Policy, shapes: Sequence[StepShape]) -> list[jax.stages.Lowered]:
  """Lowers the programs of the config's GRPO step for shapes: nothing is allocated."""
  step, state = grpo_step(
      config, policy, policy.trained if shapes[0].reference else None, compile_only=True)
  return step.lower(state, *map(_batch, shapes))


def _batch(shape: StepShape) -> GroupedBatch:
  """A batch in shapes, every length at its limit."""
  prompts = (shape.rows, shape.prompt)
  completions = (shape.rows, shape.samples, shape.completion)
  return GroupedBatch(
      prompt_tokens=jax.ShapeDtypeStruct(prompts, jnp.int32),
      prompt_mask=jax.ShapeDtypeStruct(prompts, bool),
      completion_tokens=jax.ShapeDtypeStruct(completions, jnp.int32),
      completion_mask=jax.ShapeDtypeStruct(completions, bool),
      advantages=jax.ShapeDtypeStruct(completions, jnp.float32),
      sampler_logprobs=jax.ShapeDtypeStruct(completions, jnp.float32))


def compile_memory(lowered: jax.stages.Lowered) -> dict[str, int | None]:
  """Compiles, and returns the bytes that one device needs by the compiler's account.

  Where the compiler gives up because memory runs out, only the peak is known, if it says that.
  """
  try:
    memory = lowered.compile().memory_analysis()
  except jax.errors.JaxRuntimeError as fault:
    if "RESOURCE_EXHAUSTED" not in str(fault):
      raise
    said = _NEEDED.search(str(fault))
    number, unit = [part for part in said.groups() if part] if said else (None, None)
    return dict(arguments=None, temporaries=None, outputs=None, aliased=None,
                peak=round(float(number) * _UNITS[unit]) if said else None)
  return dict(
      arguments=memory.argument_size_in_bytes, temporaries=memory.temp_size_in_bytes,
      outputs=memory.output_size_in_bytes, aliased=memory.alias_size_in_bytes,
      peak=memory.argument_size_in_bytes + memory.temp_size_in_bytes
      + memory.output_size_in_bytes - memory.alias_size_in_bytes)


def measure(config: ConfigDict, topology: Topology) -> dict[str, Any]:
  """Compiles the config's step for a topology; what `--json` prints.

  Raises:
    UserError: the mesh does not fit the topology.
  """
  policy = abstract_policy(config, open_mesh(config, topology.devices))
  shapes = step_shapes(config, policy)
  shape = shapes[0]
  began = time.perf_counter()
  memory = max((compile_memory(lowered) for lowered in lower_step(config, policy, shapes)),
               key=lambda memory: np.inf if memory["peak"] is None else memory["peak"])
  seconds = time.perf_counter() - began
  bound, *later = [roofline(each, topology.accelerator, **config.mesh) for each in shapes]
  for each in later:
    bound = bound.followed_by(each)
  peak = memory["peak"]
  return {
      "topology": topology.name, "device_kind": topology.devices[0].device_kind,
      "devices": len(topology.devices), "mesh": config.mesh.to_dict(),
      "attention": attention_of(config, policy.shape, topology.devices[0].platform),
      "parameters": parameter_count(shape.config), "rows": shape.rows, "samples": shape.samples,
      "prompt": shape.prompt, "completion": shape.completion,
      "micro_batches": shape.micro_batches,
      "later_rows": sum(each.rows for each in shapes[1:]),
      **{f"{name}_gib": _gib(value) for name, value in memory.items()},
      "capacity_gib": _gib(topology.capacity),
      "fits": peak is not None and peak <= topology.capacity,
      "compile_seconds": round(seconds, 1),
      "model_flops": sum(each.model_flops() for each in shapes),
      "hardware_flops": sum(each.hardware_flops() for each in shapes),
      "roofline_seconds": bound.seconds, "roofline_bound": bound.bound,
      "roofline_mfu": bound.mfu}


def _gib(value: int | None) -> float | None:
  return None if value is None else round(value / 2**30, 6)


def table(values: dict[str, Any]) -> Table:
  """The measured values for people."""
  def gib(name):
    value = values[f"{name}_gib"]
    return "–" if value is None else f"{value:.2f} GiB"

  mesh = " × ".join(f"{axis} {size}" for axis, size in values["mesh"].items())
  rows = {
      "devices": f"{values['devices']} × {values['device_kind']}",
      "mesh": mesh,
      "attention": values["attention"],
      "parameters": f"{values['parameters'] / 1e6:,.2f} M",
      "rows × samples": f"{values['rows']} × {values['samples']}",
      **({"second rounds": f"{values['later_rows']} × 1"} if values["later_rows"] else {}),
      "tokens": f"{values['prompt']} prompt + {values['completion']} completion",
      "micro-batches": f"{values['micro_batches']}",
      "arguments": gib("arguments"),
      "temporaries": gib("temporaries"),
      "outputs, of them in place": f"{gib('outputs')}, {gib('aliased')}",
      "needed of capacity": f"{gib('peak')} of {gib('capacity')}",
      "fits": "yes" if values["fits"] else "no",
      "compiled in": f"{values['compile_seconds']:.1f} s",
      "model FLOPs a step": f"{values['model_flops']:.4g}",
      "with recomputation": f"{values['hardware_flops']:.4g}",
      "a step takes at least": (
          f"{values['roofline_seconds']:.3g} s, bound by {values['roofline_bound']}"),
      "MFU at most": f"{values['roofline_mfu']:.1%}",
  }
  shown = Table(box=box.SIMPLE, title=f"{values['topology']}, each device", title_justify="left",
                show_header=False)
  shown.add_column(no_wrap=True)
  shown.add_column(justify="right", no_wrap=True)
  for label, value in rows.items():
    shown.add_row(label, value, style="bold" if label in ("fits", "needed of capacity") else None)
  return shown


def compile_ahead(config: ConfigDict) -> None:
  """Compiles, prints, and exits with status 1 if the step does not fit."""
  # An accelerator that is there may be in use, and is not needed.
  jax.config.update("jax_platforms", "cpu")
  # A program for devices that are not there cannot be read back from the cache.
  jax.config.update("jax_enable_compilation_cache", False)
  values = measure(config, find_topology(_TOPOLOGY.value))
  if _JSON.value:
    print(json.dumps(values))
  else:
    Console(highlight=False).print(table(values))
  if not values["fits"]:
    needed = values["peak_gib"]
    print(f"{values['topology']}: does not fit: "
          f"{'more' if needed is None else f'{needed:.2f} GiB'} is needed on each device, and "
          f"{values['capacity_gib']:.2f} GiB can be had", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
  run(compile_ahead, ["topology"])
