"""Processes with several devices on the host, which only processes of their own have."""

import json
import os
import socket
import subprocess
import sys

# Longer than any of them takes, by much.
_SECONDS = 300


def environment(devices: int) -> dict[str, str]:
  """That of a process with so many devices."""
  return os.environ | {
      "JAX_PLATFORMS": "cpu",
      "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} "
                   f"--xla_force_host_platform_device_count={devices} "
                   f"--xla_cpu_collective_call_terminate_timeout_seconds={_SECONDS}",
      # XLA's pool has a thread per device or this many, and a device that waits for the others in
      # two collectives at once holds two: with eight threads in all, everyone may wait for ever.
      "NPROC": "64",
      "PYTHONPATH": os.pathsep.join(sys.path),
  }


def start(program: str, *arguments: str, devices: int) -> subprocess.Popen:
  """Starts a Python file that prints a JSON object as its last line.

  Args:
    program: path of the file.
    arguments: to it.
    devices: how many the process has.
  """
  return subprocess.Popen(
      [sys.executable, program, *arguments], env=environment(devices), text=True,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def reports(*processes: subprocess.Popen) -> list[dict]:
  """What each of them printed; none is left running, whatever happens."""
  results = []
  try:
    for process in processes:
      out, err = process.communicate(timeout=_SECONDS)
      assert process.returncode == 0, err
      results.append(json.loads(out.splitlines()[-1]))
  finally:
    for process in processes:
      process.kill()
      process.wait()
  return results


def free_address() -> str:
  """An address on this machine for the processes' coordinator."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return f"127.0.0.1:{free.getsockname()[1]}"
