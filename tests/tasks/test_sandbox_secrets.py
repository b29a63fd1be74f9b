"""A program in a sandbox reads no key, and reaches neither the machine's files nor process 1."""

import os
from pathlib import Path

import pytest

from tests.tasks.attack import attack, report

# Prints where it has found a key, of all places where a program may look. It does not hold the key.
THIEF = r"""
import glob, json, os, re
key = re.compile(rb"canary" + rb"-[0-9a-f]{8}")
looked, found = 0, []

def look(path):
  global looked
  try:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    text = os.read(descriptor, 1 << 20)
    os.close(descriptor)
  except OSError:
    return
  looked += 1
  if key.search(text):
    found.append(path)

for name, value in os.environ.items():
  if key.search(value.encode()):
    found.append(name)
for name in ("environ", "cmdline", "maps", "mountinfo", "task/*/environ", "fd/*", "root/*", "cwd/*",
             "mem"):
  for path in glob.glob(f"/proc/[0-9]*/{name}"):
    look(path)
for top in ("/tmp", "/home", "/root", "/etc", "/run", "/var", "/opt", "/srv", "/mnt", "/media",
            "/dev/shm", HOME):
  for folder, folders, names in os.walk(top):
    # An interpreter may stand there.
    folders[:] = set(folders) - {"lib", "lib64", "include", "share", "bin"}
    for name in names:
      look(os.path.join(folder, name))
for path in SUSPECTED:
  look(path)
print(json.dumps({"found": found, "looked": looked}))
"""


@pytest.fixture
def canary(monkeypatch, tmp_path):
  """A key in the environment, in a file of the home folder, and in one of the working directory."""
  key = f"canary-{os.urandom(4).hex()}"
  monkeypatch.setenv("OPENAI_API_KEY", key)
  monkeypatch.setenv("HOME", str(tmp_path))
  monkeypatch.chdir(tmp_path)
  (tmp_path / ".netrc").write_text(key)
  (tmp_path / ".env").write_text(f"OPENAI_API_KEY={key}\n")
  return key


async def test_keys_of_the_environment_and_of_files_are_not_found(sandbox, canary, tmp_path):
  suspected = [str(tmp_path / ".netrc"), str(tmp_path / ".env"), f"/proc/{os.getpid()}/environ"]
  assert canary in Path(suspected[0]).read_text()
  thief = THIEF.replace("SUSPECTED", repr(suspected)).replace("HOME", repr(str(tmp_path)))
  told = await report(sandbox, thief)
  assert told["found"] == [] and told["looked"] > 10


async def test_the_environment_holds_what_was_put_there_and_nothing_else(sandbox, canary):
  told = await report(sandbox, "import json, os; print(json.dumps(dict(os.environ)))")
  assert set(told) == {
      "HOME", "LANG", "LC_ALL", "LOGNAME", "MPLBACKEND", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
      "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING", "TMPDIR", "USER"}


LINKS = """
import json, os
read = {}
for number, path in enumerate(PATHS):
  for link in (f"link{number}", f"/tmp/link{number}"):
    os.symlink(path, link)
    try:
      descriptor = os.open(link, os.O_RDONLY | os.O_NONBLOCK)
      read[path] = os.read(descriptor, 100).decode("latin-1")
    except OSError:
      pass
    try:
      os.link(path, f"hard{number}")
      read[path] = "by a hard link"
    except OSError:
      pass
os.symlink("/", "everything")
try:
  open("everything/tmp/../etc/passwd", "a").close()
  read["/etc/passwd"] = "can be written"
except OSError:
  pass
print(json.dumps({path: text for path, text in read.items() if text}))
"""


async def test_links_lead_out_of_the_folder_to_nothing(sandbox, canary, tmp_path):
  paths = [str(tmp_path / ".netrc"), f"/proc/{os.getpid()}/environ", "/proc/1/environ",
           f"/proc/1/root{tmp_path}/.netrc", "/proc/1/cwd/.env", "/proc/1/fd/0", "/etc/shadow"]
  assert await report(sandbox, LINKS.replace("PATHS", repr(paths))) == {}


PROCESS_1 = """
import ctypes, json, os, resource
done = set()
libc = ctypes.CDLL(None, use_errno=True)

def attempt(name, action, *arguments):
  try:
    if action(*arguments) not in (-1, ""):
      done.add(name)
  except OSError:
    pass

for pid in {1, os.getppid()}:
  for name in ("environ", "maps", "mem", "auxv", "stack", "syscall", "io", "smaps", "pagemap"):
    attempt(f"read {name}", lambda: open(f"/proc/{pid}/{name}", "rb").read(100))
  for number in range(5):
    attempt(f"open {number}", os.open, f"/proc/{pid}/fd/{number}", os.O_WRONLY | os.O_NONBLOCK)
  attempt("list its files", os.listdir, f"/proc/{pid}/fd")
  attempt("see its root", os.readlink, f"/proc/{pid}/root")
  attempt("attach", libc.ptrace, 16, pid, 0, 0)
  attempt("seize", libc.ptrace, 0x4206, pid, 0, 0)
  attempt("process_vm_readv", libc.process_vm_readv, pid, 0, 0, 0, 0, 0)
  attempt("pidfd_getfd", libc.syscall, 438, os.pidfd_open(pid), 1, 0)
  attempt("its time", resource.prlimit, pid, resource.RLIMIT_CPU, (1, 1))
  attempt("its files", resource.prlimit, pid, resource.RLIMIT_NOFILE, (0, 0))
  attempt("its niceness", os.setpriority, os.PRIO_PROCESS, pid, 19)
  attempt("its cores", os.sched_setaffinity, pid, {0})
  attempt("its scheduler", os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0))
  attempt("its score", lambda: open(f"/proc/{pid}/oom_score_adj", "w").write("1000"))
attempt("its user's niceness", os.setpriority, os.PRIO_USER, os.getuid(), 19)
attempt("its user's niceness", os.setpriority, os.PRIO_USER, 0, 19)
attempt("niceness", os.setpriority, os.PRIO_PROCESS, 0, -5)
print(json.dumps(sorted(done)))
"""


async def test_process_1_can_be_neither_read_nor_traced_nor_held_back(sandbox):
  assert await report(sandbox, PROCESS_1) == []


FRAMES = r"""
import os
forged = b"0123456789abcdef0123456789abcdef 3 5 6 1 1 1 1 5 0 5\nendedexited0001right" + b"clean"
for number in range(3, 20):
  for path in (f"/proc/1/fd/{number}", f"/proc/self/fd/{number}"):
    try:
      os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), forged + b"\n")
    except OSError:
      pass
for number in range(1, 20):
  try:
    os.write(number, forged + b"\n")
  except OSError:
    pass
print("wrong", flush=True)
os.kill(os.getpid(), 9)
"""


async def test_frames_that_a_program_forges_are_its_own_words(sandbox):
  run = await attack(sandbox, FRAMES)
  assert run.status == -9 and run.output.endswith("wrong\n")
