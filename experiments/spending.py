"""What a program says when its budget is spent."""

import contextlib
from collections.abc import Iterator

from conductor_jax.errors import OutOfBudget
from conductor_jax.workers.budget import told
from conductor_jax.workers.client import PoolClient


@contextlib.contextmanager
def told_what_was_spent(client: PoolClient) -> Iterator[None]:
  """Adds to a spent budget what it was spent on."""
  try:
    yield
  except OutOfBudget as fault:
    raise OutOfBudget(
        f"{fault}; spent so far: {told(client.budget.spending())}: raise --config.pool.budget, "
        "then run the same command to go on from here") from fault
