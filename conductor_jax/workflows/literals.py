r"""Python's list displays of integers and strings, scanned one by one and never evaluated.

Blanks, line breaks, comments and one trailing comma are read as Python reads them. What Python
would read with another number of items, or with another text than the one written, is a fault.

Strings have single or double quotes and stand on one line, optionally with the prefix `r`.
  - \\ \' \" \n \t \xhh \uhhhh \Uhhhhhhhh are decoded.
  - \a \b \f \r \v, octal escapes and \N are refused: in practice they are LaTeX (\alpha, \beta,
    \frac, \rho, \vec) about to turn into control characters. A control character that is really
    meant has a numeric escape.
  - \n and \t that begin a LaTeX command (\neq, \times) are refused for the same reason.
  - Any other backslash stays as written, as in Python: \lambda, \( and \d keep their meaning.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_BLANK = re.compile(r"(?:[ \t\r\n\f]|#[^\r\n]*+)*+")
_WORD = re.compile(r"[ \t]*[^\s,\]]{1,24}|.|\Z", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9][\w.]*+")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_STRING = {
    quote: re.compile(rf"[^{quote}\\\r\n]*+(?:\\[^\r\n][^{quote}\\\r\n]*+)*+") for quote in "'\""}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_LATEX = re.compile(
    r"\\(?:nabla|ne|neq|neg|nu|not|notin|nexists|nleq|ngeq|nonumber|newline"
    r"|tan|tanh|tau|text|textbf|textit|textrm|tfrac|therefore|theta|tilde|times|to|top|triangle)"
    r"(?![a-zA-Z]|\.g)")  # "\ne.g." is a line break
_PLAIN = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t"}
_MISREAD = frozenset("abfrvN01234567xuU")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile("[\\\\\"\x00-\x1f\x7f-\x9f\u2028\u2029]")


class ScanError(Exception):
  """Scanning stopped.

  Attributes:
    reason: one sentence.
    position: the character at fault.
    resume: the character from which on the text is unread.
    ended: whether the text ended too early, and nothing else was wrong.
  """

  def __init__(self, reason: str, position: int, *, resume: int | None = None, ended: bool = False):
    super().__init__(reason)
    self.reason = reason
    self.position = position
    self.resume = position if resume is None else resume
    self.ended = ended


@dataclass(frozen=True)
class Item:
  """A value with its place in the text.

  Attributes:
    value: an int, a str, or a list of items.
    start: its first character, a string's prefix and quote included.
    end: the character after its last.
    body: start and end of a string's text between the quotes.
  """

  value: Any
  start: int
  end: int
  body: tuple[int, int] | None = None


Reader = Callable[[str, int, str], Item]


def scan_list(text: str, start: int, name: str, read: Reader) -> Item:
  """Scans a list.

  Args:
    text: the whole text.
    start: where the list's opening bracket stands.
    name: what the list is called in a failure's reason.
    read: scans one item at a position; is told the item's name.

  Raises:
    ScanError: the list has a fault; every function here raises it.
  """
  items = []
  position = start + 1
  while True:
    position = _skip_blanks(text, position, name)
    if text[position] == "]":
      return Item(items, start, position + 1)
    items.append(read(text, position, f"{name}[{len(items)}]"))
    position = _skip_blanks(text, items[-1].end, name)
    if text[position] == ",":
      position += 1
    elif text[position] != "]":
      raise ScanError(f"{name} lacks a comma or bracket before {word_at(text, position)}", position)


def scan_integer(text: str, start: int, name: str) -> Item:
  """Scans a plain decimal integer."""
  match = _NUMBER.match(text, start)
  if match is None or not _INTEGER.fullmatch(match[0]):
    raise ScanError(f"{name} must be an integer, got {word_at(text, start)}", start)
  return Item(int(match[0]), start, match.end())


def scan_string(text: str, start: int, name: str) -> Item:
  """Scans a string literal."""
  raw = text[start] in "rR"
  quote = text[start + raw:start + raw + 1]
  if quote not in _STRING:
    raise ScanError(f"{name} must be a string, got {word_at(text, start)}", start)
  first = start + raw + 1
  end = _STRING[quote].match(text, first).end()
  if text[end:end + 1] != quote:
    if end + text.startswith("\\", end) == len(text):
      raise ScanError(f"the text ends inside {name}", len(text), ended=True)
    raise ScanError(f"{name} has a line break before its closing quote", start, resume=end)
  if end == first and text.startswith(quote, end + 1):
    raise ScanError(f"{name} must be in single or double quotes, got triple quotes", start)

  def decoded(match: re.Match) -> str:
    character = _decoded(match)
    if character is None:
      raise ScanError(
          f"{name} has the escape {word_at(match.string, match.start())}:"
          " a backslash that is meant as one is written \\\\",
          first + match.start(), resume=end)
    return character

  value = text[first:end] if raw else _ESCAPE.sub(decoded, text[first:end])
  if _SURROGATE.search(value):
    raise ScanError(f"{name} has a lone surrogate, which is no character", start, resume=end)
  return Item(value, start, end + 1, body=(first, end))


def quoted(value: str) -> str:
  """The literal that `scan_string` reads as `value`.

  Raises:
    ValueError: the value has a lone surrogate.
  """
  if _SURROGATE.search(value):
    raise ValueError(f"a lone surrogate cannot be written: {value!r}")

  def escaped(match: re.Match) -> str:
    character = match[0]
    if character in '\\"':
      return "\\" + character
    short = {"\n": "\\n", "\t": "\\t"}.get(character)
    # A line break before "abla" must not read as LaTeX.
    if short and not _LATEX.match(short + value[match.end():match.end() + 12]):
      return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

  return f'"{_ESCAPED.sub(escaped, value)}"'


def word_at(text: str, position: int) -> str:
  """What stands at a position, short and in one line, for a failure's reason."""
  word = _WORD.match(text, position)[0].strip(" \t") or "the end of the text"
  return word if word.isprintable() else repr(word)


def _skip_blanks(text: str, position: int, name: str) -> int:
  position = _BLANK.match(text, position).end()
  if position == len(text):
    raise ScanError(f"the text ends inside {name}", position, ended=True)
  return position


def _decoded(match: re.Match) -> str | None:
  """What an escape stands for, None if it is refused."""
  code = match[1]
  if len(code) > 1:
    number = int(code[1:], 16)
    return chr(number) if number <= 0x10FFFF else None
  if code in _MISREAD or _LATEX.match(match.string, match.start()):
    return None
  return _PLAIN.get(code, match[0])
