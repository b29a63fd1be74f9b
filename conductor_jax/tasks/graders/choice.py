"""One letter: multiple choice."""

import re

from conductor_jax.tasks.graders.markers import (
    ANSWER,
    IS,
    boxes,
    last_boxes,
    last_tagged,
    without_thinking,
)
from conductor_jax.tasks.task import Grade, GradingError

# Letters that stand for A, B, C, … in other scripts, or look like them.
_LETTERS = {"А": "A", "В": "B", "С": "C", "Е": "E", "أ": "A", "ب": "B", "ج": "C", "د": "D",
            **{chr(0xFF21 + i): chr(65 + i) for i in range(26)}}
_OTHER_SCRIPT = re.compile(rf"(?<![^\W{''.join(_LETTERS)}])[{''.join(_LETTERS)}](?!\w)")
_WORDS = rf"{ANSWER}|option|choice|opción|opção|opzione|选项|選択肢|вариант"
_FILLER = ("therefore|thus|clearly|likely|probably|most|definitely|indeed|simply|hence|option|"
           "choice|letter|answer|la|el|die")
# Every repetition is bounded: an answer may be any text, and is read on the event loop.
_OPENING = r"[\s*_$(（\"'\[{\\]{0,8}(?:(?:text|textbf|mathrm|mathbf)\{)?[\s*_(]{0,8}"
_LETTER = r"(?P<letter>[A-Z])(?![\w'’]|-\w)"
# "B or C", "B/C", "A, B" commit to nothing; "B and C is wrong" does.
_HEDGE = re.compile(
    r"[\s*_$)\]}.]{0,8}(?:(?:/|\bor\b)[\s*_$(]{0,8}[A-Z](?!\w)|"
    r"(?:,|&|\band\b)[\s*_$(]{0,8}[A-Z](?!\w|\s+[a-z]))")
_SEVERAL = re.compile(r"[\s(]*[A-Z][\s)]*(?:(?:[,/&;]|and|or)[\s(]*[A-Z][\s)]*)+")

# In order of trust; within one kind the last statement in the text counts.
_STATED = re.compile(
    rf"(?i:(?<![A-Za-z])(?:{_WORDS}))[\"'`]?(?:[^\n:：=.]{{0,60}}?(?:[\s*_]|(?=[:：])))?"
    rf"(?:[*_\s]{{0,8}}{IS}){{1,4}}(?:[\s*_]{{1,8}}(?i:{_FILLER})\b){{0,4}}{_OPENING}{_LETTER}")
_LOWER = re.compile(
    rf"(?i:(?<![A-Za-z])(?:{_WORDS}))(?:[*_\s]{{0,8}}[:：]|\s(?i:is))[\s*_$(]{{0,8}}(?P<letter>[a-z])"
    r"[)*_$.]{0,8}[^\S\n]{0,8}$", re.MULTILINE)
_JUDGED = re.compile(
    rf"(?<![\w'’]){_LETTER}[)*_]{{0,4}}\s{{1,4}}is\s(?:the\s)?(?:correct|right|best)\s"
    "(?:answer|option|choice)")
_PICKED = re.compile(
    r"(?<![A-Za-z])(?:(?i:pick|choose|select|go with|going with|opt for|it is|it['’]s|it must be)"
    rf"\s|故选|应选|选择|选)\s?(?:(?i:option|choice|answer|letter)\s)?[:：]?{_OPENING}{_LETTER}")
_RIGHT = re.compile(
    rf"(?<![\w'’]){_LETTER}[)*_]{{0,4}}\s{{1,4}}is\s(?:the\s)?(?:correct|right|answer)(?=[\s.,!*]|$)")
_CONCLUDED = re.compile(
    rf"(?i:\b(?:therefore|thus|hence|so))[,:]?\s(?:(?i:option|choice|answer|letter)\s)?{_OPENING}"
    rf"{_LETTER}[)*_$.]{{0,8}}[^\S\n]{{0,8}}$", re.MULTILINE)
_EITHER = re.compile(r"(?<!\w)[A-Z]\W{1,6}(?:or|and)\W{1,4}$|(?<!\w)[A-Z]\s?[/&,]\W{0,3}$")
_DENIED = re.compile(r"(?:\bnot|\bnever|n['’]t|\bcannot)\s{1,4}$")
_BOLD = re.compile(rf"(?:\*\*|__)\(?{_LETTER}[^*\n]{{0,200}}?(?:\*\*|__)")
_ALONE = re.compile(r"[\s*_$(\[\"']*(?P<letter>[A-Za-z])[\s*_$)\]\"'.:。]*")
_OPTION_LINE = re.compile(r"^[ \t*_(]{0,8}(?P<letter>[A-Z])[).:][*_]{0,4}(?=\s|$)", re.MULTILINE)
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boldsymbol|bf|rm)\s*\{([^{}]*)\}")


def _of_marked(content: str) -> tuple[str | None, bool]:
  """The letter inside a box or an `<answer>` tag, and whether there are several."""
  content = _WRAPPED.sub(r"\1", _WRAPPED.sub(r"\1", content)).replace("\\ ", " ").strip()
  if _SEVERAL.fullmatch(content):
    return content[0], True
  match = _ALONE.fullmatch(content) or _OPTION_LINE.match(content)
  return (match["letter"].upper() if match else None), False


def _matches(answer: str, *patterns: re.Pattern) -> list[tuple[int, str, bool]]:
  """Place and letter of each statement, and whether it names several letters."""
  return [(match.start("letter"), match["letter"].upper(),
           bool(_HEDGE.match(answer, match.end())) or pattern in (_JUDGED, _RIGHT) and bool(
               _EITHER.search(answer, max(0, match.start() - 16), match.start())))
          for pattern in patterns for match in pattern.finditer(answer)
          if not _DENIED.search(answer, max(0, match.start() - 12), match.start())]


def extract(answer: str, letters: str = "ABCD") -> str | None:
  r"""The letter the answer settles on, None if there is none or it hedges.

  An `<answer>` tag comes first, then `\boxed{}` and statements such as "the answer is C" or
  "Answer: C" whichever is last, then "I pick C" and "C is correct", then a letter in bold, then a
  letter that stands alone.
  """
  answer = _OTHER_SCRIPT.sub(lambda match: _LETTERS[match[0]], without_thinking(answer))
  tagged = last_tagged(answer)
  if tagged:
    letter, several = _of_marked(tagged[1])
    if letter:
      return letter if letter in letters and not several else None
    answer = tagged[1]
  boxed = boxes(answer)
  stated = [(start, *_of_marked(content)) for start, content in boxed]
  if len(beside := {_of_marked(content)[0] for content in last_boxes(answer)} - {None}) > 1:
    stated.append((boxed[-1][0] + 1, min(beside), True))
  stated = [entry for entry in stated if entry[1]]
  stated += _matches(answer, _STATED, _LOWER, _JUDGED)
  # "Answer: I think …"
  stated = [entry for entry in stated if entry[1] != "I" or "I" in letters]
  stated = stated or [entry for entry in _matches(answer, _PICKED, _RIGHT, _CONCLUDED)
                      if entry[1] in letters]
  if not stated:
    stated = [(match.start(), match["letter"], False) for match in _BOLD.finditer(answer)]
  if not stated:
    plain = _WRAPPED.sub(r"\1", answer)
    lines = [line for line in plain.splitlines() if line.strip()]
    match = _ALONE.fullmatch(plain) or (lines and _ALONE.fullmatch(lines[-1]))
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
