"""A stand-in for a vLLM server, as a real process on a real socket."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

FAKE_VLLM = Path(__file__).parent / "fake_vllm"
TINY_MODEL = Path(__file__).parent.parent / "models" / "goldens" / "qwen2-tied"


class FakeVllm:
  """A running stand-in server.

  Attributes:
    url: where it listens.
    process: its process.
  """

  def __init__(self, model: Path, *arguments: str, port: int = 0, **environment: str):
    """Starts it on a port, 0 for a free one, and waits until it listens."""
    if not port:
      with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    self.url = f"http://127.0.0.1:{port}"
    self.process = subprocess.Popen(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", f"--model={model}",
         "--served-model-name=conductor", "--host=127.0.0.1", f"--port={port}",
         "--max-model-len=64", "--logprobs-mode=processed_logprobs", "--enable-scale-out",
         *arguments],
        env={**os.environ, "PYTHONPATH": str(FAKE_VLLM), "VLLM_SERVER_DEV_MODE": "1",
             **environment},
        stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while True:
      try:
        urllib.request.urlopen(self.url + "/v1/models").close()
        return
      except urllib.error.URLError:
        assert self.process.poll() is None, "the stand-in server died at its start"
        assert time.monotonic() < deadline, "the stand-in server did not start within 20 s"
        time.sleep(0.02)

  def ask(self, route: str, body: Any = None, method: str | None = None) -> Any:
    """The JSON answer of a route: POST with a body, else GET, unless a method is given."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        self.url + route, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=20) as response:
      return json.load(response)

  def arm(self, route: str, kind: str, **options: Any) -> None:
    """Arms a fault; `vllm.faults` of the stand-in lists them."""
    self.ask("/faults", {"route": route, "kind": kind, **options})

  def disarm(self) -> None:
    self.ask("/faults", method="DELETE")

  def requests(self, route: str | None = None) -> list[dict[str, Any]]:
    """What was asked so far, in order: route, query and body."""
    return [each for each in self.ask("/requests") if route in (None, each["route"])]

  def kill(self) -> None:
    """Kills it with SIGKILL, and waits until it is gone."""
    self.process.kill()
    self.process.wait()


@pytest.fixture(scope="session")
def tiny_folder() -> Path:
  """A folder with a tiny Qwen2 in float32: vocabulary 61, 64 positions, the token 2 ends."""
  return TINY_MODEL


@pytest.fixture(scope="session")
def fake_environment() -> dict[str, str]:
  """With it, any interpreter's `vllm` is the stand-in."""
  return {"PYTHONPATH": str(FAKE_VLLM)}


@pytest.fixture
def start_fake_vllm(tiny_folder):
  """A function (*arguments, model, port, **environment) → FakeVllm; all end with the test."""
  servers = []

  def start(*arguments: str, model: Path = tiny_folder, **options: Any) -> FakeVllm:
    servers.append(FakeVllm(model, *arguments, **options))
    return servers[-1]

  yield start
  for server in servers:
    server.kill()


@pytest.fixture
def fake_vllm(start_fake_vllm) -> FakeVllm:
  """A stand-in server of the tiny model."""
  return start_fake_vllm()
