"""What tests ask of a stand-in server, whoever has started it."""

import asyncio
import json
import os
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

GENERATE = "/inference/v1/generate"


def ask(url: str, route: str, body: Any = None) -> Any:
  """The JSON answer of a route: POST with a body, else GET."""
  data = None if body is None else json.dumps(body).encode()
  request = urllib.request.Request(url + route, data, {"Content-Type": "application/json"})
  with urllib.request.urlopen(request, timeout=20) as response:
    return json.load(response)


def arm(url: str, route: str, kind: str, **options: Any) -> None:
  """Arms a fault; `vllm.faults` of the stand-in lists them."""
  ask(url, "/faults", {"route": route, "kind": kind, **options})


def asked(url: str, route: str) -> int:
  """How often a route was asked."""
  return sum(each["route"] == route for each in ask(url, "/requests"))


def kill(log: Path) -> None:
  """Kills a server of ours with SIGKILL; its log names the process."""
  [*_, pid] = [line.split()[1] for line in log.read_text().splitlines()
               if line.startswith("server ")]
  os.kill(int(pid), signal.SIGKILL)


async def until(condition: Callable[[], bool]) -> None:
  """Polls a condition that must come true, and fails the test when it does not within 20 s."""
  async with asyncio.timeout(20):
    while not condition():
      await asyncio.sleep(0.02)
