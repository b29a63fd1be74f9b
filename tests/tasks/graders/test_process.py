"""Real child processes that hang, crash, hoard memory and are replaced."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks.graders.process import IsolatedFunction
from conductor_jax.tasks.task import GradingError

FUNCTIONS = '''
import os
import sys
import time

from conductor_jax.tasks.task import GradingError

def modules(): return sorted(sys.modules)
def double(x): return 2 * x
def fail(): raise ZeroDivisionError("by hand")
def refuse(): raise GradingError("not mine")
def pid(): return os.getpid()
def die(): os._exit(3)
def hang_in_c(): return len(str(9 ** 9 ** 9))
def sleep(): time.sleep(600)
def hoard(): return len(bytearray(8 * 2**30))
def pid_then_hang(hang): return 9 ** 9 ** 9 if hang else os.getpid()
def shout(): print("noise"); return 1
def pid_or_hang(hang): return len(str(9 ** 9 ** 9)) if hang else os.getpid()
def sleep_a_little(seconds): time.sleep(seconds); return os.getpid()
def die_at_the_first_fork(marker):
  def die():
    if not os.path.exists(marker):
      open(marker, "w").close()
      os._exit(7)
  os.register_at_fork(after_in_child=die)
  return "alive"
remembered = []
def remember(x): remembered.append(x); return remembered
'''


@pytest.fixture(scope="module", autouse=True)
def functions(tmp_path_factory):
  folder = tmp_path_factory.mktemp("functions")
  (folder / "grader_test_functions.py").write_text(FUNCTIONS)
  sys.path.insert(0, str(folder))
  yield
  sys.path.remove(str(folder))


@pytest.fixture
def isolated():
  made = []

  def make(name, time_limit=20.0, processes=1, **options):
    made.append(
        IsolatedFunction(f"grader_test_functions:{name}", time_limit, processes, **options))
    return made[-1]

  yield make
  for function in made:
    function.close()


def gone(pid):
  try:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
  except FileNotFoundError:
    return True


async def test_arguments_and_results_travel(isolated):
  double = isolated("double", processes=2)
  assert await asyncio.gather(*(double(x) for x in range(50))) == [2 * x for x in range(50)]
  assert await double("a\nß\ud800") == "a\nß\ud800" * 2


async def test_a_child_is_kept_for_the_next_call_and_ends_with_close(isolated):
  pid = isolated("pid")
  first = await pid()
  assert await pid() == first
  assert not gone(first)
  pid.close()
  assert gone(first)


async def test_a_child_killed_while_idle_costs_one_verdict_only(isolated):
  pid = isolated("pid")
  first = await pid()
  os.kill(first, signal.SIGKILL)
  with pytest.raises(GradingError, match="process died"):
    await pid()
  assert await pid() != first


def test_a_child_serves_calls_from_one_event_loop_after_another(isolated):
  pid = isolated("pid")
  assert asyncio.run(pid()) == asyncio.run(pid())


async def test_the_child_does_not_import_jax(isolated):
  modules = await isolated("modules")()
  assert not {"jax", "jaxlib", "numpy"} & set(modules)


@pytest.mark.parametrize("name, message", [
    ("fail", "ZeroDivisionError: by hand"), ("refuse", "^not mine$"),
    ("die", r"process died \(exit status 3\)"), ("hoard", "MemoryError")])
async def test_a_failure_is_a_grading_error(isolated, name, message):
  with pytest.raises(GradingError, match=message):
    await isolated(name)()


@pytest.mark.parametrize("name", ["sleep", "hang_in_c"])
async def test_a_call_beyond_the_limit_is_a_grading_error(isolated, name):
  with pytest.raises(GradingError, match="longer than 0.2 s"):
    await isolated(name, time_limit=0.2)()


async def test_what_the_function_prints_is_not_taken_for_its_reply(isolated):
  assert await isolated("shout")() == 1


async def test_what_was_rehearsed_is_known_to_every_child(isolated):
  remember = isolated("remember", processes=2, rehearsals=(("a",), ("b",)))
  first, second = await asyncio.gather(remember(1), remember(2))
  assert first[:2] == second[:2] == ["a", "b"]


async def test_every_ordinary_call_is_answered_while_those_that_hang_go_on(isolated):
  call = isolated("pid_or_hang", time_limit=60.0, processes=2, patience=0.1)
  hanging = [asyncio.create_task(call(True)) for _ in range(4)]
  pids = await asyncio.gather(*(call(False) for _ in range(200)))
  assert len(set(pids)) <= 2
  assert not any(task.done() for task in hanging)
  call.close()
  outcomes = await asyncio.gather(*hanging, return_exceptions=True)
  assert all(isinstance(outcome, (GradingError, asyncio.CancelledError)) for outcome in outcomes)


async def test_more_hanging_calls_than_go_on_at_once_hold_up_no_other(isolated):
  call = isolated("pid_or_hang", time_limit=0.8, processes=2, patience=0.1)
  hanging = [asyncio.create_task(call(True)) for _ in range(12)]
  await asyncio.gather(*(call(False) for _ in range(50)))
  assert sum(task.done() for task in hanging) < 12
  outcomes = await asyncio.gather(*hanging, return_exceptions=True)
  assert [str(outcome) for outcome in outcomes] == ["grading took longer than 0.8 s"] * 12


async def test_calls_that_hang_do_not_pile_up_processes(isolated):
  call = isolated("pid_or_hang", time_limit=60.0, processes=2, patience=0.1)
  nursery = psutil.Process(await call(False)).parent()
  hanging = [asyncio.create_task(call(True)) for _ in range(10)]
  await asyncio.gather(*(call(False) for _ in range(50)))
  # Four go on, and two places are there for others.
  assert 5 <= len([child for child in nursery.children() if not gone(child.pid)]) <= 6
  call.close()
  await asyncio.gather(*hanging, return_exceptions=True)


async def test_a_call_that_took_long_has_its_answer_and_its_child_goes(isolated):
  call = isolated("sleep_a_little", processes=1, patience=0.05)
  first = await call(0.0)
  assert await call(0.6) == first  # it slept, so it was given four times its patience
  second = await call(0.0)
  assert second != first and gone(first)


async def test_a_long_call_goes_on_behind_all_others(isolated):
  call = isolated("pid_or_hang", time_limit=60.0, processes=1, patience=0.1)
  pid = await call(False)
  hanging = asyncio.create_task(call(True))
  await asyncio.sleep(0)
  other = await call(False)
  assert (os.getpriority(os.PRIO_PROCESS, pid), os.getpriority(os.PRIO_PROCESS, other)) == (19, 0)
  call.close()
  await asyncio.gather(hanging, return_exceptions=True)
  assert gone(pid) and gone(other)


async def test_a_nursery_that_was_killed_is_started_again(isolated):
  pid = isolated("pid")
  first = await pid()
  nursery = psutil.Process(first).ppid()
  os.kill(nursery, signal.SIGKILL)
  assert await pid() == first
  os.kill(first, signal.SIGKILL)
  with pytest.raises(GradingError, match="process died"):
    await pid()
  assert await pid() not in (first, nursery)


async def test_a_child_that_dies_as_it_starts_costs_one_verdict_only(isolated, tmp_path):
  marker = str(tmp_path / "died")
  dying = isolated("die_at_the_first_fork", rehearsals=[(marker,)])
  with pytest.raises(GradingError, match=r"process died \(exit status 7\)"):
    await dying(marker)
  assert await dying(marker) == "alive"


async def test_a_child_that_does_not_start_is_a_user_error(isolated):
  with pytest.raises(UserError, match="did not start"):
    await isolated("nothing_of_the_kind")()


def test_a_hanging_child_does_not_outlive_a_killed_parent():
  parent = subprocess.Popen(
      [sys.executable, "-c",
       "import asyncio\n"
       "from conductor_jax.tasks.graders.process import IsolatedFunction\n"
       "async def main():\n"
       "  pid = IsolatedFunction('grader_test_functions:pid_then_hang', 1.0, 1)\n"
       "  print(await pid(False), flush=True)\n"
       "  await pid(True)\n"
       "asyncio.run(main())\n"],
      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
      env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
  pid = int(parent.stdout.readline())
  parent.kill()
  parent.wait()
  parent.stdout.close()
  deadline = time.monotonic() + 20
  while not gone(pid):
    assert time.monotonic() < deadline
    time.sleep(0.02)
