"""Real processes and real signals: nothing of a guarded command is left, however it all ends."""

import fcntl
import os
import signal
import subprocess
import sys
import termios

import pytest

from conductor_jax.sampling import guard
from tests.sampling.processes import wait_until

# A server with an engine of its own that does not notice when its parent is gone. With "stubborn"
# neither obeys SIGTERM.
SERVER = """
import os, signal, subprocess, sys, time
if "stubborn" in sys.argv:
  signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "engine" not in sys.argv:
  engine = subprocess.Popen([sys.executable, *sys.orig_argv[1:], "engine"])
  print("server", os.getpid(), engine.pid, flush=True)
time.sleep(600)
"""
# Starts the command of a guard, and ends as its first argument says once it has read a line.
TRAINER = """
import signal, subprocess, sys, time
# It is ignored where tests run in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
process = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, start_new_session=True)
sys.stdin.readline()
if sys.argv[1] == "exits":
  sys.exit(0)
if sys.argv[1] == "raises":
  raise RuntimeError("an exception of the trainer")
time.sleep(600)
"""


@pytest.fixture
def server_file(tmp_path):
  file = tmp_path / "server.py"
  file.write_text(SERVER)
  return file


@pytest.fixture
def folder(tmp_path):
  folder = tmp_path / "weights"
  (folder / "step-1").mkdir(parents=True)
  (folder / "step-1" / "model.safetensors").write_bytes(b"weights")
  return folder


def command(server_file, folder, *arguments, grace="20"):
  return [sys.executable, "-I", "-S", guard.__file__, "--grace", grace, "--remove", str(folder),
          "--", sys.executable, str(server_file), *arguments]


def start(mark, command):
  """The guard, once its server runs, and the ids of the server and its engine."""
  process = subprocess.Popen(
      command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
      env={**os.environ, **mark.environment}, start_new_session=True)
  words = process.stderr.readline().split()
  assert words[0] == "server"
  return process, int(words[1]), int(words[2])


def watcher(mark, *others):
  """The process that has the mark and is none of the others."""
  [found] = [each for each in mark.processes() if each.pid not in others]
  return found


def unread(pipe):
  """How many bytes the other end has not read."""
  return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def close(process):
  for stream in (process.stdin, process.stdout, process.stderr):
    stream.close()
  process.wait()


def assert_nothing_is_left(mark, process, folder):
  """Ends the guard's input; then no process and no folder may be left."""
  process.stdin.close()
  mark.wait_until_gone()
  assert not folder.exists()
  close(process)


def test_the_end_of_its_input_ends_the_whole_group_and_removes_the_folder(
    mark, server_file, folder):
  process, server, engine = start(mark, command(server_file, folder))
  assert {os.getpgid(server), os.getpgid(engine)} == {server}
  wait_until(lambda: len(mark.processes()) == 4, "guard, watcher, server and engine are there")
  process.stdin.close()
  # Its output ends when all is done, not before.
  assert process.stdout.read() == ""
  mark.wait_until_gone()
  assert not folder.exists()
  close(process)


def test_a_byte_before_the_end_of_its_input_keeps_the_folder(mark, server_file, folder):
  process, *_ = start(mark, command(server_file, folder))
  process.stdin.write("k")
  process.stdin.close()
  assert process.stdout.read() == ""
  mark.wait_until_gone()
  assert (folder / "step-1" / "model.safetensors").read_bytes() == b"weights"
  close(process)


def test_processes_that_ignore_sigterm_are_killed_after_the_grace_period(
    mark, server_file, folder):
  process, *_ = start(mark, command(server_file, folder, "stubborn", grace="0.3"))
  process.stdin.close()
  mark.wait_until_gone()
  assert process.wait(timeout=20) == 0
  assert not folder.exists()
  close(process)


@pytest.mark.parametrize("kind", [(), ("stubborn",)])
def test_a_killed_guard_leaves_nothing_behind(mark, server_file, folder, kind):
  process, *_ = start(mark, command(server_file, folder, *kind, grace="0.3"))
  process.kill()
  wait_until(lambda: len(mark.processes()) == 1, "only the watcher is left")
  # The program lives, and may need the folder for the next server.
  assert folder.exists()
  assert_nothing_is_left(mark, process, folder)


def test_a_guard_killed_with_its_process_group_leaves_nothing_behind(mark, server_file, folder):
  process, *_ = start(mark, command(server_file, folder))
  os.killpg(process.pid, signal.SIGKILL)
  assert_nothing_is_left(mark, process, folder)


def test_a_killed_watcher_takes_nothing_from_the_guard(mark, server_file, folder):
  process, server, engine = start(mark, command(server_file, folder))
  watcher(mark, process.pid, server, engine).kill()
  assert_nothing_is_left(mark, process, folder)


def test_the_server_itself_does_not_outlive_guard_and_watcher_killed_at_once(
    mark, server_file, folder):
  process, server, engine = start(mark, command(server_file, folder))
  watcher(mark, process.pid, server, engine).kill()
  process.kill()
  wait_until(lambda: [each.pid for each in mark.processes()] == [engine], "the server is gone")
  close(process)


