"""Times the executor and its client against a local endpoint with a set latency.

    python -m experiments.benchmarks.executor

Prints one JSON line:

    critical_path_ratio       time of 256 workflows at once, over that of the longest path through
                              any of them: half chains of three calls, half two calls and a third
                              that sees both, each call 100 ms ± 20 %
    critical_path_ratio_without_journal, bare_critical_path_ratio    the same without the journal,
                              and of an aiohttp session that makes as many calls in that order
    calls_per_second          the same workflows, 64 at a time, without latency
    cpu_ms_per_call           of this process, 64 calls at a time, 400 words for 200
    cpu_ms_per_call_without_journal    the same without the journal
    bare_cpu_ms_per_call      of an aiohttp session that does the same and looks into no answer
    journal_overhead          what the journal adds to the time of 20,000 calls of 100 ms ± 20 %,
                              256 at a time, in blocks with and without it that take turns
    journal_overhead_without_latency    the same of calls that take no time, 64 at a time
    journal_growth_mib        memory that 20,000 journaled calls leave behind
    paced_per_second          requests seen in a second at a limit of 50, over 10 seconds
    paced_refused             those that an endpoint refused which enforces that limit

Everything has the journal on but where it is named; medians of `--repeats`. The endpoint has a
process of its own, which is faster than any client here, so two cores are needed.
"""

import asyncio
import contextlib
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from absl import flags

from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.journal import Journal
from conductor_jax.workers.pool import Limits, Pool, WorkerSpec
from conductor_jax.workflows.executor import Executor, call_seed
from conductor_jax.workflows.workflow import Step, Workflow
from experiments.benchmarks.chat_server import ChatServer, latency_of
from experiments.program import start

_LATENCY, _JITTER = 0.1, 0.2
_AT_ONCE, _MANY_AT_ONCE = 64, 256
_QUESTION = "token " * 400
_MESSAGES = [{"role": "user", "content": _QUESTION}]
_CHAIN = Workflow((Step(0, "Solve it."), Step(0, "Check it.", (0,)), Step(0, "Refine it.", (1,))))
_JOIN = Workflow((Step(0, "Solve it."), Step(0, "Prepare it."), Step(0, "Join them.", (0, 1))))


@contextlib.asynccontextmanager
async def open_client(
    server: ChatServer, journal: Path | None, **limits: float) -> AsyncIterator[PoolClient]:
  """A client of one worker without limits, or with the given ones."""
  async with contextlib.AsyncExitStack() as stack:
    opened = None if journal is None else await stack.enter_async_context(Journal(journal))
    spec = WorkerSpec(
        "worker", server.base_url, "m", price_in=1.0, price_out=2.0,
        limits=Limits(**{"concurrent": 10**6, **limits}),
        sampling={"temperature": 0.2, "max_tokens": 256})
    yield await stack.enter_async_context(PoolClient(
        Pool((spec,)), request_timeout=60.0, max_attempts=2, max_in_flight=10**6, journal=opened))


async def in_turn(
    calls: Iterable[Callable[[], Coroutine[Any, Any, Any]]], at_once: int = _AT_ONCE) -> None:
  """Makes all calls, so many at a time."""
  waiting = iter(calls)

  async def work() -> None:
    for call in waiting:
      await call()

  await asyncio.gather(*(work() for _ in range(at_once)))


