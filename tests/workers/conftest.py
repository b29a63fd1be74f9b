import pytest

from tests.workers.endpoint import Endpoint, serve


@pytest.fixture
async def endpoint():
  async with serve(Endpoint()) as served:
    yield served
