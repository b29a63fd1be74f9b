"""What of a Python must be seen in a sandbox, so that programs run with it."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from conductor_jax.errors import UserError

# Of an environment or an installation; in the folder itself may stand a project with its secrets.
_PARTS = ("bin", "include", "lib", "lib64", "share", "pyvenv.cfg")
_OLDEST = (3, 10)
# Imports what is imported in a sandbox, so that it is compiled before the first one starts.
_QUESTION = """
import site, sys
print(*sys.version_info[:2])
print(sys.executable, sys.prefix, sys.base_prefix, *site.getsitepackages(), sep="\\n")
if sys.version_info >= (3, 10):
  sys.path.append(sys.argv[1])
  import channel, runner
"""


@dataclass(frozen=True)
class Interpreter:
  """A Python.

  Attributes:
    path: of its program.
    folders: that it needs, and single files.
    packages: folders of packages that can be imported.
  """

  path: str
  folders: tuple[str, ...]
  packages: tuple[str, ...]


async def ask_interpreter(python: str, scripts: str) -> Interpreter:
  """What a Python says of itself.

  Args:
    python: its program: a path, or a name on PATH.
    scripts: the folder of what it is to run.

  Raises:
    UserError: it cannot be started, is none, or is too old.
  """
  named = f"--config.sandbox.python={python}"
  found = shutil.which(python)
  if found is None:
    raise UserError(f"{named} is not there or cannot be run: name an interpreter of Python")
  asked = await asyncio.create_subprocess_exec(
      str(Path(found).absolute()), "-I", "-c", _QUESTION, scripts, stdin=asyncio.subprocess.DEVNULL,
      stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={})
  output, errors = await asked.communicate()
  version, *lines = output.decode(errors="replace").splitlines() or [""]
  numbers = version.split()
  if asked.returncode or len(lines) < 3 or not all(map(str.isdecimal, numbers)):
    last = errors.decode(errors="replace").strip().splitlines()[-1:] or ["it says nothing"]
    raise UserError(f"{named} is no Python that can be used ({last[0]}): name another one")
  if tuple(map(int, numbers)) < _OLDEST:
    raise UserError(f"{named} is Python {'.'.join(numbers)}: name one of "
                    f"{'.'.join(map(str, _OLDEST))} or later")
  path, *lines = lines
  folders = dict.fromkeys(
      str(part) for prefix in (*lines[:2], Path(path).resolve().parent.parent)
      for part in (Path(prefix, name) for name in _PARTS) if part.exists())
  return Interpreter(path, tuple(folders), tuple(lines[2:]))
