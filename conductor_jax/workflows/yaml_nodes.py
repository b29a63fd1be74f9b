"""A strict reader of one YAML document that keeps the place of everything in it.

Every scalar is text: `yes` and `1.0` stay what they are, and an empty value, `~` and `null` are the
empty text. Refused are a second document, keys that are no text or are there twice, characters that
only some readers take for a line break, escapes that are rather LaTeX, and what `yaml_events` says.
"""

import re
from dataclasses import dataclass, field

from yaml.events import (
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    MappingStartEvent,
    ScalarEvent,
    StreamEndEvent,
)

from conductor_jax.workflows import literals
from conductor_jax.workflows.yaml_events import (
    Events,
    Fault,
    no_escape,
    quoted_word,
    shown,
    too_deep,
)

_BREAK = re.compile(r"\r\n|\r|\n")
# Control characters, lone surrogates, U+0085, U+2028, U+2029, and the byte order mark.
_REFUSED = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_NULL = ("", "~", "null", "Null", "NULL")


class YamlError(Exception):
  """A text does not hold the document that it should.

  Attributes:
    reason: one sentence, which begins with "line L, column C: ", both counted from 1.
    position: the character at fault.
  """

  def __init__(self, text: str, position: int, message: str):
    line, begins = 1, 0
    for found in _BREAK.finditer(text, 0, position):
      line, begins = line + 1, found.end()
    self.reason = f"line {line}, column {position - begins + 1}: {message}"
    self.position = position
    super().__init__(self.reason)


@dataclass(frozen=True)
class ScalarNode:
  """A text.

  Attributes:
    value: the text.
    start: its first character, a quote or the `|` or `>` of a block included.
    end: the character after its last.
    body: start and end of the text alone, escapes as written: between the quotes, or from the first
      character of a block that is no blank to the end of its last line that is not blank.
    style: the character that begins it, ' " | or >; empty where it has no quotes.
  """

  value: str
  start: int
  end: int
  body: tuple[int, int]
  style: str = ""


@dataclass(frozen=True)
class ListNode:
  """A list.

  Attributes:
    items: in order.
    start: its bracket or its first dash.
    end: the character after its bracket or its last item.
  """

  items: tuple["Node", ...]
  start: int
  end: int


@dataclass(frozen=True)
class MapNode:
  """A map.

  Attributes:
    pairs: keys and values in order, the keys distinct.
    start: its brace or its first key.
    end: the character after its brace or its last value.
  """

  pairs: tuple[tuple[ScalarNode, "Node"], ...]
  start: int
  end: int


Node = ScalarNode | ListNode | MapNode


def plain_value(node: Node) -> str | list | dict:
  """What a node holds, without the places."""
  if isinstance(node, ScalarNode):
    return node.value
  if isinstance(node, ListNode):
    return [plain_value(item) for item in node.items]
  return {key.value: plain_value(value) for key, value in node.pairs}


def read_yaml(
    text: str, start: int = 0, end: int | None = None, *, max_characters: int = 16384,
    max_depth: int = 8, max_nodes: int = 4000) -> Node:
  """Reads the document that a part of a text is; takes time linear in the text's length.

  Args:
    text: the whole text. All places are characters of it.
    start: where the document begins.
    end: the character after its last, None for the end of the text.
    max_characters: of the document.
    max_depth: lists and maps that may be inside one another.
    max_nodes: texts, lists and maps that there may be.

  Raises:
    YamlError: the document has a fault.
  """
  document = text[start:end]
  try:
    if len(document) > max_characters:
      raise Fault(max_characters, f"the document has {len(document)} characters, "
                                   f"allowed are {max_characters}")
    refused = _REFUSED.search(document, document.startswith("\ufeff"))
    if refused is not None:
      raise Fault(refused.start(), f"the character U+{ord(refused[0]):04X} cannot stand here")
    return _read(Events(document, max_depth), start, max_depth, max_nodes)
  except Fault as fault:
    raise YamlError(text, start + fault.index, fault.message) from fault


@dataclass
class _Open:
  """A list or map whose end has not come."""

  start: int
  is_map: bool
  parts: list[Node] = field(default_factory=list)
  keys: set[str] = field(default_factory=set)

  @property
  def needs_key(self) -> bool:
    return self.is_map and len(self.parts) % 2 == 0

  def node(self, end: int) -> Node:
    if not self.is_map:
      return ListNode(tuple(self.parts), self.start, end)
    return MapNode(tuple(zip(self.parts[::2], self.parts[1::2], strict=True)), self.start, end)


