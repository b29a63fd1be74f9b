import os
import signal
from pathlib import Path

import pytest

from tests.experiments.small_run import Program


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Program:
  folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
  return Program(Path(folder) if folder else tmp_path_factory.mktemp("compiled"))


@pytest.fixture(autouse=True)
def signals():
  """Puts back what a run in the tests' own process does on a signal."""
  before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
  yield
  for number, handler in before.items():
    signal.signal(number, handler)
