import os
from pathlib import Path

import pytest

from tests.experiments.small_run import Program


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Program:
  folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
  return Program(Path(folder) if folder else tmp_path_factory.mktemp("compiled"))
