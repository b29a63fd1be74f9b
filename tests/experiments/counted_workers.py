"""Workers at an endpoint that behaves as a test wants, and configs that evaluate them."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal
from ml_collections import ConfigDict

from configs import quickstart
from tests.workers.endpoint import Behaviour, Endpoint, completion, reply, serve

WORKERS = ("solver", "helper", "novice")
USAGE = {"prompt_tokens": 8, "completion_tokens": 2}


def answer(text: str = "<answer>4</answer>", seconds: float = 0.0) -> Behaviour:
  return reply(completion(text, usage=USAGE), seconds=seconds)


class Asked(Endpoint):
  """An endpoint that does what a function of (the request, how many there were before) says.

  Attributes:
    counts: how often each request was made.
  """

  def __init__(self, decide: Callable[[dict[str, Any], int], Behaviour] | None = None):
    super().__init__()
    self.decide = decide or (lambda body, before: answer())

  def behaviour(self, body: dict[str, Any]) -> Behaviour:
    return self.decide(body, self.hits - 1)

  @property
  def counts(self) -> Counter:
    return Counter(map(call, self.bodies))


def call(body: dict[str, Any]) -> tuple[str, str, int]:
  """What tells one request from another."""
  return body["model"], body["messages"][-1]["content"], body["seed"]


@contextlib.contextmanager
def served(endpoint: Asked) -> Iterator[Asked]:
  """Serves an endpoint from a thread."""
  with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve(endpoint)):
    yield endpoint


def config_of(endpoint: Asked, **options: Any) -> ConfigDict:
  """The quickstart's world with workers at the endpoint; further options by their flat keys."""
  config = quickstart.get_config()
  config.tasks.train, config.evaluation.tasks = 30, 12
  config.pool.update(dict(source="listed", max_attempts=1, workers=tuple(
      dict(name=name, base_url=endpoint.base_url, model=name, price_in=100.0, price_out=100.0)
      for name in WORKERS)))
  config.update_from_flattened_dict({key.replace("__", "."): v for key, v in options.items()})
  return config


def config_file(folder: Path, endpoint: Asked, **options: Any) -> Path:
  """The same config as a file, for another process."""
  path = folder / "config_of_test.py"
  path.write_text(
      "from tests.experiments.counted_workers import Asked, config_of\n\n"
      "def get_config():\n"
      "  endpoint = Asked()\n"
      f"  endpoint.base_url = {endpoint.base_url!r}\n"
      f"  return config_of(endpoint, **{options!r})\n")
  return path
