"""The text of a specification: where it stands in a completion, how it is written and changed.

Which text is the document. Only what follows the last </think> counts, and nothing from a <think>
on that nothing closes. Where there are code fences, lines of ``` or ```yaml, the document is what
stands in the last one, which the end of the text closes too; otherwise it begins with the last line
that begins with `agents:`, and ends with the text.
"""

import re
from collections.abc import Sequence

from conductor_jax.workflows.spec_schema import Agent, read_agents
from conductor_jax.workflows.yaml_nodes import (
    ListNode,
    MapNode,
    ScalarNode,
    YamlError,
    begins_latex,
    read_yaml,
)

_FENCE = re.compile(r"(?:\A|(?<=[\r\n]))```([\w+-]*)[ \t]*(?:\r\n|\r|\n|\Z)")
_AGENTS = re.compile("(?:\\A\ufeff?|(?<=[\r\n]))agents:")
_DASH = re.compile(r"(?<=[\r\n]) *-(?=[ \r\n])")
_BREAK = re.compile(r"\r\n|\r|\n|\Z")
# What only an escape can say: characters that the reader refuses or changes, and tags that would
# hide a part of the text.
_SPECIAL = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|<(?=/?think>)"
_NEEDS_ESCAPE = re.compile(_SPECIAL)
_ESCAPED = re.compile(f'[\\\\"]|{_SPECIAL}')
_SHORT = {"\\": "\\", '"': '"', "\n": "n", "\t": "t"}


def document_span(text: str) -> tuple[int, int]:
  """Where the document of a completion begins and ends.

  Raises:
    YamlError: there is none.
  """
  closed = text.rfind("</think>")
  first = 0 if closed < 0 else closed + len("</think>")
  last = text.find("<think>", first)
  visible = text[first:last if last >= 0 else None]
  opened, span = None, None
  for fence in _FENCE.finditer(visible):
    if opened is not None and not fence[1]:
      span, opened = _fenced(opened, fence.start(), span), None
    else:
      opened = fence
  if opened is not None:
    span = _fenced(opened, len(visible), span)
  if span is None:
    for found in _AGENTS.finditer(visible):
      span = (found.start(), len(visible))
  if span is not None:
    return first + span[0], first + span[1]
  if last >= 0:
    raise YamlError(text, last, "the text ends inside <think>")
  where = "in the text" if closed < 0 else "after </think>"
  raise YamlError(text, len(text), f"there is no line {where} that begins with agents:")


def _fenced(opened: re.Match, end: int, before: tuple[int, int] | None) -> tuple[int, int] | None:
  """What stands in a fence, or in the one before where this one is of another language."""
  return (opened.end(), end) if opened[1].lower() in ("", "yaml", "yml") else before


def render_spec(agents: Sequence[Agent], fields: tuple[str, ...], max_steps: int) -> str:
  """Writes agents in their canonical text, which reads back as they are.

  Args:
    agents: in order.
    fields, max_steps: as in `specification_schema`.

  Raises:
    ValueError: no specification says this.
  """
  lines = ["agents:"]
  for agent in agents:
    texts = {"name": scalar(agent.name), "role": agent.role, "duty": scalar(agent.duty),
             "capacity": agent.capacity,
             "references": f"[{', '.join(scalar(name, flow=True) for name in agent.references)}]"}
    for place, field in enumerate(fields):
      lines.append(f"{'    ' if place else '  - '}{field}: {texts[field]}")
  text = "\n".join(lines)
  try:
    found = [Agent.of(each) for each in read_agents(text, read_yaml(text), fields, max_steps)]
  except YamlError as fault:
    raise ValueError(f"this cannot be specified: {fault.reason}") from fault
  if found != list(agents):
    raise ValueError(f"agents of {', '.join(fields)} cannot say all of {list(agents)}")
  return text


def scalar(value: str, *, flow: bool = False) -> str:
  """A text as YAML: without quotes where it reads back the same, in quotes otherwise.

  Args:
    value: the text.
    flow: whether it stands in a list in brackets.
  """
  if _NEEDS_ESCAPE.search(value):
    return _double_quoted(value)
  if _reads_plain(value, flow):
    return value
  if "'" in value and '"' not in value and "\\" not in value:
    return _double_quoted(value)
  doubled = value.replace("'", "''")
  return f"'{doubled}'"


def _double_quoted(value: str) -> str:
  def escaped(match: re.Match) -> str:
    code, short = ord(match[0]), _SHORT.get(match[0])
    if short is not None and not begins_latex(short, value[match.end():match.end() + 12]):
      return f"\\{short}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

  return f'"{_ESCAPED.sub(escaped, value)}"'


def _reads_plain(value: str, flow: bool) -> bool:
  """Whether a text without a line break means itself without quotes, here and to this reader."""
  try:
    root = read_yaml(f"key: [{value}]" if flow else f"key: {value}")
  except YamlError:
    return False
  nodes = [node for _, node in root.pairs] if isinstance(root, MapNode) else []
  if flow and len(nodes) == 1 and isinstance(nodes[0], ListNode):
    nodes = nodes[0].items
  return (len(nodes) == 1 and isinstance(nodes[0], ScalarNode) and nodes[0].value == value
          and not nodes[0].style)


def without_item(
    text: str, listed: tuple[int, int], items: Sequence[tuple[int, int]], index: int) -> str:
  """The text without one item of a list of texts.

  An item in brackets goes with its comma, one after a dash with its lines; the only one leaves `[]`
  behind.

  Args:
    text: the whole text.
    listed: start and end of the list.
    items: start and end of the items, quotes left out, in order.
    index: which item.
  """
  start, end = listed
  outer = [_with_quotes(text, item) for item in items]
  if len(items) == 1:
    # After dashes the brackets need more indentation than the key, which dashes do not.
    brackets = "[]" if text[start] == "[" else "  []"
    return text[:start] + brackets + text[end:]
  if text[start] != "[":
    first = _line_start(text, start)
    if index:
      first = _DASH.search(text, outer[index - 1][1]).start()
    return text[:first] + text[_BREAK.search(text, outer[index][1]).end():]
  if index + 1 < len(items):
    return text[:outer[index][0]] + text[outer[index + 1][0]:]
  return text[:outer[index - 1][1]] + text[outer[index][1]:]


def _with_quotes(text: str, span: tuple[int, int]) -> tuple[int, int]:
  start, end = span
  return (start - 1, end + 1) if text[start - 1] in "'\"" else span


def _line_start(text: str, position: int) -> int:
  return max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1
