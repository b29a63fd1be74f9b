"""From what happened to a number, and what is not the policy's fault."""

from dataclasses import dataclass
from typing import Literal

from conductor_jax.tasks.task import Grade
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import ParsedPlan, ParseFailure

# Parts of a reward that are for a plan's effort.
EFFORTS = ("cost", "tokens", "latency", "steps", "dependencies", "efficiency")

FirstReward = Literal["discounted", "own", "final"]


@dataclass(frozen=True)
class RewardValues:
  """The rewards of RL Conductor (arXiv 2512.04388), and what a plan's effort takes from them.

  Attributes:
    unparsed: of a completion that is not a valid plan.
    wrong: of a plan whose answer is wrong, or that brings none.
    right: of a plan whose answer is right.
    per_dollar: taken for each dollar that the workers are paid.
    per_thousand_tokens: taken for each thousand tokens that they read and write.
    per_second: taken for each second that they take, see `longest_way`.
    per_step: taken for each step.
    per_dependency: taken for each earlier answer that a step sees.
    efficiency: what a right answer gets on top if it takes no tokens; less and less with every
      token, and nothing from `efficient_tokens` on. LEMON (arXiv 2605.14483) has such a bonus and
      does not publish its form: this one is ours.
    efficient_tokens: see there.
  """

  unparsed: float = 0.0
  wrong: float = 0.5
  right: float = 1.0
  per_dollar: float = 0.0
  per_thousand_tokens: float = 0.0
  per_second: float = 0.0
  per_step: float = 0.0
  per_dependency: float = 0.0
  efficiency: float = 0.0
  efficient_tokens: int = 1000


@dataclass(frozen=True)
class Reward:
  """A reward and what it is made of.

  Attributes:
    total: the sum, but no less than that of an unparsed plan: effort never makes a plan that runs
      worse than none.
    outcome: for the answer.
    cost, tokens, latency: for the effort, 0 or below.
    steps, dependencies: for the plan's size, 0 or below.
    efficiency: for a right answer at little effort, 0 or above.
  """

  total: float
  outcome: float
  cost: float = 0.0
  tokens: float = 0.0
  latency: float = 0.0
  steps: float = 0.0
  dependencies: float = 0.0
  efficiency: float = 0.0


def reward(
    plan: ParsedPlan | ParseFailure,
    transcript: Transcript | None,
    grade: Grade | None,
    values: RewardValues,
) -> Reward | None:
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
    return Reward(values.unparsed, values.unparsed)
  if transcript is None:
    raise ValueError("a plan that parsed has no reward before it ran: got no transcript")
  if transcript.unavailable or (transcript.answer is not None and grade is None):
    return None
  right = grade is not None and grade.correct and transcript.answer is not None
  outcome = values.right if right else values.wrong
  usage, steps = transcript.usage, plan.workflow.steps
  saved = max(1 - usage.tokens / values.efficient_tokens, 0.0) if right else 0.0
  parts = dict(
      cost=0.0 - values.per_dollar * usage.cost,
      tokens=0.0 - values.per_thousand_tokens * usage.tokens / 1000,
      latency=0.0 - values.per_second * transcript.seconds,
      steps=0.0 - values.per_step * len(steps),
      dependencies=0.0 - values.per_dependency * sum(len(step.sees) for step in steps),
      efficiency=values.efficiency * saved)
  return Reward(max(outcome + sum(parts.values()), values.unparsed), outcome, **parts)


def first_round_reward(
    own: float, later: float | None, discount: float, kind: FirstReward) -> float | None:
  """What a first round is trained on that a second one has followed.

      "discounted"   (1 − discount) own + discount later
      "own"          what its own answer is worth
      "final"        what the second round made of it

  Args:
    own: the first round's reward.
    later: that of the second one, None where it is rejected.
    discount: weight of the later one.
    kind: which of the three.

  Returns:
    None: rejected, where a later reward is needed and there is none.
  """
  if kind == "own":
    return own
  if later is None:
    return None
  return later if kind == "final" else (1 - discount) * own + discount * later
