"""One letter: multiple choice."""

import re

from conductor_jax.tasks.graders.markers import boxes, last_tagged, without_thinking
from conductor_jax.tasks.task import Grade, GradingError

_WORDS = "answer|option|choice|antwort|réponse|respuesta|risposta|resposta|答案|答え|정답|ответ"
_FILLER = ("therefore|thus|clearly|likely|probably|most|definitely|indeed|simply|hence|option|"
           "choice|letter|answer|la|el|die")
_VERB = r"(?:(?i:is|be|are|ist|est|es|è|é)(?!\w)|[是:：=])"
# Every repetition is bounded: an answer may be any text, and is read on the event loop.
_OPENING = r"[\s*_$(\"'\[{\\]{0,8}(?:(?:text|textbf|mathrm|mathbf)\{)?[\s*_(]{0,8}"
_LETTER = r"(?P<letter>[A-Z])(?![\w'’]|-\w)"
# "B or C", "B/C", "A, B" commit to nothing; "B and C is wrong" does.
_HEDGE = re.compile(
    r"[\s*_$)\]}.]{0,8}(?:(?:/|\bor\b)[\s*_$(]{0,8}[A-Z](?!\w)|"
    r"(?:,|&|\band\b)[\s*_$(]{0,8}[A-Z](?!\w|\s+[a-z]))")

# In order of trust; within one kind the last statement in the text counts.
_STATED = re.compile(
    rf"(?i:\b(?:{_WORDS}))(?:[^\n:：=.]{{0,60}}?[\s*_])?(?:[*_\s]{{0,8}}{_VERB}){{1,4}}"
    rf"(?:[\s*_]{{1,8}}(?i:{_FILLER})\b){{0,4}}{_OPENING}{_LETTER}")
_LOWER = re.compile(
    rf"(?i:\b(?:{_WORDS}))[*_\s]{{0,8}}[:：][\s*_$(]{{0,8}}(?P<letter>[a-z])"
    r"[)*_$.]{0,8}[^\S\n]{0,8}$", re.MULTILINE)
_JUDGED = re.compile(
    rf"(?<![\w'’]){_LETTER}[)*_]{{0,4}}\s{{1,4}}is\s(?:the\s)?(?:correct|right|best)\s"
    "(?:answer|option|choice)")
_BOLD = re.compile(rf"(?:\*\*|__)\(?{_LETTER}[^*\n]{{0,200}}?(?:\*\*|__)")
_ALONE = re.compile(r"[\s*_$(\[\"']*(?P<letter>[A-Za-z])[\s*_$)\]\"'.:]*")
_OPTION_LINE = re.compile(r"^[ \t*_(]{0,8}(?P<letter>[A-Z])[).:][*_]{0,4}(?=\s|$)", re.MULTILINE)
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")


def _of_marked(content: str) -> str | None:
  """The letter inside a box or an `<answer>` tag."""
  content = _WRAPPED.sub(r"\1", content)
  match = _ALONE.fullmatch(content) or _OPTION_LINE.match(content)
  return match["letter"].upper() if match else None


def extract(answer: str, letters: str = "ABCD") -> str | None:
  r"""The letter the answer settles on, None if there is none or it hedges.

  An `<answer>` tag comes first, then `\boxed{}` and statements such as "the answer is C" or
  "Answer: C" whichever is last, then a letter in bold, then a letter that stands alone.
  """
  answer = without_thinking(answer)
  tagged = last_tagged(answer)
  if tagged:
    letter = _of_marked(tagged[1])
    if letter:
      return letter if letter in letters else None
    answer = tagged[1]
  stated = [(start, _of_marked(content), False) for start, content in boxes(answer)]
  stated = [entry for entry in stated if entry[1]]
  for pattern in (_STATED, _LOWER, _JUDGED):
    stated += [
        (match.start("letter"), match["letter"].upper(), bool(_HEDGE.match(answer, match.end())))
        for match in pattern.finditer(answer)]
  if not stated:
    stated = [(match.start(), match["letter"], False) for match in _BOLD.finditer(answer)]
  if not stated:
    lines = [line for line in answer.splitlines() if line.strip()]
    match = _ALONE.fullmatch(answer) or (lines and _ALONE.fullmatch(lines[-1]))
    if match:
      stated = [(0, match["letter"].upper(), False)]
    else:
      # "C. Paris" is an answer; several such lines repeat the options.
      options = list(_OPTION_LINE.finditer(answer))
      if len(options) == 1 and not answer[:options[0].start()].strip():
        stated = [(0, options[0]["letter"], False)]
  if not stated:
    return None
  _, letter, hedged = max(stated)
  return letter if letter in letters and not hedged else None


def grade(reference: str, answer: str, letters: str = "ABCD") -> Grade:
  """Compares the letter the answer settles on.

  Raises:
    GradingError: the reference is not one of the letters.
  """
  if len(reference) != 1 or reference not in letters:
    raise GradingError(f"the reference {reference!r} is not one of the letters {letters}")
  letter = extract(answer, letters)
  if letter is None:
    return Grade(False, None, "The answer settles on no single option (unparsed).")
  if letter == reference:
    return Grade(True, letter, f"The answer is option {letter}, as the reference says.")
  return Grade(False, letter, f"The answer is option {letter}, the reference is {reference}.")