def test_sigterm_ends_the_group_and_leaves_the_folder_to_the_program(mark, server_file, folder):
  process, *_ = start(mark, command(server_file, folder))
  process.terminate()
  assert process.wait(timeout=20) == 0
  wait_until(lambda: len(mark.processes()) == 1, "only the watcher is left")
  assert folder.exists()
  assert_nothing_is_left(mark, process, folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_of_a_terminal_do_not_reach_the_server(mark, server_file, folder, number):
  process, *_ = start(mark, command(server_file, folder))
  os.killpg(process.pid, number)
  # The guard would be gone at once.
  with pytest.raises(subprocess.TimeoutExpired):
    process.wait(timeout=0.3)
  wait_until(lambda: len(mark.processes()) == 4, "all are there")
  process.stdin.close()
  mark.wait_until_gone()
  close(process)


@pytest.mark.parametrize("code, status", [
    ("import sys; sys.exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_a_server_that_ends_by_itself_gives_the_guard_its_status(mark, folder, code, status):
  process = subprocess.Popen(
      [sys.executable, guard.__file__, "--remove", str(folder), "--", sys.executable, "-c", code],
      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
      env={**os.environ, **mark.environment})
  assert process.wait(timeout=20) == status
  assert folder.exists()
  assert_nothing_is_left(mark, process, folder)


def test_the_engine_of_a_server_that_died_is_ended(mark, server_file, folder):
  process, server, _ = start(mark, command(server_file, folder))
  os.kill(server, signal.SIGKILL)
  assert process.wait(timeout=20) == 137
  wait_until(lambda: len(mark.processes()) == 1, "only the watcher is left")
  process.stdin.close()
  mark.wait_until_gone()
  close(process)


def test_the_folder_stays_when_the_server_dies_between_the_byte_and_the_end_of_its_input(
    mark, server_file, folder):
  process, server, _ = start(mark, command(server_file, folder))
  process.stdin.write("k")
  process.stdin.flush()
  wait_until(lambda: not unread(process.stdin), "the guard has read the byte")
  os.kill(server, signal.SIGKILL)
  assert process.wait(timeout=20) == 137
  process.stdin.close()
  mark.wait_until_gone()
  assert folder.exists()
  close(process)


def test_a_command_that_cannot_be_started_is_named(folder):
  process = subprocess.run(
      [sys.executable, guard.__file__, "--remove", str(folder), "--", "/no/such/server"],
      stdin=subprocess.PIPE, capture_output=True, text=True, timeout=20)
  assert process.returncode == 127
  assert "/no/such/server cannot be started: [Errno 2]" in process.stderr


def test_a_folder_that_is_gone_already_is_no_fault(tmp_path, capfd):
  guard.remove_folders([str(tmp_path / "nothing")])
  assert capfd.readouterr().err == ""


@pytest.mark.parametrize("ending", ["exits", "raises", "SIGTERM", "SIGINT", "SIGKILL"])
def test_nothing_outlives_the_program(mark, server_file, folder, ending):
  # In a group of its own, as a shell starts it: a Ctrl-C goes to the whole group.
  trainer = subprocess.Popen(
      [sys.executable, "-c", TRAINER, ending, *command(server_file, folder)],
      stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
      env={**os.environ, **mark.environment}, process_group=0)
  assert trainer.stderr.readline().startswith("server")
  wait_until(lambda: len(mark.processes()) == 5, "all are there")
  trainer.stdin.write("\n")
  trainer.stdin.close()
  if ending.startswith("SIG"):
    os.killpg(trainer.pid, signal.Signals[ending])
  assert (trainer.wait(timeout=20) == 0) == (ending == "exits")
  mark.wait_until_gone()
  assert not folder.exists()
  trainer.stderr.close()


def test_zombies_that_nobody_collects_are_not_waited_for(mark, server_file, folder):
  # Orphans come to this program as to the first process of a container, and it leaves them.
  code = """
import ctypes, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)
process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, start_new_session=True)
process.stderr.readline()
process.kill()
process.stdin.close()
process.stdout.read()
print("done")
"""
  program = subprocess.run(
      [sys.executable, "-c", code, *command(server_file, folder, grace="600")], text=True,
      stdout=subprocess.PIPE, timeout=30, env={**os.environ, **mark.environment})
  assert program.stdout == "done\n"
  assert not folder.exists()


def test_a_pipe_that_another_process_holds_open_does_not_keep_the_server(
    mark, server_file, folder):
  code = """
import os, subprocess, sys
command = [*sys.argv[1:5], f"--parent={os.getpid()}", *sys.argv[5:]]
process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
if os.fork() == 0:  # as a worker of a data loader is: it has all descriptors
  import time
  time.sleep(600)
os._exit(0)
"""
  trainer = subprocess.Popen(
      [sys.executable, "-c", code, *command(server_file, folder)],
      stderr=subprocess.DEVNULL, env={**os.environ, **mark.environment})
  trainer.wait()
  wait_until(lambda: not folder.exists(), "the folder is removed")
  wait_until(lambda: len(mark.processes()) == 1, "only the worker is left")
