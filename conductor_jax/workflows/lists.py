"""The three-list format of RL Conductor: a strict parser for the reward, and its inverse.

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
steps. "all" means every earlier step, so nothing on the first.
"""

import re
from dataclasses import dataclass
from typing import Literal

from conductor_jax.workflows import literals
from conductor_jax.workflows.literals import Item, ScanError
from conductor_jax.workflows.workflow import ParsedPlan, ParseFailure, Step, Workflow

Access = Literal["binary", "positions"]

NAMES = ("model_id", "subtasks", "access_list")

_HEAD = rf"({'|'.join(NAMES)})[ \t]*=[ \t]*(?=\[)"
_MARKS = r"^[ \t]*#[^\r\n]*|</?think>"
_ANYWHERE = re.compile(rf"{_MARKS}|(?<![\w.\"']){_HEAD}", re.MULTILINE)
# After a fault among strings no one knows what is quoted: only a fresh line starts a list.
_FRESH_LINE = re.compile(rf"{_MARKS}|^[ \t]*{_HEAD}", re.MULTILINE)
_AFTER_LIST = re.compile(r"[ \t\r\f]*+(?:\n|\Z|;|#[^\r\n]*+|(?=`|</|<\|))")


@dataclass
class _Triple:
  """The lists of one triple so far, None for one with a fault, and the first fault among them."""

  lists: list[Item | None]
  failure: ParseFailure | None = None


def parse_lists(
    completion: str, *, workers: int, max_steps: int, access: Access = "binary"
) -> ParsedPlan | ParseFailure:
  """Parses the last complete triple of a completion; takes time linear in its length.

  Args:
    completion: what the policy wrote.
    workers: how many workers are on offer; ids run from 0 to workers - 1.
    max_steps: the most steps allowed.
    access: which entries `access_list` may have.

  Returns:
    The plan, or one sentence on why there is none. The spans are those of the integer for
    "worker", of the characters between the quotes (escapes as written) for "subtask", and of the
    whole entry, brackets or quotes included, for "sees".
  """
  found = _last_triple(completion)
  if isinstance(found, ParseFailure):
    return found
  try:
    return _plan(found, workers, max_steps, access)
  except ScanError as fault:
    return ParseFailure(fault.reason, fault.position)


def render_lists(workflow: Workflow, access: Access = "binary") -> str:
  """Writes a workflow in its canonical text, which parses back to it.

  Raises:
    ValueError: a blank subtask or one with a lone surrogate, or a `sees` that is neither nothing
      nor everything under binary access.
  """
  entries = []
  for index, step in enumerate(workflow.steps):
    if not step.subtask.strip():
      raise ValueError(f"subtask {index} is empty")
    if access == "positions" or not step.sees:
      entries.append(f"[{', '.join(map(str, step.sees))}]")
    elif step.sees == tuple(range(index)):
      entries.append('["all"]')
    else:
      raise ValueError(f"binary access cannot express that step {index} sees {step.sees}")
  return "\n".join((
      f"model_id = [{', '.join(str(step.worker) for step in workflow.steps)}]",
      f"subtasks = [{', '.join(literals.quoted(step.subtask) for step in workflow.steps)}]",
      f"access_list = [{', '.join(entries)}]"))


def _last_triple(text: str) -> list[Item] | ParseFailure:
  """Finds the last complete triple; a failure if it has a fault, or if there is none."""
  verdict: list[Item] | ParseFailure | None = None
  note: ParseFailure | None = None  # why the last unfinished triple is none
  triple: _Triple | None = None
  pattern, position = _ANYWHERE, 0
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
    if name == NAMES[0]:
      triple = _Triple([])
    expected = NAMES[len(triple.lists)] if triple else NAMES[0]
    if name != expected:
      triple = None
      note = ParseFailure(f"{expected} should come before {name}", match.start(1))
      continue
    pattern = _ANYWHERE
    try:
      scanned, position = _scan(text, position, name)
      triple.lists.append(scanned)
    except ScanError as fault:
      triple.failure = note = triple.failure or ParseFailure(fault.reason, fault.position)
      if fault.ended:
        break
      triple.lists.append(None)
      position = fault.resume
      pattern = _FRESH_LINE if name == "subtasks" else _ANYWHERE
    if len(triple.lists) == len(NAMES):
      verdict = triple.failure or triple.lists
      triple = None
  if verdict is not None:
    return verdict
  if triple is not None and triple.failure is None:
    found = len(triple.lists)
    return ParseFailure(f"no {NAMES[found]} = [...] follows {NAMES[found - 1]}", len(text))
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


def _plan(lists: list[Item], workers: int, max_steps: int, access: Access) -> ParsedPlan:
  """Checks the values of a triple.

  Raises:
    ScanError: on the first value that is not allowed.
  """
  count = len(lists[0].value)
  for name, scanned in zip(NAMES[1:], lists[1:], strict=True):
    if len(scanned.value) != count:
      raise ScanError(
          f"{name} has {len(scanned.value)} entries but model_id has {count}", scanned.start)
  if not 1 <= count <= max_steps:
    raise ScanError(f"the plan has {count} steps, allowed are 1 to {max_steps}", lists[0].start)
  steps, spans = [], {}
  rows = zip(*(scanned.value for scanned in lists), strict=True)
  for index, (worker, subtask, entry) in enumerate(rows):
    if not 0 <= worker.value < workers:
      raise ScanError(
          f"model_id[{index}] is {worker.value}, but the workers are 0 to {workers - 1}",
          worker.start)
    if not subtask.value.strip():
      raise ScanError(f"subtasks[{index}] is empty", subtask.start)
    steps.append(Step(worker.value, subtask.value, _sees(entry, index, access)))
    spans[index, "worker"] = (worker.start, worker.end)
    spans[index, "subtask"] = subtask.body
    spans[index, "sees"] = (entry.start, entry.end)
  return ParsedPlan(Workflow(tuple(steps)), spans)


def _sees(entry: Item, index: int, access: Access) -> tuple[int, ...]:
  """The earlier steps that an access entry opens."""
  value = entry.value if isinstance(entry.value, str) else [item.value for item in entry.value]
  if value in ("all", ["all"]):
    return tuple(range(index))
  if value == []:
    return ()
  shown = repr(value)
  shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
  named = f"access_list[{index}]"
  if access == "binary":
    raise ScanError(f'{named} must be [], "all" or ["all"], got {shown}', entry.start)
  if isinstance(value, str) or any(isinstance(reference, str) for reference in value):
    raise ScanError(f'{named} must be [], "all" or a list of steps, got {shown}', entry.start)
  if any(not 0 <= reference < index for reference in value) or len(set(value)) != len(value):
    raise ScanError(f"{named} may name distinct earlier steps only, got {shown}", entry.start)
  return tuple(sorted(value))
