"""The list format of RL Conductor: a strict parser for the reward, and its inverse.

A completion reasons freely, then assigns three lists of equal length:

    model_id = [2, 5]
    subtasks = ["Solve the task.", "Check the answer above."]
    access_list = [[], ["all"]]

`literals` says what a list and a string may hold, `list_scanner` which triple counts. Nothing is
evaluated and nothing repaired.

Access. "binary": each entry is [], "all" or ["all"]. "positions": also a list of distinct earlier
steps. "all" means every earlier step, so nothing on the first. With access "none" there is no
access_list and no step sees another, and without subtasks there are none of these: what is said of
three lists then holds for those that are left.

Later rounds. Where there is an answer of an earlier round, "all" opens it too, on every step, and
empty lists leave it as it is.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from conductor_jax.workers.offer import Offer
from conductor_jax.workers.pool import Pool
from conductor_jax.workflows import literals
from conductor_jax.workflows.format import Access, Example, Family
from conductor_jax.workflows.list_prompt import list_instructions
from conductor_jax.workflows.list_scanner import last_lists
from conductor_jax.workflows.literals import Item, ScanError
from conductor_jax.workflows.workflow import (
    PLAIN_SUBTASK,
    ParsedPlan,
    ParseFailure,
    Reference,
    Step,
    Workflow,
)


@dataclass(frozen=True)
class ListFormat:
  """Plans as lists; a `PlanFormat`.

  Attributes:
    max_steps: the most steps of a plan.
    access: which entries `access_list` may have; "none" leaves it out.
    subtasks: whether there is a list of them. Without it every worker is asked `PLAIN_SUBTASK`.
  """

  max_steps: int = 5
  access: Access = "binary"
  subtasks: bool = True

  @property
  def names(self) -> tuple[str, ...]:
    """Of the lists, in order."""
    return ("model_id", *["subtasks"] * self.subtasks, *["access_list"] * (self.access != "none"))

  def instructions(self, *, later: bool) -> str:
    return list_instructions(self.max_steps, self.access, self.subtasks, later=later)

  def offered(self, numbers: Sequence[int]) -> str:
    return f"Available models: {', '.join(f'Model {number}' for number in numbers)}"

  def example_models(self, example: Example, numbers: Sequence[int]) -> Sequence[int]:
    del numbers
    return example.models

  def parse(
      self, completion: str, offer: Offer, *, previous: bool = False) -> ParsedPlan | ParseFailure:
    plan = parse_lists(completion, self, workers=offer.numbers, previous=previous)
    if isinstance(plan, ParseFailure) or not offer.renumbered:
      return plan
    steps = tuple(
        replace(step, worker=offer.worker(step.worker)) for step in plan.workflow.steps)
    return replace(plan, workflow=Workflow(steps))

  def written(self, example: Example) -> str:
    return f"{example.thought}\n" + render_lists(
        self.fitted(example), self, previous=example.previous is not None)

  def fitted(self, example: Example) -> Workflow:
    """The plan of an example, as far as the format has room for what it says.

    Without subtasks the plain one takes their place; without access lists no step sees another; and
    one who sees all earlier steps under binary access sees the answer before them, too.

    Raises:
      ValueError: a step sees some of the earlier ones only, and access is binary.
    """
    def fit(index: int, step: Step) -> Step:
      subtask = step.subtask if self.subtasks else PLAIN_SUBTASK
      if self.access == "none":
        return Step(step.worker, subtask)
      if self.access == "binary" and step.sees not in ((), tuple(range(index))):
        raise ValueError(f"under binary access step {index} sees all earlier steps or none, and "
                         f"not {list(step.sees)}")
      joined = self.access == "binary" and example.previous is not None and bool(step.sees)
      return Step(step.worker, subtask, step.sees, step.sees_previous or joined)

    return Workflow(tuple(fit(i, step) for i, step in enumerate(example.workflow.steps)))

  def lesser(self, worker: int, pool: Pool, offer: Offer) -> int | None:
    return pool.next_cheaper(worker, offer.workers)

  def rewritten(
      self, completion: str, plan: ParsedPlan, span: tuple[int, int], family: Family,
      mutated: Workflow, offer: Offer) -> str | None:
    start, end = span
    changed, = (index for index, (one, other) in enumerate(
        zip(plan.workflow.steps, mutated.steps, strict=True)) if one != other)
    text = {"dependency": "[]", "duty": mutated.steps[changed].subtask,
            "capacity": str(offer.number(mutated.steps[changed].worker))}[family]
    text = completion[:start] + text + completion[end:]
    found = self.parse(text, offer)
    return text if isinstance(found, ParsedPlan) and found.workflow == mutated else None


def parse_lists(
    completion: str, format: ListFormat, *, workers: Collection[int], previous: bool = False
) -> ParsedPlan | ParseFailure:
  """Parses the last complete triple of a completion; takes time linear in its length.

  Args:
    completion: what the policy wrote.
    format: what plans are made of.
    workers: the numbers of the workers on offer, ascending.
    previous: whether there is an answer of an earlier round.

  Returns:
    The plan, or one sentence on why there is none. The spans are those of the integer for
    "worker", of the characters between the quotes (escapes as written) for "subtask", and of the
    whole entry, brackets or quotes included, for "sees".
  """
  found = last_lists(completion, format.names)
  if isinstance(found, ParseFailure):
    return found
  try:
    return _plan(dict(zip(format.names, found, strict=True)), format, workers, previous)
  except ScanError as fault:
    return ParseFailure(fault.reason, fault.position)


def render_lists(workflow: Workflow, format: ListFormat, *, previous: bool = False) -> str:
  """Writes a workflow in its canonical text, which parses back to it.

  Args:
    workflow: the plan.
    format: what plans are made of.
    previous: whether there is an answer of an earlier round.

  Raises:
    ValueError: the format cannot express it, or a subtask is blank or has a lone surrogate.
  """
  steps = workflow.steps
  lists = {
      "model_id": [str(step.worker) for step in steps],
      "subtasks": [_subtask(index, step, format) for index, step in enumerate(steps)],
      "access_list": [_entry(index, step, format, previous) for index, step in enumerate(steps)]}
  return "\n".join(f"{name} = [{', '.join(lists[name])}]" for name in format.names)


def _subtask(index: int, step: Step, format: ListFormat) -> str:
  if not step.subtask.strip():
    raise ValueError(f"subtask {index} is empty")
  if not format.subtasks and step.subtask != PLAIN_SUBTASK:
    raise ValueError(f"without subtasks step {index} can have none of its own: {step.subtask!r}")
  return literals.quoted(step.subtask)


def _entry(index: int, step: Step, format: ListFormat, previous: bool) -> str:
  everything = tuple(range(index))
  if step.sees == everything and step.sees_previous == previous and (index or previous):
    if format.access != "none":
      # Steps are named where they can be.
      return '["all"]' if format.access == "binary" or previous else str(list(step.sees))
  elif not step.sees_previous and (format.access == "positions" or not step.sees):
    return str(list(step.sees))
  raise ValueError(f"{format.access} access cannot express that step {index} sees {step.sees}"
                   f"{' and the answer before' * step.sees_previous}")


def _plan(
    lists: dict[str, Item], format: ListFormat, workers: Collection[int], previous: bool
) -> ParsedPlan:
  """Checks the values of a triple.

  Raises:
    ScanError: on the first value that is not allowed.
  """
  ids = lists["model_id"]
  count, least = len(ids.value), 0 if previous else 1
  for name, scanned in lists.items():
    if len(scanned.value) != count:
      raise ScanError(
          f"{name} has {len(scanned.value)} entries but model_id has {count}", scanned.start)
  if not least <= count <= format.max_steps:
    raise ScanError(
        f"the plan has {count} steps, allowed are {least} to {format.max_steps}", ids.start)
  steps, spans, references = [], {}, []
  for index in range(count):
    entries = {name: scanned.value[index] for name, scanned in lists.items()}
    worker, subtask = entries["model_id"], entries.get("subtasks")
    if worker.value not in workers:
      raise ScanError(
          f"model_id[{index}] is {worker.value}, but the workers are {_numbers(workers)}",
          worker.start)
    spans[index, "worker"] = (worker.start, worker.end)
    if subtask is not None:
      if not subtask.value.strip():
        raise ScanError(f"subtasks[{index}] is empty", subtask.start)
      spans[index, "subtask"] = subtask.body
    sees, sees_previous = (), False
    if (entry := entries.get("access_list")) is not None:
      sees, sees_previous = _sees(entry, index, format.access, previous)
      spans[index, "sees"] = (entry.start, entry.end)
      if sees:
        references.append(Reference(index, sees, (entry.start, entry.end)))
    steps.append(Step(worker.value, PLAIN_SUBTASK if subtask is None else subtask.value,
                      sees, sees_previous))
  bare = (PLAIN_SUBTASK,) * count if format.subtasks else ()
  return ParsedPlan(Workflow(tuple(steps)), spans, tuple(references), bare)


def _numbers(workers: Collection[int]) -> str:
  if list(workers) == list(range(len(workers))):
    return f"0 to {len(workers) - 1}"
  return ", ".join(map(str, workers))


def _sees(entry: Item, index: int, access: Access, previous: bool) -> tuple[tuple[int, ...], bool]:
  """The earlier steps that an access entry opens, and whether it opens the answer before."""
  value = entry.value if isinstance(entry.value, str) else [item.value for item in entry.value]
  if value in ("all", ["all"]):
    return tuple(range(index)), previous
  if value == []:
    return (), False
  shown = repr(value)
  shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
  named = f"access_list[{index}]"
  if access == "binary":
    raise ScanError(f'{named} must be [], "all" or ["all"], got {shown}', entry.start)
  if isinstance(value, str) or any(isinstance(reference, str) for reference in value):
    raise ScanError(f'{named} must be [], "all" or a list of steps, got {shown}', entry.start)
  if any(not 0 <= reference < index for reference in value) or len(set(value)) != len(value):
    raise ScanError(f"{named} may name distinct earlier steps only, got {shown}", entry.start)
  return tuple(sorted(value)), False
