"""From what happened to a number, and what is not the policy's fault."""

from dataclasses import dataclass

from conductor_jax.tasks.task import Grade
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import ParsedPlan, ParseFailure


@dataclass(frozen=True)
class RewardValues:
  """The rewards of RL Conductor (arXiv 2512.04388).

  Attributes:
    unparsed: of a completion that is not a valid plan.
    wrong: of a plan whose answer is wrong, or that brings none.
    right: of a plan whose answer is right.
  """

  unparsed: float = 0.0
  wrong: float = 0.5
  right: float = 1.0


def reward(
    plan: ParsedPlan | ParseFailure,
    transcript: Transcript | None,
    grade: Grade | None,
    values: RewardValues,
) -> float | None:
  """The reward of one rollout.

      the plan did not parse; no worker was called               values.unparsed
      an endpoint was unavailable                                None
      an answer that the grader failed on                        None
      no answer: a worker refused, or ran out of tokens          values.wrong
      a wrong answer                                             values.wrong
      a right answer                                             values.right

  One unavailable call rejects the rollout even where the last step did not depend on it: what ran
  is then not the plan that was written, and whether an outage costs a plan its reward would depend
  on the plan's shape, which teaches the policy about the outage.

  Args:
    plan: the parsed completion.
    transcript: the run, None only where the plan did not parse.
    grade: the verdict, None where there is none.
    values: the rewards to give.

  Returns:
    The reward, or None: rejected, to be masked out and counted.

  Raises:
    ValueError: a parsed plan without its transcript.
  """
  if isinstance(plan, ParseFailure):
    return values.unparsed
  if transcript is None:
    raise ValueError("a plan that parsed has no reward before it ran: got no transcript")
  if transcript.unavailable:
    return None
  if transcript.answer is None:
    return values.wrong
  if grade is None:
    return None
  return values.right if grade.correct else values.wrong
