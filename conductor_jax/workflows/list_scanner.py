"""Finds the lists of a plan in a text.

Which triple counts. The last complete one: three lists in this order, each closed by its bracket,
with any text between them. A fault inside the last complete triple is the verdict; no earlier draft
replaces it. A triple that the end of the text cuts off is not complete. Text between <think> and
</think> is ignored, as is everything before a </think> that nothing opens and after a <think> that
nothing closes; inside a string the tags are plain text. So are assignments on a comment line.

Where a list ends. Its line ends with it, so that `[0] * 3` is not read as `[0]`. A comment, a
semicolon, a backtick or a closing tag may follow.
"""

import functools
import re
from dataclasses import dataclass

from conductor_jax.workflows import literals
from conductor_jax.workflows.literals import Item, ScanError
from conductor_jax.workflows.workflow import ParseFailure

_MARKS = r"^[ \t]*#[^\r\n]*|</?think>"
_AFTER_LIST = re.compile(r"[ \t\r\f]*+(?:\n|\Z|;|#[^\r\n]*+|(?=`|</|<\|))")


@functools.cache
def _heads(names: tuple[str, ...]) -> tuple[re.Pattern, re.Pattern]:
  """What finds the beginning of a list: anywhere, and on a fresh line only."""
  head = rf"({'|'.join(names)})[ \t]*=[ \t]*(?=\[)"
  return tuple(re.compile(rf"{_MARKS}|{before}{head}", re.MULTILINE)
               for before in (r"(?<![\w.\"'])", r"^[ \t]*"))


@dataclass
class _Triple:
  """The lists of a plan so far, None for one with a fault, and the first fault among them."""

  lists: list[Item | None]
  failure: ParseFailure | None = None


def last_lists(text: str, names: tuple[str, ...]) -> list[Item] | ParseFailure:
  """Finds the last complete triple; takes time linear in the text's length.

  Args:
    text: the whole text.
    names: of the lists, in order.

  Returns:
    The lists, or a failure if it has a fault, or if there is none.
  """
  # After a fault among strings no one knows what is quoted: only a fresh line starts a list.
  anywhere, fresh_line = _heads(names)
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