def workflows(count: int) -> list[Workflow]:
  """Chains first: those are begun first that take longest, as `run_and_grade` does."""
  return [_CHAIN] * (count // 2) + [_JOIN] * (count - count // 2)


def critical_path(workflow: Workflow, seed: int) -> float:
  """Seconds that a workflow takes at least."""
  ends: list[float] = []
  for index, step in enumerate(workflow.steps):
    began = max((ends[earlier] for earlier in step.sees), default=0.0)
    ends.append(began + latency_of(call_seed(seed, index), _LATENCY, _JITTER))
  return ends[-1]


async def path_ratios(count: int, repeats: int, journal: Path) -> dict[str, float]:
  """Time of the workflows over the longest path through any of them, run in three ways."""
  ratios: dict[str, list[float]] = {}
  with ChatServer(latency=_LATENCY, jitter=_JITTER) as server:
    async with open_client(server, journal) as client, open_client(server, None) as without, \
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
      ways = {
          "critical_path_ratio": Executor(client, context="messages").run,
          "critical_path_ratio_without_journal": Executor(without, context="messages").run,
          "bare_critical_path_ratio": partial(
              bare_run, session, f"{server.base_url}/chat/completions")}
      for repeat in range(repeats + 1):
        for name, run in ways.items():
          runs = [(workflow, repeat * count + i) for i, workflow in enumerate(workflows(count))]
          gc.collect()
          gc.freeze()
          began = time.perf_counter()
          await asyncio.gather(*(run(workflow, _QUESTION, seed=seed) for workflow, seed in runs))
          seconds = time.perf_counter() - began
          if repeat:  # the first one opens the connections
            ratios.setdefault(name, []).append(
                seconds / max(critical_path(*run) for run in runs))
  return {name: round(statistics.median(values), 3) for name, values in ratios.items()}


async def bare_call(session: aiohttp.ClientSession, url: str, seed: int) -> str:
  """What a call takes at least: sends the messages, and reads the answer's text."""
  body = {"model": "m", "messages": _MESSAGES, "temperature": 0.2, "seed": seed}
  async with session.post(url, json=body) as response:
    return (await response.json())["choices"][0]["message"]["content"]


async def bare_run(
    session: aiohttp.ClientSession, url: str, workflow: Workflow, question: str, *, seed: int
) -> None:
  """The same calls, each as soon as those it waits for are done, and nothing else."""
  calls: list[asyncio.Task] = []

  async def call(index: int, step: Step) -> None:
    for earlier in step.sees:
      await calls[earlier]
    await bare_call(session, url, call_seed(seed, index))

  for index, step in enumerate(workflow.steps):
    calls.append(asyncio.create_task(call(index, step)))
  await asyncio.gather(*calls)


async def throughput(calls: int, repeats: int, journal: Path) -> float:
  """Calls per second of workflows at no latency."""
  rates = []
  with ChatServer() as server:
    async with open_client(server, journal) as client:
      executor = Executor(client, context="messages")
      for repeat in range(repeats + 1):
        runs = [(workflow, repeat * calls + i) for i, workflow in enumerate(workflows(calls // 3))]
        gc.collect()
        gc.freeze()
        began = time.perf_counter()
        await in_turn(lambda run=run: executor.run(run[0], _QUESTION, seed=run[1]) for run in runs)
        rates.append(3 * len(runs) / (time.perf_counter() - began))
  return statistics.median(rates[1:])


class Timing(NamedTuple):
  """Of one way to make a call, in every block: seconds and CPU seconds of a call."""

  seconds: list[float]
  cpu: list[float]


async def side_by_side(
    ways: Mapping[str, Callable[[int], Coroutine[Any, Any, Any]]], calls: int, repeats: int,
    at_once: int) -> dict[str, Timing]:
  """Times several ways to make a call of a seed, in blocks that take turns."""
  timings = {name: Timing([], []) for name in ways}
  block = max(1, calls // repeats)
  for repeat in range(repeats + 1):
    for name, call in ways.items():
      seeds = range(repeat * block, repeat * block + (block if repeat else 2 * at_once))
      gc.collect()
      gc.freeze()
      before = time.perf_counter(), time.process_time()
      await in_turn((lambda seed=seed, call=call: call(seed) for seed in seeds), at_once)
      if repeat:  # the first one opens the connections
        timings[name].seconds.append((time.perf_counter() - before[0]) / block)
        timings[name].cpu.append((time.process_time() - before[1]) / block)
  return timings


def added(with_it: Timing, without: Timing) -> float:
  """The share that something adds; machines have slow minutes, so neighbours are compared."""
  return round(statistics.median(
      ours / theirs for ours, theirs in zip(with_it.seconds, without.seconds, strict=True)) - 1, 3)


async def costs(calls: int, repeats: int, journal: Path) -> dict[str, float]:
  """CPU time per call of our client and of a bare session, and what the journal adds."""
  measured = {}
  async with contextlib.AsyncExitStack() as stack:
    session = await stack.enter_async_context(
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))

    async def open_ways(server: ChatServer) -> dict[str, Callable[[int], Coroutine]]:
      clients = {
          name: await stack.enter_async_context(open_client(server, path))
          for name, path in (("journal", journal), ("none", None))}
      return {name: lambda seed, client=client: client.call(0, _MESSAGES, seed=seed)
              for name, client in clients.items()}

    server = stack.enter_context(ChatServer())
    ways = await open_ways(server)
    timings = await side_by_side(
        {**ways, "bare": lambda seed: bare_call(
            session, f"{server.base_url}/chat/completions", seed)},
        calls, repeats, _AT_ONCE)
    for key, name in (("cpu_ms_per_call", "journal"), ("cpu_ms_per_call_without_journal", "none"),
                      ("bare_cpu_ms_per_call", "bare")):
      measured[key] = round(1e3 * statistics.median(timings[name].cpu), 3)
    measured["journal_overhead_without_latency"] = added(timings["journal"], timings["none"])

    journal = journal.with_stem("slow")
    slow = stack.enter_context(ChatServer(latency=_LATENCY, jitter=_JITTER))
    timings = await side_by_side(await open_ways(slow), calls, repeats, _MANY_AT_ONCE)
    return {**measured, "journal_overhead": added(timings["journal"], timings["none"])}


def resident_mib() -> float:
  status = Path("/proc/self/status").read_text()
  return int(status.split("VmRSS:")[1].split()[0]) / 1024


async def growth(calls: int, journal: Path) -> float:
  """MiB that journaled calls leave behind in memory."""
  with ChatServer() as server:
    async with open_client(server, journal) as client:
      async def make(first: int, count: int) -> None:
        await in_turn(
            lambda seed=seed: client.call(0, _MESSAGES, seed=seed)
            for seed in range(first, first + count))

      await make(0, 1000)
      gc.collect()
      before = resident_mib()
      await make(1000, calls)
      gc.collect()
      return resident_mib() - before


async def paced(seconds: float, journal: Path) -> dict[str, float]:
  """What an endpoint sees of a worker with a limit of 50 requests per second."""
  with ChatServer(per_second=50) as server:
    async with open_client(server, journal, requests_per_minute=3000) as client, \
        aiohttp.ClientSession() as session:
      calls = [asyncio.create_task(client.call(0, _MESSAGES, seed=i))
               for i in range(int(60 * seconds))]
      await asyncio.sleep(seconds)
      async with session.get(server.base_url) as response:
        seen = await response.json()
      for call in calls:
        call.cancel()
      await asyncio.gather(*calls, return_exceptions=True)
  return {"paced_per_second": round((seen["answered"] + seen["refused"]) / seconds, 2),
          "paced_refused": seen["refused"]}


async def measure(
    folder: Path, *, count: int, calls: int, paced_seconds: float, repeats: int
) -> dict[str, float]:
  """What the program prints."""
  def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

  say(f"{count} workflows at {_LATENCY} s a call")
  measured = await path_ratios(count, repeats, folder / "path.sqlite")
  say(f"{calls // 2} calls without latency")
  measured["calls_per_second"] = round(
      await throughput(calls // 2 // repeats, repeats, folder / "rate.sqlite"))
  say(f"{calls} calls with the journal, as many without it, and bare, then with latency")
  measured |= await costs(calls, repeats, folder / "costs.sqlite")
  say(f"{calls} journaled calls")
  measured["journal_growth_mib"] = round(await growth(calls, folder / "growth.sqlite"), 1)
  say(f"50 requests a second for {paced_seconds} s")
  return measured | await paced(paced_seconds, folder / "paced.sqlite")


def main() -> None:
  workflows = flags.DEFINE_integer("workflows", 256, "That run at once.")
  calls = flags.DEFINE_integer("calls", 20_000, "That are journaled.")
  paced_seconds = flags.DEFINE_float("paced_seconds", 10.0, "How long the limit is held.")
  repeats = flags.DEFINE_integer("repeats", 7, "Of each measurement.")

  def program() -> None:
    with tempfile.TemporaryDirectory() as folder:
      print(json.dumps(asyncio.run(measure(
          Path(folder), count=workflows.value, calls=calls.value,
          paced_seconds=paced_seconds.value, repeats=repeats.value))))

  start(program, [])


if __name__ == "__main__":
  main()
