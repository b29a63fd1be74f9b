"""Sandboxes of a root that lacks rights, as in many containers: an ordinary user makes them."""

import json
from dataclasses import replace

import pytest

from tests.tasks import sandbox_modes
from tests.tasks.attack import LIMITS, attack, report
from tests.tasks.test_sandbox_bombs import MANY
from tests.tasks.test_sandbox_secrets import PROCESS_1
from tests.tasks.test_sandbox_view import VIEW, WRITE


@pytest.fixture
async def container(ordinary_user):
  """A sandbox of such a root."""
  folder, _, _ = ordinary_user
  python, reason = sandbox_modes.reason_without(folder, sandbox_modes.WITHOUT_RIGHTS)
  if python is None:
    pytest.skip(reason)
  async with sandbox_modes.ordinary_sandbox(
      folder, python, sandbox_modes.WITHOUT_RIGHTS) as sandbox:
    yield sandbox


async def test_programs_have_no_rights_and_another_number(container):
  told = await report(container, VIEW)
  assert set(told["users"]) == {65534}
  for status in (told["status"], told["status of 1"]):
    assert int(status["CapEff"], 16) == 0 and status["Seccomp"] == "2"


async def test_the_machines_settings_are_not_written(container):
  paths = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches",
           "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/self/oom_score_adj",
           "/etc/passwd", "/usr/new", "/sandboxed/runner.py"]
  program = WRITE.replace("PATHS", repr(paths)).replace("FOLDERS", "['/', '/usr', '/proc', '/dev']")
  assert await report(container, program) == []


async def test_process_1_can_be_neither_read_nor_traced_nor_held_back(container):
  assert await report(container, PROCESS_1) == []


async def test_processes_are_as_many_as_is_said(container):
  run = await attack(container, MANY, limits=replace(LIMITS, processes=20))
  assert (run.outcome, run.output) == ("exited", "19\n"), run


def test_a_root_whose_processes_the_kernel_would_not_count_is_refused(ordinary_user):
  folder, _, reason = ordinary_user
  if reason:
    pytest.skip(reason)
  python, refused = sandbox_modes.reason_without(
      folder, ("--bounding-set=-setuid", "--inh-caps=-setuid"))
  assert python is None
  assert "the kernel does not count what root starts" in refused
  assert "give it CAP_SETUID, CAP_SETGID and CAP_KILL, or run as another one" in refused


async def test_programs_are_run_as_elsewhere(container):
  run = await attack(container, "import json; print(json.dumps([input()]))", given="x\n")
  assert json.loads(run.output) == ["x"]
