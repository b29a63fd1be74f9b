"""What a format of plans has to offer: every surface that a policy may write plans in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from conductor_jax.workers.offer import Offer
from conductor_jax.workers.pool import Pool
from conductor_jax.workflows.workflow import ParsedPlan, ParseFailure, Workflow

# Which earlier steps a step may be made to see: all of them or none, those it names, or none ever.
Access = Literal["binary", "positions", "none"]
# What of a step a counterfactual takes back: one thing that it sees, its own words, its worker.
Family = Literal["dependency", "duty", "capacity"]
FAMILIES: tuple[Family, ...] = ("dependency", "duty", "capacity")


@dataclass(frozen=True)
class Example:
  """A question with a plan for it.

  Attributes:
    question: what is asked.
    models: the numbers of the models it offers.
    thought: what is said before the plan.
    workflow: the plan, with subtasks in words of their own.
    previous: the last answer of the round before, None in the first round.
    roles: the base role of each step, for formats that have roles; empty where nobody says.
  """

  question: str
  models: Sequence[int]
  thought: str
  workflow: Workflow
  previous: str | None = None
  roles: tuple[str, ...] = ()


class PlanFormat(Protocol):
  """How plans are written.

  Attributes:
    max_steps: the most steps of a plan.
    access: what its steps can be made to see.
  """

  max_steps: int
  access: Access

  @property
  def names(self) -> tuple[str, ...]:
    """Words that begin a plan or a part of it; a prefill holds none of them."""

  def instructions(self, *, later: bool) -> str:
    """What the policy is told before any example.

    Args:
      later: whether there is an answer of an earlier round.
    """

  def offered(self, numbers: Sequence[int]) -> str:
    """The line that says which workers a question's plan may use.

    Args:
      numbers: what plans call these workers.
    """

  def example_models(self, example: Example, numbers: Sequence[int]) -> Sequence[int]:
    """The numbers that an example in the prompt says are on offer, where plans may use `numbers`.
    """

  def parse(
      self, completion: str, offer: Offer, *, previous: bool = False) -> ParsedPlan | ParseFailure:
    """Parses a completion; takes time linear in its length.

    Args:
      completion: what the policy wrote.
      offer: which workers its plan may use.
      previous: whether there is an answer of an earlier round.

    Returns:
      The plan, its workers by their ids in the pool, or one sentence on why there is none.
    """

  def written(self, example: Example) -> str:
    """The text that a policy should write, `example`'s thought and plan.

    Raises:
      ValueError: the format cannot express the plan.
    """

  def lesser(self, worker: int, pool: Pool, offer: Offer) -> int | None:
    """The worker that a capacity one level down means, None where there is none below.

    Args:
      worker: an id in the pool.
      pool: all workers.
      offer: which of them may be used.
    """

  def rewritten(
      self, completion: str, plan: ParsedPlan, span: tuple[int, int], family: Family,
      mutated: Workflow, offer: Offer) -> str | None:
    """The completion with one field rewritten, so that it says a mutated plan.

    Args:
      completion: what the policy wrote.
      plan: what it parses into.
      span: the field, see `credit.mutations`.
      family: what was taken back.
      mutated: the plan that it should say.
      offer: which workers may be used.

    Returns:
      None where the text cannot be changed within the span alone.
    """
