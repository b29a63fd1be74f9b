import pytest

from tests.workers.endpoint import serve
from tests.workflows.four_workers import Workers


@pytest.fixture
async def workers():
  async with serve(Workers()) as served, served.open() as served.client:
    yield served
