import os

import pytest

from conductor_jax.sampling import cpu_share as module
from conductor_jax.sampling.cpu_share import cpu_share

NAME = "VLLM_CPU_OMP_THREADS_BIND"


@pytest.fixture(autouse=True)
def host(monkeypatch):
  """A function (CPUs that may be used, threads of a core) that makes a host of them."""
  monkeypatch.delenv(NAME, raising=False)

  def make(cpus, siblings):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cpus), raising=False)
    monkeypatch.setattr(module, "_core", siblings)

  return make


@pytest.mark.parametrize(("siblings", "shares"), [
    (str, ["0,1,2,3", "4,5,6,7"]),
    (lambda cpu: str(cpu // 2), ["0,2", "4,6"]),
    (lambda cpu: str(cpu % 4), ["0,1", "2,3"]),
])
def test_servers_share_no_core_whichever_threads_belong_to_one(host, siblings, shares):
  host(range(8), siblings)
  assert [cpu_share(part, 2) for part in (0, 1)] == [{NAME: share} for share in shares]


def test_all_cores_that_may_be_used_are_given_away_and_no_others(host):
  host((1, 4, 5, 9, 12), str)
  assert [cpu_share(part, 3)[NAME] for part in range(3)] == ["1", "4,5", "9,12"]


def test_too_few_cores_are_not_shared_out(host):
  host((3,), str)
  assert cpu_share(0, 2) == cpu_share(1, 2) == {}


def test_the_users_own_binding_stays(host, monkeypatch):
  host(range(4), str)
  monkeypatch.setenv(NAME, "nobind")
  assert cpu_share(0, 2) == {}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinities")
def test_the_hosts_own_cores_are_found(monkeypatch):
  monkeypatch.undo()
  monkeypatch.delenv(NAME, raising=False)
  cpus = {int(cpu) for cpu in cpu_share(0, 1)[NAME].split(",")}
  assert cpus and cpus <= os.sched_getaffinity(0)
