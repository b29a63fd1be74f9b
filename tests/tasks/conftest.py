"""Sandboxes for tests."""

import contextlib
import shutil

import pytest

from conductor_jax.tasks.sandbox import Sandbox
from tests.tasks import sandbox_modes


@pytest.fixture(scope="session")
def ordinary_user():
  """A folder and an interpreter that an ordinary user can make sandboxes with, or why not."""
  folder = sandbox_modes.readable_copy()
  yield folder, *sandbox_modes.reason_without(folder)
  shutil.rmtree(folder)


@pytest.fixture(scope="session")
def own_sandbox():
  """A sandbox of the tests' user; every event loop has four places of it."""
  return Sandbox(sessions=4)


@pytest.fixture(params=["own user", "ordinary user"])
async def sandbox(request):
  """A sandbox of the tests' user, and one of an ordinary user."""
  async with contextlib.AsyncExitStack() as stack:
    if request.param == "own user":
      yield request.getfixturevalue("own_sandbox")
      return
    folder, python, reason = request.getfixturevalue("ordinary_user")
    if python is None:
      pytest.skip(reason)
    yield await stack.enter_async_context(sandbox_modes.ordinary_sandbox(folder, python))
