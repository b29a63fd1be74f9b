"""PyYAML's events of a text, strict and in plain words.

Its scanner and parser run, its constructors do not. What a document may not have ends the scan at
once: anchors, aliases, tags, directives, keys that begin with `?`, and brackets too deep.
"""

from yaml.error import MarkedYAMLError
from yaml.events import Event
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from conductor_jax.workflows.literals import word_at


class Fault(Exception):
  """A document has a fault.

  Attributes:
    index: the character of the document.
    message: what is wrong.
  """

  def __init__(self, index: int, message: str):
    super().__init__(message)
    self.index = index
    self.message = message


def shown(text: str) -> str:
  """A text in double quotes, short and in one line, for a reason."""
  text = text if len(text) <= 40 else f"{text[:37]}..."
  return f'"{text}"' if text.isprintable() else repr(text)


class Events(Reader, Scanner, Parser):
  """The events of a document.

  Args:
    document: the text.
    max_depth: brackets that may be inside one another.
  """

  def __init__(self, document: str, max_depth: int):
    Reader.__init__(self, document)
    Scanner.__init__(self)
    Parser.__init__(self)
    self.document = document
    self._max_depth = max_depth

  def next_event(self) -> Event:
    """Scans as far as the next event.

    Raises:
      Fault: the document has one.
    """
    try:
      return self.get_event()
    except MarkedYAMLError as fault:
      raise _in_plain_words(fault, self.document) from fault
    except (ValueError, OverflowError) as fault:
      # The scanner makes characters of numeric escapes without a look at the number.
      escape = self.document[self.index - 2:self.index + 8]
      raise Fault(self.index - 2, f"there is no character {escape}") from fault

  # These are called where the scanner meets the character, before it looks any further.

  def fetch_alias(self):
    raise Fault(self.index, "an alias (*) is not allowed: put the text in quotes")

  def fetch_anchor(self):
    raise Fault(self.index, "an anchor (&) is not allowed: put the text in quotes")

  def fetch_tag(self):
    raise Fault(self.index, "a tag (!) is not allowed: put the text in quotes")

  def fetch_directive(self):
    raise Fault(self.index, "a directive (%) is not allowed")

  def fetch_key(self):
    raise Fault(self.index, "a question mark cannot begin a key: put the text in quotes")

  def fetch_flow_collection_start(self, token_class):
    # The scanner reads on to see whether all this is a key, much too far where brackets are many.
    if self.flow_level >= self._max_depth:
      raise too_deep(self.index, self._max_depth)
    super().fetch_flow_collection_start(token_class)


def too_deep(index: int, max_depth: int) -> Fault:
  """That a list or map is inside too many others."""
  return Fault(index, f"lists and maps stand more than {max_depth} deep inside one another")


def no_escape(document: str, index: int) -> Fault:
  """That a backslash in double quotes begins nothing."""
  return Fault(index, f"there is no escape {word_at(document, index)}: a backslash in double "
                      "quotes is written \\\\")


def quoted_word(document: str, index: int) -> str:
  """What stands at a place, in quotes."""
  return shown(word_at(document, index)) if index < len(document) else "the end"


def _in_plain_words(fault: MarkedYAMLError, document: str) -> Fault:
  """What the scanner or the parser says, for those who do not know either."""
  problem, index = fault.problem, fault.problem_mark.index
  began = fault.context_mark.index if fault.context_mark else index
  here = quoted_word(document, index)
  if problem.startswith("could not find expected ':'"):
    return Fault(began, f"{quoted_word(document, began)} must be a key with a colon after it")
  if problem.startswith("mapping values are not allowed"):
    return Fault(index, "a colon too many: put the text in quotes, or align the line with its "
                         "neighbours")
  if problem.startswith("sequence entries are not allowed"):
    return Fault(index, "a list's first dash must begin a line")
  if problem.startswith("found character '\\t'"):
    return Fault(index, "a tab may stand in quotes only: use spaces")
  if problem.startswith("found character"):
    return Fault(index, f"a text cannot begin with {document[index]}: put it in quotes")
  if fault.context == "while scanning a block scalar":
    return Fault(index, "after | or > the text must begin on the next line")
  if problem.startswith(("found unknown escape", "expected escape sequence")):
    index = document.rindex("\\", began, index + 1)
    return no_escape(document, index)
  if problem.startswith("found unexpected"):
    return Fault(began, "this quote is never closed")
  if problem.startswith("expected the node content"):
    return Fault(index, f"something is missing before {here}")
  if problem.startswith("expected ','"):
    if index == len(document):
      return Fault(began, "this bracket is never closed")
    return Fault(index, f"a comma or a closing bracket is missing before {here}: a text with one "
                         "of ,?[]{} needs quotes here")
  return Fault(index, f"{here} does not fit what is before it: mend the indentation or the quotes")
