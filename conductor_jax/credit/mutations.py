"""Plans that differ from one in a single field (LEMON, arXiv 2605.14483).

    family        of a specification            of lists
    dependency    one reference is deleted      an open access list is closed
    duty          back to the base role         the subtask is the plain one
    capacity      one level down                the next cheaper worker on offer

LEMON has the first column; the second is ours. What a mutation takes back has a place in the
completion, its span: that is what the change of the reward tells about.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from conductor_jax.workers.offer import Offer
from conductor_jax.workers.pool import Pool
from conductor_jax.workflows.format import Family, PlanFormat
from conductor_jax.workflows.workflow import ParsedPlan, Step, Workflow


@dataclass(frozen=True)
class Mutation:
  """One plan with one field taken back.

  Attributes:
    family: which kind of field.
    step: of which step.
    span: start and end of the field, in characters of the completion.
    workflow: the plan without it, of as many steps.
  """

  family: Family
  step: int
  span: tuple[int, int]
  workflow: Workflow


def mutations(plan: ParsedPlan, format: PlanFormat, pool: Pool, offer: Offer) -> list[Mutation]:
  """Every plan that a single mutation makes of one, in the order of steps within each family.

  A field that says nothing more than what would be left, such as the plain subtask, has none.

  Args:
    plan: in `format`, its workers by their ids.
    format: knows the worker of the next lower capacity.
    pool: all workers.
    offer: which of them may be used.
  """
  steps = plan.workflow.steps

  def changed(index: int, step: Step) -> Workflow:
    return Workflow((*steps[:index], step, *steps[index + 1:]))

  def found() -> Iterator[Mutation]:
    for reference in plan.references:
      step = steps[reference.step]
      sees = tuple(earlier for earlier in step.sees if earlier not in reference.opens)
      yield Mutation("dependency", reference.step, reference.span, changed(
          reference.step, replace(step, sees=sees)))
    for index, (step, bare) in enumerate(zip(steps, plan.bare, strict=False)):
      span = plan.spans.get((index, "duty"), plan.spans.get((index, "subtask")))
      if step.subtask != bare:
        yield Mutation("duty", index, span, changed(index, replace(step, subtask=bare)))
    for index, step in enumerate(steps):
      span = plan.spans.get((index, "capacity"), plan.spans.get((index, "worker")))
      lesser = None if span is None else format.lesser(step.worker, pool, offer)
      if lesser is not None:
        yield Mutation("capacity", index, span, changed(index, replace(step, worker=lesser)))

  return list(found())
