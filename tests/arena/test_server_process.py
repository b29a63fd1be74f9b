"""The child process: how it starts, is found, and ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from conductor_jax.arena.server_process import ServerProcess
from conductor_jax.errors import UserError

pytestmark = pytest.mark.usefixtures("factories")


def gone(pid):
  """Whether a process has ended, even if nobody has collected its exit status yet."""
  try:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
  except FileNotFoundError:
    return True


def wait_until(condition):
  deadline = time.monotonic() + 20
  while not condition():
    assert time.monotonic() < deadline, "it did not happen within 20 s"
    time.sleep(0.02)


def test_what_a_factory_prints_does_not_disturb_the_port_line(tmp_path):
  with ServerProcess("server_test_factories:noisy", {}, log=tmp_path / "log") as server:
    with urllib.request.urlopen(server.base_url + "/models") as response:
      assert json.load(response)["data"] == []
  assert (tmp_path / "log").read_text() == "a factory may print\n"


def test_close_ends_the_child_and_may_be_called_twice():
  server = ServerProcess("server_test_factories:echo", {"prefix": "x"})
  server.close()
  server.close()
  assert gone(server.pid)
  with pytest.raises(ConnectionRefusedError):
    socket.create_connection(("127.0.0.1", server.port))


def test_a_child_killed_from_outside_can_still_be_closed():
  server = ServerProcess("server_test_factories:echo", {"prefix": "x"})
  os.kill(server.pid, signal.SIGKILL)
  server.close()
  assert gone(server.pid)


def test_a_taken_port_is_named_with_a_remedy(capfd):
  with socket.create_server(("127.0.0.1", 0)) as holder:
    port = holder.getsockname()[1]
    with pytest.raises(UserError, match=f"port {port} is taken: free it, choose another") as error:
      ServerProcess("server_test_factories:echo", {"prefix": "x"}, port=port)
  assert "\n" not in str(error.value)
  assert capfd.readouterr().err == ""


@pytest.mark.parametrize("factory, arguments, message", [
    ("server_test_factories:broken", {}, "ValueError: no such almanac"),
    ("server_test_factories:echo", {"suffix": 1}, "unexpected keyword argument 'suffix'"),
    ("server_test_factories:nothing", {}, "cannot be imported"),
    ("no_such_package:echo", {}, "No module named 'no_such_package'"),
    ("server_test_factories", {}, "must read package.module:function"),
    ("server_test_factories:crash", {}, "exit status 7"),
])
def test_a_child_that_dies_at_start_is_reported_with_its_last_line(factory, arguments, message):
  with pytest.raises(UserError, match=message) as error:
    ServerProcess(factory, arguments)
  assert factory in str(error.value)
  assert "\n" not in str(error.value)


@pytest.mark.parametrize("line", ["", "nonsense\n", "[1]\n"])
def test_a_first_line_that_is_no_json_object_ends_the_child_with_status_2(line):
  child = subprocess.run(
      [sys.executable, "-m", "conductor_jax.arena.server", "server_test_factories:echo"],
      input=line, capture_output=True, text=True,
      env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
  assert child.returncode == 2
  assert child.stdout == ""
  assert "must be a JSON object" in child.stderr


@pytest.mark.parametrize("ending", ["end of input", "SIGTERM"])
def test_the_child_ends_with_status_0(ending):
  child = subprocess.Popen(
      [sys.executable, "-m", "conductor_jax.arena.server", "server_test_factories:echo"],
      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
      env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
  child.stdin.write('{"prefix": "x"}\n')
  child.stdin.flush()
  port = json.loads(child.stdout.readline())["port"]
  socket.create_connection(("127.0.0.1", port)).close()  # the line comes once the socket listens
  if ending == "SIGTERM":
    child.terminate()
  else:
    child.stdin.close()
  assert child.wait(timeout=20) == 0
  child.stdin.close()
  child.stdout.close()


def test_the_child_does_not_outlive_a_parent_killed_with_sigkill():
  parent = subprocess.Popen(
      [sys.executable, "-c",
       "import time\n"
       "from conductor_jax.arena.server_process import ServerProcess\n"
       "server = ServerProcess('server_test_factories:echo', {'prefix': 'x'})\n"
       "print(server.pid, server.port, flush=True)\n"
       "time.sleep(600)\n"],
      stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
  pid, port = map(int, parent.stdout.readline().split())
  assert not gone(pid)
  socket.create_connection(("127.0.0.1", port)).close()
  parent.kill()
  parent.wait()
  parent.stdout.close()
  wait_until(lambda: gone(pid))
  with pytest.raises(ConnectionRefusedError):
    socket.create_connection(("127.0.0.1", port))
