r"""Where an answer states its result, as mathematics.

An `<answer>` tag comes first, then the last `\boxed{}` or a later "the answer is …", then a text
that is an expression and nothing else, then the last "the answer is …", then the last line that
holds mathematics.
"""

import re

from conductor_jax.tasks.graders.markers import (
    behind_boxes,
    last_boxes,
    last_tagged,
    statements,
    without_thinking,
)

_TAIL_CHARACTERS = 1000
_BARE_CHARACTERS = 600
_LINES = 3  # from the end, where the result is looked for without a mark
_DELIMITED = re.compile(r"\$\$(.*)\$\$|\$(.*)\$|\\\((.*)\\\)|\\\[(.*)\\\]", re.DOTALL)
_SEGMENT = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(?!\$)((?:\\.|[^$\\]){1,400})\$|\\\((.{1,400}?)\\\)|\\\[(.{1,400}?)\\\]|"
    r"(\\begin\{(?:align|equation|gather)\*?\}.{1,600}?\\end\{(?:align|equation|gather)\*?\})",
    re.DOTALL)
_BETWEEN = re.compile(r"[\s,;]*(?:(?:and|or|und|oder|et|ou)(?=[\s$\\]))?[\s,;]*")
_COMMAND = re.compile(
    r"\\begin\s*\{array\}\s*\{[a-z|]*\}|\\(?:begin|end)\s*\{[a-z]*\*?\}|"
    r"\\(?:text|mbox|mathrm|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{2,}")
_MATHEMATICAL_WORDS = frozenset((
    "sqrt sin cos tan cot sec csc log ln exp pi arcsin arccos arctan infty infinity theta alpha "
    "beta and or").split())
# Up to three letters are a product, unless they are one of these.
_SHORT_WORDS = frozenset((
    "is it so we an at in of to if be by he no on as my me us up do go am the for not are was has "
    "you yes all any can get got let now our out see use way who why its per may how too but had "
    "his her one two six ten").split())
_BOLD = re.compile(r"\*\*([^*\n]{1,200})\*\*")
_NEGATED = re.compile(
    r"\b(?:not|never|cannot|neither|nor|wrong|incorrect)\b|n['’]t\b", re.IGNORECASE)
_QUESTION = re.compile(
    r"(?:what|which|how|who|where|when|why|find|compute|determine)\b", re.IGNORECASE)
_BOUND = re.compile(
    r"(?:at least|at most|(?:more|less|greater|fewer|larger|smaller) than|up to|between|over|under|"
    r"below|above|almost|nearly)\s*$", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<!\\)[.!?](?=\s|$)|[。！？]|\n")
_COPULA = re.compile(r"\b(?:is|are|equals|be)\b")
_CANDIDATE = re.compile(r"[0-9π}][^.]{0,40}\bor\b[^.]{0,40}$")
# A sentence ends, or says why.
_END = re.compile(
    r"(?<!\\)[.!?](?=\s|$)|[。！？]|\n|;|,(?=\s+(?!and\b|or\b)[a-z]{2,})|"
    r"\s(?:because|since|as|which|so|where|when|if|for|with|by|after|from|that|but)\b")
_NUMBER = r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
_PLAIN = re.compile(
    rf"(?<![\w.^])[-+]?(?:[0-9.,()+\-*/^ ]|sqrt|pi|√|π|×|·){{0,60}}[0-9)π](?:\s?%|!)?|"
    rf"(?<![\w.^]){_NUMBER}")


def undelimited(text: str) -> str:
  """The text without dollar signs or the like around it."""
  text = text.strip()
  match = _DELIMITED.fullmatch(text)
  if match and "$" not in (inner := next(group for group in match.groups() if group is not None)):
    return inner.strip()
  return text


def _is_bare_expression(text: str) -> bool:
  """Whether the text is an expression without any words or delimiters around it."""
  if len(text) > _BARE_CHARACTERS or "\n" in text or re.search(r"(?<!\\)[$?]|\\[(\[]", text):
    return False
  if text.isalpha():
    return True
  words = [word.lower() for word in _WORD.findall(_COMMAND.sub(" ", text))]
  return bool(text) and all(
      word in _MATHEMATICAL_WORDS or len(word) < 4 and word not in _SHORT_WORDS for word in words)


def _tail(text: str) -> str:
  """The last lines."""
  if len(text) <= _TAIL_CHARACTERS:
    return text
  tail = text[-_TAIL_CHARACTERS:]
  return tail.partition("\n")[2] or tail


