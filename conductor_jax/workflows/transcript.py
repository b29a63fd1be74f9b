"""What happened when a workflow ran."""

from collections.abc import Sequence
from dataclasses import dataclass

from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workflows.workflow import Workflow


@dataclass(frozen=True)
class Transcript:
  """One run of a workflow.

  Attributes:
    workflow: the plan.
    calls: one record per step, in step order.
    answer: the last step's answer, None if it brought none.
    usage: the sum over the calls.
  """

  workflow: Workflow
  calls: Sequence[CallRecord]
  answer: str | None
  usage: Usage

  @property
  def unavailable(self) -> bool:
    """Whether infrastructure, not the plan, kept an answer away."""
    return any(call.outcome == "unavailable" for call in self.calls)
