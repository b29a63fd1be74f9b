"""A pool behind a real server on the loopback interface."""

import pytest

from conductor_jax.workers.offer import OfferLaw
from conductor_jax.workers.pool import Pool, WorkerSpec
from tests.workers.endpoint import DEAD, Endpoint, completion, reply, serve


class Workers(Endpoint):
  """Five workers: one is always right where the answer is 4, one where it is 5, three are odd.

      0 four    "4"
      1 five    "5"
      2 seed    its request's seed
      3 dead    cannot be reached
      4 flaky   "4" to "Question 0?", HTTP 503 to any other

  Attributes:
    pool: the workers; a call of 0 costs $0.003, of any other $0.001.
  """

  names = ("four", "five", "seed", "dead", "flaky")

  @property
  def pool(self) -> Pool:
    return Pool(tuple(
        WorkerSpec(name, DEAD if name == "dead" else self.base_url, name, price_in=price,
                   price_out=price)
        for name, price in zip(self.names, (300.0, 100.0, 100.0, 100.0, 100.0), strict=True)))

  def offers(self, law: str, groups=(), **options) -> OfferLaw:
    """A law by which they are offered."""
    return OfferLaw(law, self.names, dict(groups), **options)

  def behaviour(self, body):
    seconds = 0.01 * (self.hits % 3)  # answers overtake each other
    if body["model"] == "flaky" and "Question 0?" not in body["messages"][0]["content"]:
      return reply({}, 503, seconds=seconds)
    answer = {"four": "4", "five": "5", "flaky": "4"}.get(body["model"], str(body["seed"]))
    usage = {"prompt_tokens": 8, "completion_tokens": 2}
    return reply(completion(answer, usage=usage), seconds=seconds)


@pytest.fixture
async def workers():
  async with serve(Workers()) as workers:
    yield workers
