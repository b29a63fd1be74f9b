"""What accelerators can do, from their vendors' data sheets."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
  """One device as JAX sees it.

  Attributes:
    name: short name, as in a topology.
    kind: JAX's `device.device_kind`.
    peak_flops: dense bfloat16 operations a second.
    memory: bytes on the device, without what its runtime keeps for itself.
    memory_bandwidth: bytes a second.
    interconnect_bandwidth: bytes a second that can reach a device from its neighbours, over all of
      its links; half of a data sheet's figure that counts both directions.
  """

  name: str
  kind: str
  peak_flops: float
  memory: int
  memory_bandwidth: float
  interconnect_bandwidth: float


def _gib(value: float) -> int:
  return round(value * 2**30)


# TPU: cloud.google.com/tpu/docs, "System architecture", a page for each version; the memory is what
# the compiler (libtpu 0.0.42) allows a program. A v4 and a v5p chip is one device.
# GPU: NVIDIA's data sheets of A100 (SXM, 80 GB), H100 (SXM) and H200 (SXM); the memory is what the
# driver reports.
ACCELERATORS = (
    Accelerator("v4", "TPU v4", 275e12, _gib(30.75), 1200e9, 300e9),
    Accelerator("v5e", "TPU v5 lite", 197e12, _gib(15.75), 819e9, 200e9),
    Accelerator("v5p", "TPU v5", 459e12, _gib(95.74), 2765e9, 600e9),
    Accelerator("v6e", "TPU v6 lite", 918e12, _gib(31.25), 1600e9, 400e9),
    Accelerator("a100", "NVIDIA A100-SXM4-80GB", 312e12, 85_100_068_864, 2039e9, 300e9),
    Accelerator("h100", "NVIDIA H100 80GB HBM3", 989e12, 84_942_979_072, 3350e9, 450e9),
    Accelerator("h200", "NVIDIA H200", 989e12, 151_397_597_184, 4800e9, 450e9),
)


def find_accelerator(kind: str) -> Accelerator | None:
  """The accelerator of a JAX device kind, None if it is not known."""
  return next((known for known in ACCELERATORS if known.kind == kind), None)
