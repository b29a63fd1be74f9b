"""Finds the program in an answer, and completes it with the beginning that its task gave.

Nothing is compiled here: a compiler can be made to crash, and this is the run's own process. Every
search is linear in the text's length.
"""

import re
import textwrap
from typing import NamedTuple

from conductor_jax.tasks.graders.markers import last_tagged, without_thinking

# A fence opens with its language, as `python`, `{.python}` or `python title="a.py"`.
_FENCE = re.compile(
    r"^([ \t]{0,12})(`{3,}|~{3,})[ \t]*\{?[. ]{0,2}([\w+#-]{0,30})([^\n`]{0,200})$", re.MULTILINE)
_PYTHON = {"python", "python2", "python3", "py", "py3", "pypy", "pypy3", "ipython", "ipython3"}
_MARKDOWN = {"md", "markdown"}
# Lines that begin a program, and others that prose does not have.
_BEGINNING = re.compile(
    r"^(?:from [\w.]{1,100} import |import \w|def \w{1,100}\(|async def \w|class \w|@\w|#!)",
    re.MULTILINE)
_STATEMENT = re.compile(
    r"^(?:for \w.{0,200} in .{0,200}:[ \t]*(?:#|$)|while .{1,200}:[ \t]*(?:#|$)|"
    r"(?:el)?if .{1,200}:[ \t]*(?:#|$)|else:|try:|except\b.{0,100}:|with .{1,200}:[ \t]*$|"
    r"\w{1,50}(?:, ?\w{1,50}){0,20} ?[-+*/%|&^]?= ?\S|\w[\w.]{0,100}\(|return\b|[)\]}#])",
    re.MULTILINE)
_READS_INPUT = re.compile(r"\binput\(|\bstdin\b|\bopen\(0|\bfileinput\b")
_FUTURE = re.compile(
    r"^from __future__ import (?:[^\n(]{1,200}|\([^)]{1,200}\))$", re.MULTILINE)


class _Block(NamedTuple):
  language: str
  content: str


def _blocks(text: str) -> list[_Block]:
  """The fenced blocks of a text; its end closes an open one, and blocks of Markdown are entered."""
  blocks, opening = [], None
  for fence in _FENCE.finditer(text):
    if opening is None:
      opening = fence
    elif (fence[2].startswith(opening[2]) and not fence[3] and not fence[4].strip()
          # One that is further in stands in what is quoted, such as a docstring.
          and len(fence[1].expandtabs()) < len(opening[1].expandtabs()) + 4):
      blocks.append(_block(opening, text[opening.end() + 1:fence.start()]))
      opening = None
  if opening is not None:
    blocks.append(_block(opening, text[opening.end() + 1:]))
  return [inner for block in blocks for inner in block]


def _block(opening: re.Match, content: str) -> list[_Block]:
  language, indent = opening[3].lower(), len(opening[1])
  if language in _MARKDOWN or not language and len(opening[2]) > 3:
    inner = _blocks(content)
    if inner:
      return inner
  if indent:  # of a list, whose items are indented
    content = re.sub(rf"^[ \t]{{1,{indent}}}", "", content, flags=re.MULTILINE)
  return [_Block(language, content)]


def defines(program: str, name: str) -> bool:
  """Whether a program defines a function, or a method, of this name."""
  return bool(re.search(
      rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{re.escape(name)}[ \t]*\(|"
      rf"^{re.escape(name)}[ \t]*(?::[^=\n]{{1,200}})?=(?!=)", program, re.MULTILINE))


def extract_program(answer: str, function: str | None = None) -> str | None:
  """The program that an answer settles on, None if there is none.

  Of the fenced blocks of Python the last counts, or the last that defines `function`, or that reads
  its input where there is none to define: examples of use may follow. Blocks that do not name their
  language count where no block does. In an `<answer>` tag that holds a program only that is looked
  at. A text without fences is the program if it reads like one.
  """
  text = without_thinking(answer.replace("\r\n", "\n").replace("\ufeff", ""))
  tagged = last_tagged(text)
  for part in ([tagged[1]] if tagged else []) + [text]:
    blocks = [block for block in _blocks(part) if block.content.strip()]
    named = [block.content for block in blocks if block.language in _PYTHON]
    found = named + [block.content for block in blocks if block.language == ""]
    suited = [content for content in found if (
        defines(content, function) if function else _READS_INPUT.search(content))]
    if found:
      return (suited or named or found)[-1]
    if not _FENCE.search(part) and (program := _unfenced(part, function)):
      return program
  return None


def _unfenced(text: str, function: str | None) -> str | None:
  """The program in a text without fences: from where it begins, and without prose at its end."""
  lines = text.strip("\n").split("\n")
  if function and lines[0][:1] in (" ", "\t") and lines[0].strip():
    return "\n".join(lines)  # the rest of a function
  if not (_BEGINNING.search(text) or re.search(r"^print\(", text, re.MULTILINE)):
    return None
  first = next((number for number, line in enumerate(lines)
                if _BEGINNING.match(line) or _STATEMENT.match(line)), 0)
  last = len(lines)
  while last > first and not (lines[last - 1][:1] in (" ", "\t") and lines[last - 1].strip()
                              or _BEGINNING.match(lines[last - 1])
                              or _STATEMENT.match(lines[last - 1])):
    last -= 1
  return "\n".join(lines[first:last])


def without_body(beginning: str) -> str:
  """The beginning of a program, whose last function does nothing."""
  return f"{beginning.rstrip()}\n    pass\n"


def completed(program: str, beginning: str, function: str) -> str:
  """A program behind the beginning that its task gave: imports, and what is to be completed.

  One that defines the function replaces what the beginning has of it. One that does not is the rest
  of the function's body, unless it is a program of another kind.
  """
  futures = "".join(f"{line}\n" for line in _FUTURE.findall(program))  # they stand at the top
  program = _FUTURE.sub("", program)
  if not defines(program, function):
    body = _body(program)
    if body is not None:
      return f"{futures}{beginning.rstrip()}\n{body}"
  elif re.search(r"^class Solution\b", program, re.MULTILINE) and not re.search(
      rf"^(?:(?:async[ \t]+)?def[ \t]+)?{re.escape(function)}\b", program, re.MULTILINE):
    program = f"{program.rstrip()}\n\n{function} = Solution().{function}\n"
  return f"{futures}{without_body(beginning)}\n{program}"


def _body(program: str) -> str | None:
  """A program as the body of a function, indented by four; None if it is none."""
  lines = [re.sub(r"^\t+", lambda tabs: "    " * len(tabs[0]), line)
           for line in program.strip("\n").split("\n")]
  indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
  if not indents or indents[0]:
    text = "\n".join(lines)
    return textwrap.indent(textwrap.dedent(text), "    ") if indents and min(indents) else text
  rest = indents[1:]
  if rest and min(rest) and (not lines[0].rstrip().endswith(":") or rest[0] > min(rest)):
    return "\n".join([" " * min(rest) + lines[0], *lines[1:]])  # its first indent was lost
  if _BEGINNING.search(program) and not re.search(r"^(?:return|yield)\b", program, re.MULTILINE):
    return None
  return "\n".join(f"    {line}" for line in lines)
