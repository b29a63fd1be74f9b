r"""Runs a workflow: every step starts as soon as what it sees is there.

What a worker is shown is the question, the subtasks and answers of the steps it sees, its own
subtask, and the fixed labels below. The labels carry no step numbers, for a number would tell a
worker of steps it may not see.

In the "messages" style, that is a conversation in which the worker seems to have given the seen
answers itself. Roles alternate and the first turn is the user's, as the strictest chat templates
demand:

    user       Question:\n<question>\n\nSubtask:\n<first seen subtask>
    assistant  <its answer>
    user       Subtask:\n<second seen subtask>
    assistant  <its answer>
    user       Subtask:\n<own subtask>

A step that sees nothing gets its own subtask in the first turn. In the "inlined" style it is all
one user turn:

    Question:\n<question>\n\nSubtask:\n<seen subtask>\n\nResponse:\n<its answer>\n\n
    (... the same for every step seen ...)
    Your subtask:\n<own subtask>

An empty answer is shown as "(empty)": several endpoints refuse a turn without text.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Literal

from conductor_jax.gather import gather_all
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workers.client import PoolClient
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import Step, Workflow

Context = Literal["messages", "inlined"]

_ANSWERED = ("answered", "truncated")


class Executor:
  """Runs workflows on the workers of a client.

  Attributes:
    pool: the client's; the workflows' worker ids refer to it.

  Args:
    client: asks the workers.
    context: how a worker is shown the steps it sees.
  """

  def __init__(self, client: PoolClient, *, context: Context):
    if context not in CONTEXTS:
      raise ValueError(f"context must be one of {sorted(CONTEXTS)}, got {context!r}")
    self.pool = client.pool
    self._client = client
    self._messages = CONTEXTS[context]

  async def run(self, workflow: Workflow, question: str, *, seed: int) -> Transcript:
    """Runs every step whose seen steps brought answers; independent steps run at the same time.

    Args:
      workflow: the plan.
      question: the task's question.
      seed: fixes the seeds of all calls.

    Returns:
      What happened. A step is skipped if a step it sees brought no answer, so a failure costs only
      what depends on it.
    """
    tasks: list[asyncio.Task[CallRecord]] = []
    for index, step in enumerate(workflow.steps):
      seen = [(workflow.steps[s], tasks[s]) for s in step.sees]
      run = self._run_step(step, seen, question, call_seed(seed, index))
      tasks.append(asyncio.create_task(run))
    calls = await gather_all(tasks)
    answer = calls[-1].response if calls[-1].outcome in _ANSWERED else None
    return Transcript(workflow, calls, answer, sum((call.usage for call in calls), Usage()))

  async def _run_step(
      self, step: Step, seen: Sequence[tuple[Step, asyncio.Task]], question: str, seed: int
  ) -> CallRecord:
    blocks = []
    for earlier, task in seen:
      record = await task
      if record.outcome not in _ANSWERED:
        return CallRecord(
            worker=self.pool.workers[step.worker].name, request={}, response="",
            usage=Usage(), latency=0.0, attempts=0, outcome="skipped",
            error=f"a step it sees brought no answer: {record.worker} was {record.outcome}")
      blocks.append((earlier.subtask, record.response))
    messages = self._messages(question, blocks, step.subtask)
    return await self._client.call(step.worker, messages, seed=seed)


def call_seed(seed: int, index: int) -> int:
  """The seed of one step's call: 31 bits that depend on both arguments, the same everywhere."""
  digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=4).digest()
  return int.from_bytes(digest, "big") >> 1


def message_context(
    question: str, seen: Sequence[tuple[str, str]], subtask: str
) -> list[dict[str, str]]:
  """The "messages" style.

  Args:
    question: the task's question.
    seen: subtask and answer of each step seen, in step order.
    subtask: the worker's own.
  """
  subtasks = [*(earlier for earlier, _ in seen), subtask]
  turns = [{"role": "user", "content": f"Subtask:\n{text}"} for text in subtasks]
  turns[0]["content"] = f"Question:\n{question}\n\n{turns[0]['content']}"
  for index, (_, answer) in reversed(list(enumerate(seen))):
    turns.insert(index + 1, {"role": "assistant", "content": _visible(answer)})
  return turns


def inlined_context(
    question: str, seen: Sequence[tuple[str, str]], subtask: str
) -> list[dict[str, str]]:
  """The "inlined" style; arguments as for `message_context`."""
  parts = [f"Question:\n{question}"]
  for earlier, answer in seen:
    parts.append(f"Subtask:\n{earlier}\n\nResponse:\n{_visible(answer)}")
  parts.append(f"Your subtask:\n{subtask}")
  return [{"role": "user", "content": "\n\n".join(parts)}]


def _visible(answer: str) -> str:
  return answer if answer.strip() else "(empty)"


CONTEXTS = {"messages": message_context, "inlined": inlined_context}
