"""A process that makes calls with a journal, again and again, to be killed in the middle.

Every line of standard input, a JSON object with `journal`, `base_url` and `returned`, forks a child
that makes calls without end, four of them at a time; its process id is printed, and a line when it
is gone. Forked, so that its imports are not waited for every time.
"""

import asyncio
import itertools
import json
import os
import sys
from pathlib import Path

from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.journal import Journal
from conductor_jax.workers.pool import Pool, WorkerSpec

AT_ONCE = 4


def pool(base_url):
  return Pool((WorkerSpec("solver", base_url, "m", price_in=2.0, price_out=10.0,
                          sampling={"max_tokens": 500}),))


def messages(seed):
  return [{"role": "user", "content": f"Question {seed}"}]


async def make_calls(journal, base_url, returned):
  """Calls with seeds 0, 1, ...; each that has returned is a line of a file."""
  # Written without a buffer: what stands in it survives the process.
  with open(returned, "ab", buffering=0) as file:
    async with Journal(Path(journal)) as journal, PoolClient(
        pool(base_url), request_timeout=30, max_attempts=1, journal=journal) as client:
      seeds = itertools.count()

      async def make():
        for seed in seeds:
          record = await client.call(0, messages(seed), seed=seed)
          file.write(f"{seed} {record.outcome} {record.response[:20]}\n".encode())

      await asyncio.gather(*(make() for _ in range(AT_ONCE)))


def main():
  for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
      asyncio.run(make_calls(**json.loads(line)))
      os._exit(0)
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("gone", flush=True)


if __name__ == "__main__":
  main()
