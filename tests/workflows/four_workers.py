"""An endpoint of four workers, and workflows that run on them."""

import asyncio

from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.pool import Pool
from conductor_jax.workflows.executor import Executor
from conductor_jax.workflows.workflow import Step, Workflow
from tests.workers.endpoint import Endpoint, completion, reply, spec

QUESTION = "How much is it?"
OPEN_PLAN = ((0, "Do A."), (1, "Do B."), (2, "Do C.", (0, 1)))


class Workers(Endpoint):
  """The workers "w0" to "w3", called "worker 0" to "worker 3"; a call costs $0.007.

  Attributes:
    behaviours: what a worker does, by model; the others answer by their name.
    events: "+w0" when a request arrives, "-w0" when its answer leaves.
    gone: the models of requests whose client went away.
    client: asks all four.
  """

  client: PoolClient

  def __init__(self):
    super().__init__()
    self.behaviours = {}
    self.events = []
    self.gone = []

  def behaviour(self, body):
    model = body["model"]
    respond = self.behaviours.get(model, reply(completion(f"answer of {model}")))
    self.events.append(f"+{model}")

    async def behave(request):
      try:
        await asyncio.sleep(0.02)
        return await respond(request)
      except asyncio.CancelledError:
        self.gone.append(model)
        raise
      finally:
        self.events.append(f"-{model}")

    return behave

  def open(self, *, worker=None, **options):
    """A client of its own; `worker` holds what is special about the four."""
    pool = Pool(tuple(
        spec(self.base_url, name=f"worker {i}", model=f"w{i}", **(worker or {}))
        for i in range(4)))
    return PoolClient(
        pool, **{"request_timeout": 30.0, "max_attempts": 2, "backoff": 0.001, **options})

  def conversations(self, model):
    """Role and content of every turn, of every request to a model."""
    return [[(turn["role"], turn["content"]) for turn in body["messages"]]
            for body in self.bodies if body["model"] == model]

  def contents(self, model):
    """The same of the only request to a model."""
    (turns,) = self.conversations(model)
    return turns


def plan(*steps):
  return Workflow(tuple(Step(*step) for step in steps))


async def run(
    workers, *steps, context="messages", seed=0, client=None, previous=None, **options):
  """The transcript of a plan of (worker, subtask, sees, sees_previous)."""
  workflow = plan(*steps)
  executor = Executor(client or workers.client, context=context, **options)
  transcript = await executor.run(workflow, QUESTION, seed=seed, previous=previous)
  assert transcript.workflow is workflow
  assert len(transcript.calls) == len(steps)
  return transcript


async def until(condition):
  async with asyncio.timeout(10):
    while not condition():
      await asyncio.sleep(0.001)