def _read(events: Events, offset: int, max_depth: int, max_nodes: int) -> Node:
  """Builds the only document's node, its places moved by `offset`."""
  events.next_event()  # of the stream
  if isinstance(events.next_event(), StreamEndEvent):
    raise Fault(0, "the document is empty")
  opened: list[_Open] = []
  root, count = None, 0
  while root is None:
    event = events.next_event()
    index = event.start_mark.index
    if isinstance(event, CollectionEndEvent):
      last = opened.pop()
      # Without brackets the event stands before whatever comes next.
      has_bracket = event.end_mark.index > index
      node = last.node(offset + event.end_mark.index if has_bracket else last.parts[-1].end)
    else:
      count += 1
      if count > max_nodes:
        raise Fault(index, f"the document has more than {max_nodes} texts, lists and maps")
      is_key = bool(opened) and opened[-1].needs_key
      if isinstance(event, CollectionStartEvent):
        if is_key:
          raise Fault(index, "a key must be text, and no list or map")
        if len(opened) >= max_depth:
          raise too_deep(index, max_depth)
        opened.append(_Open(offset + index, isinstance(event, MappingStartEvent)))
        continue
      node = _scalar(event, events.document, offset)
      if is_key:
        if node.value in opened[-1].keys:
          raise Fault(index, f"the key {shown(node.value)} is there twice")
        opened[-1].keys.add(node.value)
    if opened:
      opened[-1].parts.append(node)
    else:
      root = node
  if root == ScalarNode("", root.start, root.end, (root.start, root.end)):
    raise Fault(root.start - offset, "the document is empty")
  _check_end(events)
  return root


def _check_end(events: Events) -> None:
  """Refuses what follows the document's node."""
  explicit = events.next_event().explicit
  try:
    event = events.next_event()
  except Fault as fault:
    if explicit:
      raise Fault(fault.index, "two documents, but one is allowed") from fault
    following = quoted_word(events.document, fault.index)
    raise Fault(fault.index, f"{following} follows the end of the document") from fault
  if isinstance(event, DocumentStartEvent):
    raise Fault(event.start_mark.index, "two documents, but one is allowed")


def _scalar(event: ScalarEvent, document: str, offset: int) -> ScalarNode:
  start, end, style = event.start_mark.index, event.end_mark.index, event.style or ""
  value, body = event.value, (start, end)
  if not style and value in _NULL:
    value = ""
  elif style in ("'", '"'):
    body = (start + 1, end - 1)
    if _SURROGATE.search(value):
      raise Fault(start, "half of a surrogate pair is no character: write \\U and eight digits")
    if style == '"':
      _refuse_latex(document, *body)
  elif style:
    body = _block_body(document, start, end)
    end = body[1]
  return ScalarNode(
      value, offset + start, offset + end, (offset + body[0], offset + body[1]), style)


def begins_latex(escape: str, rest: str) -> bool:
  """Whether an escape in double quotes is rather meant as the beginning of a LaTeX command.

  As in `literals`: `\\frac` holds no form feed. What is really meant has a numeric escape.

  Args:
    escape: the character after the backslash.
    rest: the twelve characters that follow it.
  """
  if escape in "nt":
    # There is where `quoted` has a numeric escape.
    value = {"n": "\n", "t": "\t"}[escape] + rest
    return not literals.quoted(value).startswith(f'"\\{escape}')
  return escape in "0abefrvLNP_"


def _refuse_latex(document: str, start: int, end: int) -> None:
  """Refuses LaTeX in a text in double quotes."""
  for found in _ESCAPE.finditer(document, start, end):
    if begins_latex(found[1], document[found.end():min(end, found.end() + 12)]):
      raise no_escape(document, found.start())


def _block_body(document: str, start: int, end: int) -> tuple[int, int]:
  """Where the text of a block scalar stands, `start` at its header."""
  header = _BREAK.search(document, start, end)
  first = header.end() if header else end
  text = document[first:end]
  begins = first + len(text) - len(text.lstrip(" \r\n"))
  last = first + len(text.rstrip(" \r\n"))
  if begins > last:
    return first, first
  line = _BREAK.search(document, last, end)
  return begins, line.start() if line else end
