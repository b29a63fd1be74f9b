"""The marks that models set around a final answer; every search is linear in the text's length."""

import re
from collections import deque

ANSWER = (
    "answer|antwort|antwoord|lösung|réponse|respuesta|risposta|resposta|resultado|odpowiedź|jawaban|jibu|"
    "ìdáhùn|答案|答え|正解|정답|답|ответ|الإجابة|الجواب|उत्तर|উত্তর")
IS = r"(?:(?i:is|are|equals|be|ist|lautet|est|es|è|é|adalah|ni)(?!\w)|[是为為は은는=:：])"
# What follows "the answer is", "Answer:" and the like.
_STATEMENT = re.compile(
    rf"(?i:(?<![A-Za-z])(?:{ANSWER}))(?:[^\n:：=.]{{0,60}}?[\s*_])?(?:[*_\s]{{0,8}}{IS}){{1,4}}")
_BETWEEN_BOXES = re.compile(
    r"(?:[\s$,;&]|\\q?quad|\\[,;:!()\[\] ]|and|or|"
    r"\\(?:text|mbox)\s?\{\s{0,4}(?:and|or)\s{0,4}\}){0,40}")
_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_BRACE = re.compile(r"(\\(?:f?boxed|fbox)\s{0,8}\{)|\\.|([{}])", re.DOTALL)


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


def _box_spans(answer: str) -> list[tuple[int, int, int]]:
  """Start of each box whose braces balance, and start and end of what is in it."""
  found, open_braces = [], []
  for brace in _BRACE.finditer(answer):
    if brace[1] or brace[2] == "{":
      open_braces.append(brace)
    elif brace[2] and open_braces:
      opening = open_braces.pop()
      if opening[1]:
        found.append((opening.start(), opening.end(), brace.start()))
  return sorted(found)


def boxes(answer: str) -> list[tuple[int, str]]:
  r"""Start and content of every `\boxed{…}` whose braces balance, in order of their starts."""
  return [(start, answer[inner:end]) for start, inner, end in _box_spans(answer)]


def last_boxes(answer: str) -> list[str]:
  r"""What is in the last `\boxed{…}` that is not empty, and in those beside it, without repeats.

  `\boxed{1} and \boxed{2}` is one statement of two values, `\boxed{1}. No, \boxed{2}` is not.
  """
  every = _box_spans(answer)
  spans = [span for span in every if answer[span[1]:span[2]].strip()]
  if not spans:
    return [""] if every else []
  found: list[str] = []
  following = None
  for start, inner, end in reversed(spans):
    if following is not None and not (
        end < following and _BETWEEN_BOXES.fullmatch(answer, end + 1, following)):
      break
    content = answer[inner:end]
    if content not in found:
      found.insert(0, content)
    following = start
  return found


def behind_boxes(answer: str) -> str:
  """The text behind the last box that is not empty."""
  ends = [end for _, inner, end in _box_spans(answer) if answer[inner:end].strip()]
  return answer[max(ends, default=-1) + 1:]


def last_statement(answer: str) -> str:
  """What follows the last "the answer is …", up to the end of the text; empty if there is none."""
  match = last(_STATEMENT, answer)
  return answer[match.end():] if match else ""


def statements(answer: str) -> list[str]:
  """What follows each "the answer is …", up to the end of the text."""
  return [answer[match.end():] for match in _STATEMENT.finditer(answer)]
