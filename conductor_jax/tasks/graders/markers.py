"""The marks that models set around a final answer; every search is linear in the text's length."""

import re
from collections import deque

_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_BRACE = re.compile(r"(\\f?boxed\s{0,8}\{)|\\.|([{}])", re.DOTALL)


def last(pattern: re.Pattern, text: str) -> re.Match | None:
  """The last match of a pattern."""
  return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def without_thinking(answer: str) -> str:
  """The answer after the end of a leading block of `<think>` reasoning, if there is one."""
  return answer.rpartition("</think>")[2]


def last_tagged(answer: str) -> tuple[int, str] | None:
  """Start and content of the last `<answer>…</answer>`."""
  found, opening = None, None
  for tag in _TAG.finditer(answer):
    if not tag[1]:
      opening = tag
    elif opening:
      found, opening = (opening.start(), answer[opening.end():tag.start()]), None
  return found


def boxes(answer: str) -> list[tuple[int, str]]:
  r"""Start and content of every `\boxed{…}` whose braces balance, in order of their starts."""
  found, open_braces = [], []
  for brace in _BRACE.finditer(answer):
    if brace[1] or brace[2] == "{":
      open_braces.append(brace)
    elif brace[2] and open_braces:
      opening = open_braces.pop()
      if opening[1]:
        found.append((opening.start(), answer[opening.end():brace.start()]))
  return sorted(found)