def final_expression(answer: str) -> tuple[str, bool]:
  r"""The part of an answer that states the result, and whether it is nothing but that.

  Boxes side by side, as in `\boxed{1} and \boxed{2}`, are one list.
  """
  answer = without_thinking(answer)
  tagged = last_tagged(answer)
  stated = (tagged[1] if tagged else answer).strip()
  text = undelimited(stated)
  if boxed := last_boxes(text):
    later = _stated(behind_boxes(text))  # \boxed{5}. No, the answer is 6.
    if later and re.search(r"[0-9\\]", later):
      return later, True
    return ", ".join(map(undelimited, boxed)), True
  if tagged and not re.search(r"[A-Za-z]{2,}\s+[A-Za-z]{2,}\s", text):
    return text, True
  whole = text != stated or _is_bare_expression(text)
  return (text, True) if whole else (_tail(text), False)


def _segments(text: str) -> tuple[str | None, str | None]:
  """The first and the last mathematics between delimiters, those side by side as one list."""
  runs: list[list[re.Match]] = []
  for match in _SEGMENT.finditer(text):
    if runs and _BETWEEN.fullmatch(text, runs[-1][-1].end(), match.start()):
      runs[-1].append(match)
    else:
      runs.append([match])
  joined = [", ".join(next(filter(None, match.groups())).strip() for match in run)
            for run in (runs[:1] + runs[-1:])]
  return (joined[0], joined[-1]) if joined else (None, None)


def _numbers(text: str) -> list[re.Match]:
  return [match for match in _PLAIN.finditer(text) if re.search("[0-9π]", match[0])]


def _in_clause(text: str) -> str | None:
  """The one expression in words that state a result: in delimiters, in bold, or a number."""
  if re.search(r"[0-9$\\]", said := _COPULA.split(text)[-1]):
    text = said  # the largest $n$ is 34
  if (first := _segments(text)[0]) is not None:
    return first
  for bold in _BOLD.findall(text)[:1]:
    if _is_bare_expression(bold := bold.strip(" .:")):
      return bold
  if "\\" in text:
    return _end_of(text)
  numbers = _numbers(text.rpartition("=")[2])
  if len(numbers) != 1 or _BOUND.search(text[:text.rfind("=") + 1 + numbers[0].start()]):
    return None
  return numbers[0][0].strip(" ,")


def _in_line(line: str) -> str | None:
  """The last expression in a line: in delimiters, in bold, at its end, or a number."""
  if line.rstrip(" *_").endswith("?") or _NEGATED.search(line):
    return None
  if (last := _segments(line)[1]) is not None:
    # The line may go on: since $x = 3$ the sum is 15.
    return _end_of(line[[*_SEGMENT.finditer(line)][-1].end():]) or last
  for bold in reversed(_BOLD.findall(line)):
    if _is_bare_expression(bold := bold.strip(" .:")):
      return bold
  if end := _end_of(line):
    return end
  numbers = [] if "\\" in line else _numbers(line)  # one inside of LaTeX is not the result
  if not numbers:
    return None
  before = line[:numbers[-1].start()]
  if _BOUND.search(before) or _CANDIDATE.search(before):
    return None
  return numbers[-1][0].strip(" ,")


def _end_of(text: str) -> str | None:
  """The longest expression at the end of a sentence; None where it is one of several candidates."""
  words = text.strip(" .,*").split(" ")
  for start in range(len(words)):
    end = " ".join(words[start:])
    if re.search(r"[0-9\\π]", end) and _is_bare_expression(end) and (
        end.count("(") == end.count(")")):
      before = " ".join(words[:start]) + " "
      return None if _BOUND.search(before) or _CANDIDATE.search(before) else end
  return None


def stated_sentence(text: str) -> str | None:
  """What follows the last "the answer is …", up to the end of its sentence or its mathematics.

  None where nothing does; one that goes on "not …", or asks a question, does not count.
  """
  for statement in reversed(statements(text)):
    statement = statement.lstrip(" *_\n:")
    if _NEGATED.match(statement) or _QUESTION.match(statement):
      continue
    lead = _SEGMENT.match(statement)
    end = _SENTENCE_END.search(statement, lead.end() if lead else 0)
    return (statement[:end.start()] if end else statement).strip(" *_") or None
  return None


def clause(sentence: str) -> str:
  """The sentence up to where it says why, or more than the result."""
  end = _END.search(sentence)
  return (sentence[:end.start()] if end else sentence).strip(" *_")


def _stated(text: str) -> str | None:
  """The expression that the last "the answer is …" states."""
  sentence = stated_sentence(text)
  if sentence is None:
    return None
  if _SEGMENT.match(sentence):
    return _segments(sentence)[0]
  short = clause(sentence)
  if _is_bare_expression(short):
    return short
  return _in_clause(short) or _in_clause(sentence)


def stated_expression(text: str) -> str | None:
  """The result that a text of words and mathematics states, None where it states none."""
  if sentence := stated_sentence(text):
    return _stated(text) or clause(sentence) or None
  text = _SEGMENT.sub(lambda match: match[0].replace("\n", " "), text)
  lines = [line for line in text.splitlines() if line.strip()]
  for line in reversed(lines[-_LINES:]):
    if found := _in_line(line):
      return found
    if _NEGATED.search(line):
      return None
  return None
