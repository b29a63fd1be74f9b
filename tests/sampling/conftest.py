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

import anyio
import pytest

from tests.sampling.processes import Mark

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


@pytest.fixture
def mark():
  """Processes that are started with its variable are killed after the test, if any are left."""
  mark = Mark()
  yield mark
  mark.kill()


@pytest.fixture(scope="session")
def vllm_python() -> Path:
  """The interpreter of an environment with the real vLLM, where there is one."""
  path = os.environ.get("CONDUCTOR_VLLM_PYTHON")
  if not path:
    pytest.skip("CONDUCTOR_VLLM_PYTHON does not name an interpreter with vLLM")
  return Path(path)


@pytest.fixture(scope="session")
def small_model():
  """See `small_model.SmallModel`."""
  # Tests without arrays do not wait for jax.
  from tests.sampling.small_model import make_small_model

  return make_small_model()


@pytest.fixture(scope="session")
def small_folder(small_model, tmp_path_factory) -> Path:
  """The checkpoint of the small model with the parameters of seed 0."""
  folder = tmp_path_factory.mktemp("small") / "step-0"
  small_model.export(folder, small_model.params(0))
  return folder


@pytest.fixture(scope="session")
def real_options(vllm_python, tmp_path_factory) -> dict[str, Any]:
  """What a `VllmServer` needs to start the real vLLM on a CPU, without compilation."""
  return {"python": vllm_python, "max_model_len": 256, "dtype": "float32",
          "arguments": ["--enforce-eager"], "start_timeout": 300.0, "say": print,
          "log": tmp_path_factory.mktemp("vllm") / "vllm.log"}


@pytest.fixture(scope="module")
def real_vllm_server(real_options, small_folder):
  """The real server of a module, which takes half a minute to start; `real_vllm` hands it out."""
  from conductor_jax.sampling.vllm_server import VllmServer

  server = VllmServer(**real_options)
  anyio.run(server.start, small_folder)
  yield server
  anyio.run(server.stop)


@pytest.fixture
def real_vllm(real_vllm_server, small_folder):
  """A real server of the small model; started again where a test has ended it.

  A test that loads other weights puts these back.
  """
  server = real_vllm_server
  if not server.alive() or _model_of(server.url) != str(small_folder):
    anyio.run(server.start, small_folder)
  return server


def _model_of(url: str) -> str:
  with urllib.request.urlopen(url + "/v1/models", timeout=20) as response:
    return json.load(response)["data"][0]["root"]
