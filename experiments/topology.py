"""Devices that are not there, to compile for: TPU slices and NVIDIA GPUs by name."""

import importlib.util
import os
import re
from dataclasses import dataclass
from typing import Any

import jax
from jax.experimental import topologies

from conductor_jax.errors import UserError
from conductor_jax.training.hardware import ACCELERATORS, Accelerator

_TPUS, _GPUS = ("v4", "v5e", "v5p", "v6e"), ("a100", "h100", "h200")
_GPUS_A_HOST = 8

# What libtpu would ask the metadata server of a Cloud TPU; where there is none it only warns. Its
# lock keeps two programs off one TPU, and this one uses none.
_TPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost", "TPU_LOG_DIR": "disabled",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}

# What XLA's GPU compiler has to know of a device (stream_executor.GpuTargetConfigProto): cores and
# clock from NVIDIA's architecture papers, limits of the compute capability from the CUDA C++
# programming guide.
_GPU_DESCRIPTION = """
platform_name: "CUDA"
device_description_str: "{kind}"
gpu_device_info {{
  cuda_compute_capability {{ major: {major} }}
  core_count: {cores}
  fpus_per_core: {units}
  clock_rate_ghz: {clock}
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {shared}
  shared_memory_per_core: {shared_core}
  l2_cache_size: {cache}
  memory_bandwidth: {bandwidth}
  device_memory_size: {memory}
}}
runtime_version {{ major: 12 minor: 9 }}
dnn_version_info {{ major: 9 minor: 10 }}
"""
_AMPERE = dict(major=8, cores=108, units=64, clock=1.41, shared=163 * 2**10,
               shared_core=164 * 2**10, cache=40 * 2**20)
_HOPPER = dict(major=9, cores=132, units=128, clock=1.98, shared=227 * 2**10,
               shared_core=228 * 2**10, cache=50 * 2**20)
_GENERATIONS = {"a100": _AMPERE, "h100": _HOPPER, "h200": _HOPPER}


@dataclass(frozen=True)
class Topology:
  """Devices that exist for the compiler only.

  Attributes:
    name: as the user gave it.
    accelerator: what each of them can do.
    devices: JAX devices.
    capacity: bytes a program may use of each.
  """

  name: str
  accelerator: Accelerator
  devices: list[Any]
  capacity: int


def find_topology(name: str) -> Topology:
  """The devices of a topology: a TPU slice as `v5e:4x4` or `v5p:2x2x4`, GPUs as `h100:8`.

  The shape of a slice is in chips.

  Raises:
    UserError: there is no such topology, or the compiler for it is not installed.
  """
  kind, _, shape = name.partition(":")
  sizes = [int(size) for size in shape.split("x")] if re.fullmatch(r"\d+(x\d+)*", shape) else []
  if kind in _TPUS and sizes:
    return _tpus(name, kind, sizes)
  if kind in _GPUS and len(sizes) == 1:
    return _gpus(name, kind, sizes[0])
  raise UserError(
      f"--topology={name}: must be a TPU slice in chips ({', '.join(_TPUS)}), such as v5e:4x4 or "
      f"v5p:2x2x4, or a number of GPUs ({', '.join(_GPUS)}), such as h100:8")


def _accelerator(name: str) -> Accelerator:
  return next(known for known in ACCELERATORS if known.name == name)


def _tpus(name: str, kind: str, sizes: list[int]) -> Topology:
  if importlib.util.find_spec("libtpu") is None:
    raise UserError(
        f"--topology={name}: libtpu, which compiles for it, is not installed: "
        'pip install -e ".[tpu-aot]"')
  os.environ.update(_TPU_ENVIRONMENT)
  options: dict[str, Any] = {}
  if max(sizes) == 1:
    options["chips_per_host_bounds"] = (1, 1, 1)  # libtpu expects hosts of 2 × 2 chips
  if kind == "v4":
    options["chip_config_name"] = "megacore"  # both cores of a chip as one device
  try:
    devices = topologies.get_topology_desc(
        platform="tpu", topology_name=name, **options).devices
  except jax.errors.JaxRuntimeError as fault:
    raise UserError(
        f"--topology={name}: there is no such slice ({_first_line(fault)}); try "
        f"{kind}:{'2x2' if kind in ('v5e', 'v6e') else '2x2x1'}") from fault
  accelerator = _accelerator(kind)
  return Topology(name, accelerator, devices, accelerator.memory)


def _gpus(name: str, kind: str, count: int) -> Topology:
  hosts = max(1, count // _GPUS_A_HOST)
  if count < 1 or count % hosts or count // hosts > _GPUS_A_HOST:
    raise UserError(
        f"--topology={name}: must be up to {_GPUS_A_HOST} GPUs, or a multiple of {_GPUS_A_HOST}")
  accelerator = _accelerator(kind)
  description = _GPU_DESCRIPTION.format(
      kind=accelerator.kind, bandwidth=round(accelerator.memory_bandwidth),
      memory=accelerator.memory, **_GENERATIONS[kind])
  os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"  # it asks the driver, and there may be none
  try:
    devices = topologies.get_topology_desc(
        platform="cuda", topology_name=name, target_config=description,
        topology=f"1x{hosts}x{count // hosts}").devices
  except NotImplementedError as fault:
    raise UserError(
        f"--topology={name}: JAX's CUDA plugin, which compiles for it, is not installed: "
        'pip install -e ".[cuda12]"') from fault
  return Topology(name, accelerator, devices, round(accelerator.memory * _gpu_share()))


def _gpu_share() -> float:
  """The share of a GPU's memory that a program gets."""
  value = os.environ["XLA_CLIENT_MEM_FRACTION"]
  try:
    return float(value)
  except ValueError as fault:
    raise UserError(
        f"XLA_CLIENT_MEM_FRACTION={value}: must be a number, such as 0.9") from fault


def _first_line(fault: Exception) -> str:
  return str(fault).splitlines()[0].removeprefix("INVALID_ARGUMENT: ").rstrip(".")
