"""What of an interpreter is seen in a sandbox."""

import os
import subprocess
import sys
from pathlib import Path

from conductor_jax.tasks import sandbox
from conductor_jax.tasks.interpreter import ask_interpreter
from conductor_jax.tasks.sandbox import Sandbox


async def ask(python):
  return await ask_interpreter(str(python), sandbox._INSIDE)


async def test_of_an_interpreter_its_parts_are_seen_and_nothing_beside_them():
  asked = await ask(sys.executable)
  assert asked.path == sys.executable
  assert {Path(folder).name for folder in asked.folders} <= {
      "bin", "include", "lib", "lib64", "share", "pyvenv.cfg"}
  assert {str(Path(folder).parent) for folder in asked.folders} == {
      sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent.parent)}
  assert all(path in sys.path for path in asked.packages if os.path.isdir(path))
  assert any(path.endswith("-packages") for path in asked.packages)


async def test_an_environment_in_a_project_does_not_show_the_project(tmp_path):
  project = tmp_path / "project"
  subprocess.run([sys.executable, "-m", "venv", "--without-pip", project], check=True)
  (project / ".env").write_text("OPENAI_API_KEY=canary")
  program = f"import os, sys\nprint(sys.executable, os.path.exists({str(project / '.env')!r}))\n" \
            f"print(sorted(os.listdir({str(project)!r})))"
  async with Sandbox(python=str(project / "bin/python")).session({"look.py": program}) as session:
    told = (await session.run("look.py")).output.splitlines()
  assert told[0] == f"{project}/bin/python False"
  assert told[1] == str(sorted(
      path.name for path in project.iterdir() if path.name not in (".env", ".gitignore")))


async def test_an_interpreter_is_found_by_its_name_and_through_a_script(tmp_path, monkeypatch):
  script = tmp_path / "some-python"
  script.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
  script.chmod(0o755)
  monkeypatch.setenv("PATH", str(tmp_path))
  assert await ask("some-python") == await ask(sys.executable)


async def test_what_runs_inside_is_compiled_once():
  await ask(sys.executable)
  cached = Path(sandbox._INSIDE, "__pycache__")
  version = f"cpython-{sys.version_info[0]}{sys.version_info[1]}"
  for name in ("channel", "runner", "execution", "parent", "processes"):
    assert (cached / f"{name}.{version}.pyc").exists()
