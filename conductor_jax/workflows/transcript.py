"""What happened when a workflow ran."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conductor_jax.errors import OutOfBudget
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workflows.workflow import Workflow


@dataclass(frozen=True)
class Transcript:
  """One run of a workflow.

  Attributes:
    workflow: the plan.
    calls: one record per step, in step order.
    answer: the last step's answer, None if it brought none. Of a workflow without steps that of
      the round before.
    usage: the sum over the calls.
  """

  workflow: Workflow
  calls: Sequence[CallRecord]
  answer: str | None
  usage: Usage

  @property
  def unavailable(self) -> bool:
    """Whether infrastructure or the budget, not the plan, kept an answer away."""
    return any(call.outcome in ("unavailable", "over_budget") for call in self.calls)

  @property
  def seconds(self) -> float:
    """How long the workers took, see `longest_way`."""
    return longest_way(self.workflow, [call.latency for call in self.calls])


def longest_way(workflow: Workflow, latencies: Sequence[float]) -> float:
  """Seconds from the first call to the end of the last, where no call waits but for what it sees.

  Args:
    workflow: the plan.
    latencies: seconds of each step's call.
  """
  ends: list[float] = []
  for step, latency in zip(workflow.steps, latencies, strict=True):
    ends.append(latency + max((ends[earlier] for earlier in step.sees), default=0.0))
  return max(ends, default=0.0)


def refuse_over_budget(transcripts: Iterable[Transcript | None]) -> None:
  """Ends a run whose budget is spent.

  Raises:
    OutOfBudget: a call had no room.
  """
  for transcript in transcripts:
    for call in transcript.calls if transcript is not None else ():
      if call.outcome == "over_budget":
        raise OutOfBudget(call.error)
