"""The benchmark of the executor measures what it says."""

import aiohttp
import pytest

from conductor_jax.workflows.executor import call_seed
from experiments.benchmarks import executor
from experiments.benchmarks.chat_server import ChatServer, latency_of


def test_the_longest_path_of_a_chain_is_its_sum_and_of_a_join_its_slower_branch_and_the_last():
  ends = [latency_of(call_seed(3, index), 0.1, 0.2) for index in range(3)]
  assert all(0.08 <= seconds <= 0.12 for seconds in ends) and len(set(ends)) == 3
  chain, join = executor.workflows(2)
  assert executor.critical_path(chain, 3) == pytest.approx(sum(ends))
  assert executor.critical_path(join, 3) == pytest.approx(max(ends[:2]) + ends[2])


async def test_workflows_take_no_less_than_the_longest_path_whoever_runs_them(tmp_path):
  ratios = await executor.path_ratios(4, 1, tmp_path / "journal.sqlite")
  assert len(ratios) == 3 and all(ratio >= 1 for ratio in ratios.values())


async def test_a_small_measurement_has_all_figures(tmp_path):
  assert await executor.throughput(30, 1, tmp_path / "rate.sqlite") > 0
  costs = await executor.costs(20, 1, tmp_path / "costs.sqlite")
  assert costs["cpu_ms_per_call"] > 0 < costs["bare_cpu_ms_per_call"]
  assert await executor.growth(20, tmp_path / "growth.sqlite") < 50


async def test_the_endpoint_refuses_what_is_above_its_limit_and_counts_it():
  body = {"messages": [], "seed": 0}
  with ChatServer(per_second=5) as server:
    async with aiohttp.ClientSession() as session:
      statuses = []
      for _ in range(8):
        async with session.post(f"{server.base_url}/chat/completions", json=body) as response:
          statuses.append(response.status)
      async with session.get(server.base_url) as response:
        counts = await response.json()
  assert statuses == [200] * 5 + [429] * 3
  assert counts == {"answered": 5, "refused": 3}


async def test_a_paced_worker_is_never_refused(tmp_path):
  paced = await executor.paced(1.0, tmp_path / "paced.sqlite")
  assert paced["paced_refused"] == 0 and 40 <= paced["paced_per_second"] <= 50
