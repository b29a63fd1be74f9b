"""Runs a workflow: every step starts as soon as what it sees is there."""

import asyncio
import hashlib
from collections.abc import Coroutine, Hashable, Sequence
from dataclasses import replace
from typing import Any

from conductor_jax.gather import gather_all
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workers.client import PoolClient
from conductor_jax.workers.pool import WorkerSpec
from conductor_jax.workflows.context import CONTEXTS, Context, context_bytes, shorten
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import Workflow

# Fewer than in most text, so that most of what is taken to fit does.
_BYTES_PER_TOKEN = 2
# How often a conversation is halved that a worker refuses as too long all the same.
_HALVINGS = 3


class RunGroup:
  """Runs of one question, such as the rollouts of a GRPO group: their calls wait in one queue.

  Where calls are shared, a first call that several of them make is made once.
  """

  def __init__(self):
    self.calls: dict[Hashable, _SharedCall] = {}


class Executor:
  """Runs workflows on the workers of a client.

  Attributes:
    pool: the client's; the workflows' worker ids refer to it.

  Args:
    client: asks the workers.
    context: how a worker is shown the steps it sees.
    deadline: seconds that a workflow may take, None for any. What has no answer by then is given
      up.
    share_identical_calls: whether runs of a group share the answers of their first steps, those
      that see nothing, where worker and subtask are the same.
  """

  def __init__(
      self, client: PoolClient, *, context: Context, deadline: float | None = None,
      share_identical_calls: bool = False):
    if context not in CONTEXTS:
      raise ValueError(f"context must be one of {sorted(CONTEXTS)}, got {context!r}")
    self.pool = client.pool
    self._client = client
    self._messages = CONTEXTS[context]
    self._deadline = deadline
    self._share = share_identical_calls

  async def run(
      self, workflow: Workflow, question: str, *, seed: int, group: RunGroup | None = None,
      previous: tuple[str, str] | None = None, original: Transcript | None = None
  ) -> Transcript:
    """Runs every step whose seen steps brought answers; independent steps run at the same time.

    Args:
      workflow: the plan, of one step at least.
      question: the task's question.
      seed: fixes the seeds of all calls.
      group: the runs it belongs to, all of the same question; None for one of its own.
      previous: subtask and answer of the last step of the round before, for the steps that see it.
      original: a run of a workflow of as many steps. A step that is the same in both, and that sees
        the same subtasks and answers, is not asked again: it has its record, at no attempt.

    Returns:
      What happened. A step is skipped if a step it sees brought no answer, so a failure costs only
      what depends on it.

    Raises:
      UserError: see `PoolClient.call`.
    """
    deadline = (None if self._deadline is None
                else asyncio.get_running_loop().time() + self._deadline)
    run = _Run(workflow, question, seed, group or RunGroup(), deadline, previous, original)
    with self._client.spans.workflow(len(workflow.steps)) as span:
      await self._run_steps(run, [i for i, step in enumerate(workflow.steps) if not step.sees])
      last = run.calls[-1]
      if span is not None:
        span.end({}, None if last.answers else last.outcome)
    answer = last.response if last.answers else None
    return Transcript(workflow, run.calls, answer, sum((call.usage for call in run.calls), Usage()))

  async def _run_steps(self, run: "_Run", indices: Sequence[int]) -> None:
    """Runs steps at the same time, each with those that wait for it."""
    if len(indices) == 1:  # needs no task of its own
      await self._run_from(run, indices[0])
    else:
      await gather_all(self._run_from(run, index) for index in indices)

  async def _run_from(self, run: "_Run", index: int) -> None:
    """Runs a step, and then those that only waited for it."""
    run.calls[index] = await self._run_step(run, index)
    ready = run.ready_after(index)
    if ready:
      await self._run_steps(run, ready)

  async def _run_step(self, run: "_Run", index: int) -> CallRecord:
    step = run.workflow.steps[index]
    if run.is_unchanged(index):
      return replace(run.original.calls[index], attempts=0, possibly_billed=0, source="original")
    for earlier in step.sees:
      record = run.calls[earlier]
      if not record.answers:
        return CallRecord(
            worker=self.pool.workers[step.worker].name, request={}, response="",
            usage=Usage(), latency=0.0, attempts=0, outcome="skipped",
            error=f"a step it sees brought no answer: {record.worker} was {record.outcome}")
    with self._client.spans.step(self.pool.workers[step.worker].name, index) as span:
      if self._share and not step.sees and not step.sees_previous:
        record = await self._shared(run, index)
      else:
        record = await self._ask(run, index)
      if span is not None:
        span.end({}, None if record.answers else record.outcome)
    return record

  async def _ask(self, run: "_Run", index: int) -> CallRecord:
    """Asks a step's worker, with what it sees shortened until it fits."""
    step, steps = run.workflow.steps[index], run.workflow.steps
    seen = [(steps[earlier].subtask, run.calls[earlier].response) for earlier in step.sees]
    if step.sees_previous and run.previous is not None:
      seen.insert(0, run.previous)
    messages = whole = self._messages(run.question, seen, step.subtask)
    room = _room(self.pool.workers[step.worker])
    if room is not None and (excess := context_bytes(whole) - room) > 0:
      messages = self._messages(run.question, shorten(seen, excess), step.subtask)
    record = await self._call(run, index, messages)
    for _ in range(_HALVINGS):
      if not record.overflow:
        break
      length = context_bytes(messages)
      shorter = shorten(seen, context_bytes(whole) - length // 2)
      messages = self._messages(run.question, shorter, step.subtask)
      if context_bytes(messages) >= length:
        break  # nothing is left to shorten
      record = (await self._call(run, index, messages)).after(record)
    return record

  async def _call(
      self, run: "_Run", index: int, messages: Sequence[dict[str, str]]) -> CallRecord:
    return await self._client.call(
        run.workflow.steps[index].worker, messages, seed=call_seed(run.seed, index),
        group=run.group, deadline=run.deadline, rank=run.workflow.heights[index])

  async def _shared(self, run: "_Run", index: int) -> CallRecord:
    """The answer to a first step, asked for once in a group."""
    step, before = run.workflow.steps[index], run.workflow.steps[:index]
    # Two that are the same in one plan are two samples.
    key = (step, before.count(step))
    call = run.group.calls.get(key)
    if call is None or call.given_up:
      call = run.group.calls[key] = _SharedCall(self._ask(run, index))
    return await call.wait()


class _Run:
  """One run of a workflow, while it goes on."""

  def __init__(
      self, workflow: Workflow, question: str, seed: int, group: RunGroup,
      deadline: float | None, previous: tuple[str, str] | None, original: Transcript | None):
    self.workflow, self.question, self.seed = workflow, question, seed
    self.group, self.deadline, self.previous = group, deadline, previous
    self.original = original
    self.calls: list[CallRecord | None] = [None] * len(workflow.steps)
    # Of each step, how many of those it sees have not ended.
    self._awaited = [len(step.sees) for step in workflow.steps]

  def is_unchanged(self, index: int) -> bool:
    """Whether a step would ask the same worker the same as in the original run."""
    if self.original is None:
      return False
    before, steps = self.original.workflow.steps, self.workflow.steps
    return steps[index] == before[index] and all(
        steps[seen].subtask == before[seen].subtask
        and self.calls[seen].outcome == self.original.calls[seen].outcome
        and self.calls[seen].response == self.original.calls[seen].response
        for seen in steps[index].sees)

  def ready_after(self, index: int) -> list[int]:
    """The steps that the end of this one leaves nothing to wait for."""
    ready = []
    for later in range(index + 1, len(self.calls)):
      if index in self.workflow.steps[later].sees:
        self._awaited[later] -= 1
        if not self._awaited[later]:
          ready.append(later)
    return ready


class _SharedCall:
  """A call that several runs wait for; it is given up once none of them does.

  Attributes:
    given_up: whether it was.
  """

  def __init__(self, call: Coroutine[Any, Any, CallRecord]):
    self.given_up = False
    self._task = asyncio.create_task(call)
    self._waiting = 0
    self._paid = False

  async def wait(self) -> CallRecord:
    """Its record, with what it cost for the first who gets it."""
    self._waiting += 1
    try:
      record = await asyncio.shield(self._task)
    finally:
      self._waiting -= 1
      if not self._waiting:
        self.given_up = self._task.cancel()  # not one that has ended
    if self._paid:
      return replace(record, usage=Usage(), attempts=0, possibly_billed=0, source="group")
    self._paid = True
    return record


def _room(worker: WorkerSpec) -> int | None:
  """Bytes of a conversation that fit into a worker's window, None where that is not known."""
  if worker.context_length is None:
    return None
  return _BYTES_PER_TOKEN * (worker.context_length - worker.sampling.get("max_tokens", 0))


def call_seed(seed: int, index: int) -> int:
  """The seed of one step's call: 31 bits that depend on both arguments, the same everywhere."""
  digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=4).digest()
  return int.from_bytes(digest, "big") >> 1
