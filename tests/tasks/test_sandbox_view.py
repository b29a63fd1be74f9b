"""What a program in a sandbox sees of the machine: what a Python has need of."""

import os
import sys
from pathlib import Path

from tests.tasks.attack import report

VIEW = """
import json, os

def listing(path):
  try:
    return sorted(os.listdir(path))
  except FileNotFoundError:
    return []

mounts = [(fields[1], set(fields[3].split(",")))
          for fields in map(str.split, open("/proc/self/mounts"))]
files = [os.path.join(folder, name) for top in ("/tmp", "/dev", "/etc", "/home", "/root")
         for folder, _, names in os.walk(top) for name in names]
status, of_1 = (
    {name: value.strip() for name, _, value in (line.partition(":") for line in open(path))}
    for path in ("/proc/self/status", "/proc/1/status"))
print(json.dumps({
    "folders": {path: listing(path) for path in
                ("/", "/etc", "/dev", "/home", "/root", "/run", "/var", "/sys", "/mnt", "/opt")},
    "writable": [path for path, options in mounts if "rw" in options],
    "unsafe": [path for path, options in mounts if not options & {"ro", "nosuid"}],
    "sockets": [path for path in files if os.path.exists(path)
                and os.stat(path).st_mode & 0o170000 == 0o140000],
    "processes": [name for name in os.listdir("/proc") if name.isdigit()],
    "descriptors": [name for name in os.listdir("/proc/self/fd")
                    if os.path.exists(f"/proc/self/fd/{name}")],
    "network": [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line],
    "status": status, "status of 1": of_1,
    "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in
                   ("ipc", "mnt", "net", "pid", "uts")},
    "users": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
    "host": os.uname().nodename, "umask": os.umask(0),
    "first to go": open("/proc/self/oom_score_adj").read()}))
"""


async def test_the_system_is_what_a_python_needs(sandbox):
  told = await report(sandbox, VIEW)
  folders = told["folders"]
  # The way to an interpreter.
  own = {part for prefix in (sys.prefix, sys.base_prefix) for part in Path(prefix).parts}
  assert set(folders["/"]) <= {
      "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sandboxed", "sbin", "tmp",
      "usr"} | own
  assert set(folders["/etc"]) <= {
      "alternatives", "group", "hosts", "ld.so.cache", "localtime", "mime.types", "nsswitch.conf",
      "passwd", "protocols", "services"}
  assert folders["/dev"] == ["fd", "full", "null", "random", "shm", "urandom"]
  for path in ("/home", "/root", "/run", "/var", "/sys", "/mnt", "/opt"):
    assert set(folders[path]) <= own, path
  assert told["sockets"] == []


async def test_two_folders_in_memory_can_be_written_to_and_nothing_else(sandbox):
  told = await report(sandbox, VIEW)
  assert set(told["writable"]) <= {
      "/tmp", "/dev/shm", "/dev/full", "/dev/null", "/dev/random", "/dev/urandom"}
  assert told["unsafe"] == []


async def test_a_program_has_no_rights_and_no_company(sandbox):
  told = await report(sandbox, VIEW)
  for rights in ("CapPrm", "CapEff", "CapAmb"):
    assert int(told["status"][rights], 16) == 0, rights
  # To become another user, to kill its processes, and to see what memory they hold.
  assert int(told["status of 1"]["CapPrm"], 16) in (0, 1 << 5 | 1 << 6 | 1 << 7 | 1 << 19)
  for status in (told["status"], told["status of 1"]):
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
  for name, namespace in told["namespaces"].items():
    assert namespace != os.readlink(f"/proc/self/ns/{name}")
  assert len(told["processes"]) == 2  # process 1 and itself
  # Its standard files and the channel; the folder that it lists is closed again.
  assert told["descriptors"] == ["0", "1", "2", "3"]
  assert told["network"] == ["lo"]
  # One user and one group of the same number, that is neither root's nor the tests'.
  assert len(set(told["users"])) == 1
  assert not {0, os.getuid()} & set(told["users"])
  assert (told["host"], told["umask"], told["first to go"]) == ("sandbox", 0o022, "1000\n")


WRITE = """
import json, os
written = set()
for path in PATHS:
  try:
    with open(path, "w") as file:
      file.write("hello")
    written.add(path)
  except OSError:
    pass
for folder in FOLDERS:
  for action, *arguments in ((os.mkdir, folder + "/new"), (os.chmod, folder, 0o777),
                             (os.rename, folder, folder + "-new"), (os.rmdir, folder),
                             (os.symlink, "/tmp", folder + "/link"), (os.chown, folder, 1, 1)):
    try:
      action(*arguments)
      written.add(folder)
    except OSError:
      pass
print(json.dumps(sorted(written)))
"""


async def test_nothing_is_written_outside_the_work_folder(sandbox, tmp_path):
  outside = tmp_path / "outside"
  outside.mkdir()
  outside.chmod(0o777)
  packages = next(path for path in sys.path if path.endswith("-packages"))
  paths = [str(outside / "file"), "/etc/passwd", "/etc/hosts", "/usr/bin/env",
           "/sandboxed/runner.py", "/sandboxed/program.py", f"{packages}/sitecustomize.py",
           "/proc/1/comm", "/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern",
           "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity",
           "/proc/self/uid_map", "/proc/self/oom_score_adj", "/dev/new", "/dev/fd/new"]
  folders = ["/", "/usr", "/etc", "/sandboxed", "/dev", "/proc", "/proc/sys", packages]
  program = WRITE.replace("PATHS", repr(paths)).replace("FOLDERS", repr(folders))
  assert await report(sandbox, program) == []
  assert list(outside.iterdir()) == []


SETUID = """
import json, os, subprocess
raised = {}
for command in (["su", "-c", "id -u"], ["sudo", "-n", "id", "-u"], ["newgrp", "root"],
                ["mount", "-t", "tmpfs", "none", "/tmp"], ["passwd", "-d", "root"]):
  try:
    done = subprocess.run(command, capture_output=True, timeout=3, stdin=subprocess.DEVNULL)
  except (OSError, subprocess.TimeoutExpired):
    continue
  if done.returncode == 0:
    raised[" ".join(command)] = done.stdout.decode()
with open("copy", "wb") as file:
  file.write(open("/bin/true", "rb").read())
os.chmod("copy", 0o6755)
status = subprocess.run(["./copy"]).returncode
print(json.dumps({"raised": raised, "status": status}))
"""


async def test_setuid_programs_raise_nobody(sandbox):
  assert await report(sandbox, SETUID) == {"raised": {}, "status": 0}
