"""The list format of RL Conductor: a strict parser for the reward, and its inverse.

A completion reasons freely, then assigns three lists of equal length:

    model_id = [2, 5]
    subtasks = ["Solve the task.", "Check the answer above."]
    access_list = [[], ["all"]]

`literals` says what a list and a string may hold. Nothing is evaluated and nothing repaired.

Which triple counts. The last complete one: three lists in this order, each closed by its bracket,
with any text between them. A fault inside the last complete triple is the verdict; no earlier draft
replaces it. A triple that the end of the text cuts off is not complete. Text between <think> and
</think> is ignored, as is everything before a </think> that nothing opens and after a <think> that
nothing closes; inside a string the tags are plain text. So are assignments on a comment line.

Where a list ends. Its line ends with it, so that `[0] * 3` is not read as `[0]`. A comment, a
semicolon, a backtick or a closing tag may follow.

Access. "binary": each entry is [], "all" or ["all"]. "positions": also a list of distinct earlier
steps. "all" means every earlier step, so nothing on the first. With access "none" there is no
access_list and no step sees another, and without subtasks there are none of these: what is said of
three lists then holds for those that are left.

Later rounds. Where there is an answer of an earlier round, "all" opens it too, on every step, and
empty lists leave it as it is.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from conductor_jax.workflows import literals
from conductor_jax.workflows.literals import Item, ScanError
from conductor_jax.workflows.workflow import (
    PLAIN_SUBTASK,
    ParsedPlan,
    ParseFailure,
    Step,
    Workflow,
)

Access = Literal["binary", "positions", "none"]


@dataclass(frozen=True)
class PlanFormat:
  """What plans are made of.

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

  @cached_property
  def heads(self) -> tuple[re.Pattern, re.Pattern]:
    """What finds the beginning of a list: anywhere, and on a fresh line only."""
    head = rf"({'|'.join(self.names)})[ \t]*=[ \t]*(?=\[)"
    return tuple(re.compile(rf"{_MARKS}|{before}{head}", re.MULTILINE)
                 for before in (r"(?<![\w.\"'])", r"^[ \t]*"))


_MARKS = r"^[ \t]*#[^\r\n]*|</?think>"
_AFTER_LIST = re.compile(r"[ \t\r\f]*+(?:\n|\Z|;|#[^\r\n]*+|(?=`|</|<\|))")


@dataclass
class _Triple:
  """The lists of a plan so far, None for one with a fault, and the first fault among them."""

  lists: list[Item | None]
  failure: ParseFailure | None = None


def parse_lists(
    completion: str, format: PlanFormat, *, workers: Collection[int], previous: bool = False
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
  found = _last_triple(completion, format)
  if isinstance(found, ParseFailure):
    return found
  try:
    return _plan(dict(zip(format.names, found, strict=True)), format, workers, previous)
  except ScanError as fault:
    return ParseFailure(fault.reason, fault.position)


def render_lists(workflow: Workflow, format: PlanFormat, *, previous: bool = False) -> str:
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


def _subtask(index: int, step: Step, format: PlanFormat) -> str:
  if not step.subtask.strip():
    raise ValueError(f"subtask {index} is empty")
  if not format.subtasks and step.subtask != PLAIN_SUBTASK:
    raise ValueError(f"without subtasks step {index} can have none of its own: {step.subtask!r}")
  return literals.quoted(step.subtask)


def _entry(index: int, step: Step, format: PlanFormat, previous: bool) -> str:
  everything = tuple(range(index))
  if step.sees == everything and step.sees_previous == previous and (index or previous):
    if format.access != "none":
      # Steps are named where they can be.
      return '["all"]' if format.access == "binary" or previous else str(list(step.sees))
  elif not step.sees_previous and (format.access == "positions" or not step.sees):
    return str(list(step.sees))
  raise ValueError(f"{format.access} access cannot express that step {index} sees {step.sees}"
                   f"{' and the answer before' * step.sees_previous}")


def _last_triple(text: str, format: PlanFormat) -> list[Item] | ParseFailure:
  """Finds the last complete triple; a failure if it has a fault, or if there is none."""
  names = format.names
  # After a fault among strings no one knows what is quoted: only a fresh line starts a list.
  anywhere, fresh_line = format.heads
  verdict: list[Item] | ParseFailure | None = None
  note: ParseFailure | None = None  # why the last unfinished triple is none
  triple: _Triple | None = None
  pattern, position = anywhere, 0
  while (match := pattern.search(text, position)) is not None:
    position = match.end()
    name = match[1]
    if match[0] == "<think>":
      end = text.find("</think>", position)
      if end < 0:
        note = ParseFailure("the text ends inside <think>", match.start())
        break
      position = end + len("</think>")
    elif match[0] == "</think>":
      verdict = triple = None
      note = ParseFailure("no lists follow </think>", position)
    if name is None:
      continue
    if name == names[0]:
      triple = _Triple([])
    expected = names[len(triple.lists)] if triple else names[0]
    if name != expected:
      triple = None
      note = ParseFailure(f"{expected} should come before {name}", match.start(1))
      continue
    pattern = anywhere
    try:
      scanned, position = _scan(text, position, name)
      triple.lists.append(scanned)
    except ScanError as fault:
      triple.failure = note = triple.failure or ParseFailure(fault.reason, fault.position)
      if fault.ended:
        break
      triple.lists.append(None)
      position = fault.resume
      pattern = fresh_line if name == "subtasks" else anywhere
    if len(triple.lists) == len(names):
      verdict = triple.failure or triple.lists
      triple = None
  if verdict is not None:
    return verdict
  if triple is not None and triple.failure is None:
    found = len(triple.lists)
    return ParseFailure(f"no {names[found]} = [...] follows {names[found - 1]}", len(text))
  return note or ParseFailure("there is no model_id = [...]", len(text))


def _scan(text: str, start: int, name: str) -> tuple[Item, int]:
  """Scans `name`'s list; returns it and the end of what may follow it on its line."""
  read = {
      "model_id": literals.scan_integer, "subtasks": literals.scan_string,
      "access_list": _scan_access}[name]
  scanned = literals.scan_list(text, start, name, read)
  after = _AFTER_LIST.match(text, scanned.end)
  if after is None:
    following = literals.word_at(text, scanned.end)
    raise ScanError(f"{name} must end its line, but {following} follows it", scanned.end)
  return scanned, after.end()


def _scan_access(text: str, start: int, name: str) -> Item:
  """Scans an access entry: a string, or a list of strings and integers."""
  if text[start] in "'\"":
    return literals.scan_string(text, start, name)
  if text[start] != "[":
    raise ScanError(f'{name} must be a list or "all", got {literals.word_at(text, start)}', start)

  def scan_reference(text: str, start: int, name: str) -> Item:
    scan = literals.scan_string if text[start] in "'\"" else literals.scan_integer
    return scan(text, start, name)

  return literals.scan_list(text, start, name, scan_reference)


def _plan(
    lists: dict[str, Item], format: PlanFormat, workers: Collection[int], previous: bool
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
  steps, spans = [], {}
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
    steps.append(Step(worker.value, PLAIN_SUBTASK if subtask is None else subtask.value,
                      sees, sees_previous))
  return ParsedPlan(Workflow(tuple(steps)), spans)


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
