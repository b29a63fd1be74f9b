"""The server's handle, on a stand-in server: real processes, sockets and kills."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import aiohttp
import psutil
import pytest

from conductor_jax.errors import UserError
from conductor_jax.sampling import vllm_server
from conductor_jax.sampling.vllm_server import VllmServer
from tests.sampling.processes import wait_until


@pytest.fixture
def said():
  return []


@pytest.fixture
def make(tmp_path, fake_environment, mark, said):
  """A function (start_faults, **options) → a server that is not started yet."""
  def build(start_faults="", *, environment=None, **options):
    options = {"python": sys.executable, "max_model_len": 64, "dtype": "float32",
               "start_timeout": 20.0, "log": tmp_path / "vllm.log", "say": said.append, **options}
    return VllmServer(environment={
        **fake_environment, **mark.environment, "FAKE_VLLM_START": start_faults,
        **(environment or {})}, **options)
  return build


@pytest.fixture
def short_grace(monkeypatch):
  monkeypatch.setattr(vllm_server, "GRACE", 0.3)


async def get(url):
  async with aiohttp.ClientSession() as session, session.get(url) as response:
    return await response.json()


def server_process(mark):
  """The process of the server itself."""
  [process] = [each for each in mark.processes() if "vllm.entrypoints" in " ".join(each.cmdline())
               and "guard.py" not in " ".join(each.cmdline())]
  return process


async def test_a_started_server_answers_and_a_stopped_one_leaves_nothing(
    make, tiny_folder, mark, tmp_path):
  weights = tmp_path / "weights"
  weights.mkdir()
  server = make(remove=[weights])
  assert not server.alive()
  await server.start(tiny_folder)
  assert server.alive()
  # What a terminal or a scheduler sends to our process group is not for the guard.
  [guard] = [each for each in psutil.Process().children() if each in mark.processes()]
  assert os.getsid(guard.pid) == guard.pid
  [card] = (await get(server.url + "/v1/models"))["data"]
  assert card == {**card, "id": "conductor", "root": str(tiny_folder), "max_model_len": 64}
  assert await get(server.url + "/weight_info") == {"weight_version": "default"}
  url = server.url
  await server.stop()
  assert mark.processes() == []
  assert not weights.exists()
  assert not server.alive()
  assert server.url is None
  with pytest.raises(aiohttp.ClientConnectionError):
    await get(url + "/v1/models")
  await server.stop()


async def test_the_command_line_and_environment_are_those_of_a_trainers_sampler(
    make, tiny_folder, mark, monkeypatch):
  monkeypatch.setenv("JAX_PLATFORMS", "cpu")
  monkeypatch.setenv("XLA_FLAGS", "--xla_flag")
  monkeypatch.setenv("OPENAI_API_KEY", "secret")
  monkeypatch.setenv("HF_TOKEN", "secret")
  monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "3")
  monkeypatch.setenv("PYTHONHASHSEED", "1")
  async with make(arguments=["--enforce-eager"], served_name="policy") as server:
    await server.start(tiny_folder)
    process = server_process(mark)
    port = server.url.rpartition(":")[2]
    assert process.cmdline()[1:] == [
        "-m", "vllm.entrypoints.openai.api_server", "--model", str(tiny_folder),
        "--served-model-name", "policy", "--host", "127.0.0.1", "--port", port,
        "--max-model-len", "64", "--dtype", "float32", "--logprobs-mode", "processed_logprobs",
        "--generation-config", "vllm", "--enable-scale-out", "--enforce-eager"]
    environment = process.environ()
    assert environment == {
        **environment, "VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "3", "PYTHONSAFEPATH": "1"}
    withheld = {"JAX_PLATFORMS", "XLA_FLAGS", "OPENAI_API_KEY", "HF_TOKEN", "PYTHONHASHSEED"}
    assert not withheld & environment.keys()
    # It listens on the loopback interface alone.
    assert {each.laddr.ip for each in process.net_connections() if each.status == "LISTEN"} == {
        "127.0.0.1"}


async def test_a_server_is_started_again_with_another_folder_on_the_same_port(
    make, tiny_folder, mark, tmp_path):
  other = tmp_path / "weights" / "step-1"
  other.mkdir(parents=True)
  for file in tiny_folder.iterdir():
    (other / file.name).write_bytes(file.read_bytes())
  async with make(remove=[tmp_path / "weights"]) as server:
    await server.start(tiny_folder)
    url, first = server.url, server_process(mark)
    await server.start(other)
    # The folder outlives the restart: the next server reads it.
    assert (await get(server.url + "/v1/models"))["data"][0]["root"] == str(other)
    assert server.url == url
    assert not first.is_running()
    wait_until(lambda: len(mark.processes()) == 3, "guard, watcher and server are there")
  assert mark.processes() == []
  assert not other.exists()


async def test_a_dead_server_is_noticed_and_can_be_started_again(
    make, tiny_folder, mark, short_grace):
  async with make("grandchild") as server:
    await server.start(tiny_folder)
    dead = server_process(mark)
    dead.kill()
    wait_until(lambda: not server.alive(), "the server is known to be dead")
    await server.start(tiny_folder)
    assert server.alive()
    # What the dead one had started is gone: guard, watcher, server and its grandchild are left.
    wait_until(lambda: len(mark.processes()) == 4, "all are there")
  assert mark.processes() == []


async def test_a_server_that_ignores_sigterm_is_stopped(make, tiny_folder, mark, short_grace):
  async with make("ignore_sigterm,grandchild") as server:
    await server.start(tiny_folder)
  assert mark.processes() == []


async def test_a_server_whose_guard_was_killed_is_dead_and_stopped(
    make, tiny_folder, mark, short_grace):
  async with make("grandchild") as server:
    await server.start(tiny_folder)
    [guard] = [each for each in psutil.Process().children() if each in mark.processes()]
    guard.kill()
    wait_until(lambda: not server.alive(), "the server is known to be dead")
  assert mark.processes() == []


async def test_an_exception_in_the_block_stops_the_server(make, tiny_folder, mark):
  with pytest.raises(ZeroDivisionError):
    async with make() as server:
      await server.start(tiny_folder)
      raise ZeroDivisionError
  assert mark.processes() == []


async def test_a_taken_port_is_named_with_a_remedy(make, tiny_folder, tmp_path):
  with socket.create_server(("127.0.0.1", 0)) as holder:
    port = holder.getsockname()[1]
    with pytest.raises(UserError, match=f"^port {port} is taken: free it, choose another port"):
      await make(port=port).start(tiny_folder)
  # Nothing was started to find out.
  assert not (tmp_path / "vllm.log").exists()
  async with make(port=port) as server:
    await server.start(tiny_folder)
    assert server.url == f"http://127.0.0.1:{port}"


async def test_a_free_port_that_was_lost_meanwhile_is_replaced(make, tiny_folder):
  async with make() as server:
    await server.start(tiny_folder)
    port = int(server.url.rpartition(":")[2])
    await server.stop()
    with socket.create_server(("127.0.0.1", port)):
      await server.start(tiny_folder)
      assert server.url != f"http://127.0.0.1:{port}"


async def test_a_port_lost_between_its_choice_and_its_use_is_chosen_again(
    make, tiny_folder, monkeypatch, start_fake_vllm, tmp_path):
  # Another server is up on what looked like a free port, and it is a healthy one.
  model = tmp_path / "another"
  model.symlink_to(tiny_folder)
  other = start_fake_vllm(model=model)
  ports = iter([int(other.url.rpartition(":")[2])])
  choose = VllmServer._choose_port

  def choose_badly(self):
    self._port = next(ports, 0)
    if not self._port:
      choose(self)

  monkeypatch.setattr(VllmServer, "_choose_port", choose_badly)
  async with make() as server:
    await server.start(tiny_folder)
    assert server.url != other.url
    assert (await get(server.url + "/v1/models"))["data"][0]["root"] == str(tiny_folder)


@pytest.mark.parametrize("python", ["/no/such/python", "no-such-python"])
async def test_a_missing_interpreter_is_named_with_a_remedy(make, tiny_folder, mark, python):
  with pytest.raises(UserError) as error:
    await make(python=python).start(tiny_folder)
  assert str(error.value) == (
      f"{python} is no Python interpreter: make vLLM's environment from "
      "third_party/vllm/requirements-*.txt as BUILD.md says, and name its interpreter")
  assert mark.processes() == []


async def test_an_interpreter_without_vllm_is_named_with_a_remedy(make, tiny_folder, mark):
  with pytest.raises(UserError, match="has no vllm package: make vLLM's environment from") as error:
    await make(environment={"PYTHONPATH": ""}).start(tiny_folder)
  assert sys.executable in str(error.value)
  mark.wait_until_gone()


async def test_a_folder_without_a_model_is_named(make, tmp_path, mark):
  with pytest.raises(UserError, match=f"{tmp_path} has no config.json: name the folder of a model"):
    await make().start(tmp_path)
  assert mark.processes() == []


async def test_a_server_that_dies_at_its_start_is_reported_with_the_cause(
    make, tiny_folder, mark, short_grace, tmp_path):
  weights = tmp_path / "weights"
  weights.mkdir()
  server = make("grandchild,die", remove=[weights])
  with pytest.raises(UserError) as error:
    await server.start(tiny_folder)
  assert str(error.value) == (
      "the vLLM server ended at its start with status 1: RuntimeError: armed to die at the start "
      f"(more in {tmp_path / 'vllm.log'})")
  assert mark.processes() == []
  assert not server.alive()
  assert weights.exists()
  await server.stop()
  assert not weights.exists()


async def test_the_cause_is_not_that_of_an_earlier_start(make, tiny_folder, tmp_path):
  yesterday = "ModuleNotFoundError: No module named 'vllm'\n"
  (tmp_path / "vllm.log").write_text(yesterday)
  with pytest.raises(UserError, match="armed to die"):
    await make("die").start(tiny_folder)
  assert (tmp_path / "vllm.log").read_text().startswith(yesterday)


async def test_a_server_that_hangs_at_its_start_is_given_up(
    make, tiny_folder, mark, short_grace, said, tmp_path, monkeypatch):
  monkeypatch.setattr(vllm_server, "_SAY_SECONDS", 0.5)
  server = make("grandchild,hang", start_timeout=1.5)
  with pytest.raises(UserError) as error:
    await server.start(tiny_folder)
  assert str(error.value) == (
      f"the vLLM server did not answer within 1.5 s: its last line in {tmp_path / 'vllm.log'} is: "
      "Loading weights")
  assert mark.processes() == []
  assert re.fullmatch(
      r"waiting for the vLLM server on port \d+, \d s: Loading weights", said[-1])


TRAINER = """
import asyncio, json, signal, sys
from pathlib import Path
from conductor_jax.sampling import vllm_server
vllm_server.GRACE = 0.3
options = json.loads(sys.argv[1])
# It is ignored where tests run in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
async def main():
  server = vllm_server.VllmServer(
      Path(sys.executable), max_model_len=64, dtype="float32", log=Path(options["log"]),
      start_timeout=20, remove=[Path(options["remove"])], say=print,
      environment=options["environment"])
  await server.start(Path(options["model"]))
  print(server.url, flush=True)
  if options["ending"] == "returns":
    return
  if options["ending"] == "raises":
    raise RuntimeError("an exception of the trainer")
  await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("ending, faults", [
    ("returns", "grandchild"), ("raises", "grandchild"), ("SIGTERM", "grandchild"),
    ("SIGINT", "grandchild"), ("SIGKILL", "grandchild"), ("SIGKILL", "grandchild,ignore_sigterm")])
def test_nothing_outlives_the_trainer(
    tiny_folder, fake_environment, mark, tmp_path, ending, faults):
  weights = tmp_path / "weights"
  weights.mkdir()
  options = {
      "log": str(tmp_path / "vllm.log"), "remove": str(weights), "model": str(tiny_folder),
      "environment": {**fake_environment, "FAKE_VLLM_START": faults}, "ending": ending}
  trainer = subprocess.Popen(
      [sys.executable, "-c", TRAINER, json.dumps(options)], stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL, text=True, process_group=0,
      env={**os.environ, **mark.environment, "PYTHONPATH": os.pathsep.join(sys.path)})
  url = trainer.stdout.readline().strip()
  assert url.startswith("http")
  if ending.startswith("SIG"):
    urllib.request.urlopen(url + "/health").close()
    os.killpg(trainer.pid, signal.Signals[ending])
  trainer.wait(timeout=20)
  trainer.stdout.close()
  mark.wait_until_gone()
  assert not weights.exists()
  assert "grandchild" in (tmp_path / "vllm.log").read_text()
