r"""What an answer states: a number, a list, a set, an interval, an equation, words.

Lists, brackets and relations are told apart here, and every expression in them is read by
math-verify's parser by itself, so that a part that cannot be read is never dropped: the whole is
refused.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

import sympy
from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig

from conductor_jax.tasks.graders import units
from conductor_jax.tasks.graders.latex import FUNCTIONS, cleaned, without_thousands_commas
from conductor_jax.tasks.graders.spelling import Unreadable, explicit
from conductor_jax.tasks.graders.values import (
    Based,
    Brackets,
    Collection,
    Grid,
    NumberSet,
    Ratio,
    Relation,
    Scalar,
    SetOperation,
    Value,
    Verbatim,
    Words,
)

_MAX_CHARACTERS = 600
_CONVERSION = ConversionConfig(lowercase_symbols=False)
_RELATION = re.compile(r"=|<|>|\\(?:le|ge|ne|in|notin|approx|equiv|to|subset|subseteq)(?![A-Za-z])")
_UNION = re.compile(r"\\cup(?![A-Za-z])|(?<=[)\]])\s*U\s*(?=[(\[])")
_SET_OPERATION = re.compile(r"\\(?:setminus|backslash|cap)(?![A-Za-z])|\\(?=\\?\{)")
_NUMBER_SETS = {r"\mathbb{R}": "R", r"\mathbb{Z}": "Z", r"\mathbb{N}": "N", r"\mathbb{Q}": "Q",
                r"\mathbb{C}": "C", r"\emptyset": "empty", r"\{\}": "empty", r"\{ \}": "empty"}
_OPENING = re.compile(r"\\\{|[(\[{]|\\begin\{[a-z]*\}|\\l(?:floor|ceil)(?![a-z])")
_CLOSING = re.compile(r"\\\}|[)\]}]|\\end\{[a-z]*\}|\\r(?:floor|ceil)(?![a-z])")
_MATRIX = re.compile(
    r"\\begin\{([pbBvV]?(?:small)?matrix|array)\}(?:\{[^{}]*\})?(.*)\\end\{\1\}", re.DOTALL)
_BOTH = re.compile(r"\\(pm|mp)(?![A-Za-z])")
_SEPARATOR = re.compile(r"[,;]|\\\\")
_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
          "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16}
_BASED = re.compile(
    r"\(?\s*([0-9A-F]+)\s*\)?\s*_\s*\{?\s*(?:([0-9]+)|\\text\{\s*([a-z]+)\s*\})\s*\}?")
_PLAIN = re.compile(r"([+-]?)\s*([0-9]+)(?:\.([0-9]+))?")
_PLAIN_FRACTION = re.compile(r"([+-]?)\s*\\frac\{\s*([0-9]+)\s*\}\{\s*([0-9]+)\s*\}")
_TEXT_UNIT = re.compile(
    r"(?:(?:\\cdot|/|\s)*\\text\{[^{}]*\}\s*(?:\^\s*\{?\s*-?[0-9]\s*\}?)?)+$")
_WORD_UNIT = re.compile(r"(?<=[0-9})!%])(\s*)([A-Za-z][A-Za-z /.]*?(?:\s*\^\{?[0-9]\}?)?)\s*$")
_DEGREES = re.compile(r"\^\{\\circ\}\s*(?:\\text\{\s*)?([CF]?)(?:\s*\})?$")
_PERCENT = re.compile(r"\s*\\?%$")
_PERCENT_WORDS = frozenset(("percent", "pct", "percentage"))
_UNIT_WORDS = frozenset(("square", "cubic", "per")) | _PERCENT_WORDS
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# Words behind a number that say more than what it counts.
_NOT_A_UNIT = frozenset((
    "not no never isn't wrong incorrect false nor plus minus times than more less half least most "
    "approximately about is are was equals to mod if when where because but for unless except"
    ).split())


def _top_level(latex: str) -> Iterator[int]:
  """The positions outside of all brackets."""
  depth, position = 0, 0
  while position < len(latex):
    for pattern, step in ((_OPENING, 1), (_CLOSING, -1)):
      if match := pattern.match(latex, position):
        depth += step
        if depth < 0:
          raise Unreadable(f"there is a {match[0]} too many")
        position = match.end()
        break
    else:
      if not depth:
        yield position
      position += 2 if latex[position] == "\\" and latex[position + 1:position + 2] in "\\|" else 1
  if depth:
    raise Unreadable("a closing bracket is missing")


def _split(latex: str, separator: re.Pattern) -> tuple[list[str], list[str]]:
  """The parts between separators outside of brackets, and the separators."""
  parts, found, start = [], [], 0
  for position in _top_level(latex):
    if position >= start and (match := separator.match(latex, position)):
      parts.append(latex[start:position].strip())
      found.append(match[0].strip())
      start = match.end()
  return [*parts, latex[start:].strip()], found


def _matching(latex: str, opening: int) -> int:
  """The position behind the bracket that closes the one at `opening`."""
  depth, position = 0, opening
  while position < len(latex):
    for pattern, step in ((_OPENING, 1), (_CLOSING, -1)):
      if match := pattern.match(latex, position):
        depth += step
        position = match.end()
        if not depth:
          return position
        break
    else:
      position += 1
  return -1


class _Reading:
  """Reads one text; the arguments are those of `read`."""

  def __init__(self, symbols: frozenset[str], lone_units: bool):
    self._symbols = symbols
    self._lone_units = lone_units

  def listing(self, latex: str) -> Value:
    parts = [part for part in _split(latex, _SEPARATOR)[0] if part]
    if not parts:
      raise Unreadable("there is nothing in it")
    if len(parts) == 1:
      return self.item(parts[0])
    return Collection(self._flat(parts))

  def _flat(self, parts: list[str]) -> tuple[Value, ...]:
    items = []
    for part in parts:
      value = self.item(part)
      items += value.items if isinstance(value, Collection) and _BOTH.search(part) else [value]
    return tuple(items)

  def item(self, latex: str) -> Value:
    if _BOTH.search(latex) and not latex.startswith((r"\{", "(", "[")):
      return Collection(tuple(
          self.item(_BOTH.sub(lambda match, signs=signs: signs[match[1]], latex))
          for signs in ({"pm": "+", "mp": "-"}, {"pm": "-", "mp": "+"})))
    for reader in (self._relation, self._set_operation, self._ratio, self._brackets, self._grid,
                   self._words, self._based):
      if (value := reader(latex)) is not None:
        return value
    return self.scalar(latex)

  def _relation(self, latex: str) -> Value | None:
    sides, operators = _split(latex, _RELATION)
    if not operators:
      return None
    if "" in sides:
      raise Unreadable(f"a side of {operators[0]} is missing")
    named = set(operators) <= {"=", r"\in", r"\approx"}
    values = []
    for position, side in enumerate(sides):
      last = position == len(sides) - 1
      try:
        value = self.listing(side)
      except Unreadable:
        if not named or last or re.search(r"[.?!]|\\n(?:eg|ot)(?![a-z])", side):
          raise
        value = Words(side)  # it names what the last side states
      if isinstance(value, Words) and not last and _NOT_A_UNIT & set(
          re.findall("[a-z']+", value.text.lower())):
        raise Unreadable("its words may deny it")
      values.append(value)
    return Relation(tuple(values), tuple(operators))

  def _set_operation(self, latex: str) -> Value | None:
    for pattern in (_UNION, _SET_OPERATION):
      parts, operators = _split(latex, pattern)
      if operators:
        name = r"\cup" if pattern is _UNION else r"\cap" if "cap" in operators[0] else r"\setminus"
        return SetOperation(name, tuple(self.item(part) for part in parts))
    return None

  def _ratio(self, latex: str) -> Value | None:
    parts, colons = _split(latex, re.compile(":"))
    if not colons:
      return None
    return Ratio(tuple(self.scalar(part) for part in parts), _compact(latex))

  def _brackets(self, latex: str) -> Value | None:
    if latex in _NUMBER_SETS:
      return NumberSet(_NUMBER_SETS[latex])
    opening = re.match(r"\\\{|[(\[{]", latex)
    if not opening or _matching(latex, 0) != len(latex):
      return None
    closing = r"\}" if latex.endswith(r"\}") else latex[-1]
    inner = latex[opening.end():-len(closing)].strip()
    if opening[0] == r"\{" and re.search(r"\||\\mid|:", inner):
      return Verbatim(_compact(latex))
    parts = _split(inner, _SEPARATOR)[0]
    if "" in parts:
      raise Unreadable("a value is missing in its brackets")
    if opening[0] == r"\{":
      return Collection(self._flat(parts))
    if len(parts) == 1 or opening[0] == "{":
      return self.listing(inner)
    return Brackets(opening[0], closing, tuple(self.item(part) for part in parts))

  def _grid(self, latex: str) -> Value | None:
    match = _MATRIX.fullmatch(latex)
    if not match or match[1][0] in "vV" or _matching(latex, 0) != len(latex):
      return None
    rows = [row.strip() for row in re.split(r"\\\\(?:\[[^\]]*\])?", match[2])]
    return Grid(tuple(tuple(self.item(entry.strip()) for entry in row.split("&"))
                      for row in rows if row and row != r"\hline"))

  def _words(self, latex: str) -> Value | None:
    text = " ".join(re.sub(r"\\text\{([^{}]*)\}", r" \1 ", latex).split())
    wrapped = re.fullmatch(r"[(\[]?\s*\\text\{[^{}]*[A-Za-z][^{}]*\}\s*[)\]]?", latex)
    plain = re.fullmatch(r"[^\W\d_][^\W\d_' -]*", text) and len(text) > 2
    return Words(text) if wrapped or plain else None

  def _based(self, latex: str) -> Value | None:
    match = _BASED.fullmatch(latex)
    if not match:
      return None
    base = int(match[2]) if match[2] else _BASES.get(match[3])
    if base is None:
      raise Unreadable(f"{match[3]} is no base")
    return Based(match[1].lstrip("0") or "0", base)

  def scalar(self, latex: str) -> Scalar:
    number, unit, scale = self._without_unit(latex.strip())
    percent = bool(_PERCENT.search(number)) or unit in _PERCENT_WORDS
    number = _PERCENT.sub("", number).strip()
    if percent and not re.fullmatch(r"[-+]?\s*(?:[0-9.]+|\\frac\{[0-9]+\}\{[0-9]+\})", number):
      raise Unreadable("its percent sign may belong to a part of it")
    if not number:
      raise Unreadable("there is no number in it")
    match = _PLAIN.fullmatch(number)
    if match:
      value = sympy.Rational(f"{match[1]}{match[2]}.{match[3] or 0}")
      places = len(match[3]) if match[3] else None
      digits = len((match[2] + (match[3] or "")).lstrip("0"))
    else:
      value, places, digits = _expression(number), None, 0
    if scale:
      value, places = sympy.Mul(value, sympy.Integer(10) ** scale, evaluate=False), None
    return Scalar(value, places, digits, percent, "" if percent else unit)

  def _without_unit(self, latex: str) -> tuple[str, str, int]:
    """The expression without what it counts or measures, that unit, and a power of ten."""
    if match := _DEGREES.search(latex):
      if not any(rf"\{name}" in latex for name in FUNCTIONS):
        return latex[:match.start()], f"degree{match[1]}", 0
      return latex, "", 0
    match = _TEXT_UNIT.search(latex)
    spaced = True
    if match:
      unit = match[0]
    else:
      match = _WORD_UNIT.search(latex)
      if not match or self._symbols & set(match[2]):
        return latex, "", 0
      spaced, unit = bool(match[1]), match[2]
      words = re.findall("[A-Za-z]+", unit)
      known = all(units.is_unit(word) or word in _UNIT_WORDS for word in words)
      long = len(words[0]) > 1 or self._lone_units and spaced
      if not (known and long or spaced and all(len(word) > 3 for word in words)):
        return latex, "", 0
    unit = re.sub(r"\\text\{([^{}]*)\}|\\cdot", r"\1 ", unit)
    unit = re.sub(r"\s+(?=\^)|\s+$", "", unit).strip()
    words = re.findall("[a-z']+", unit.lower())
    if not latex[:match.start()].strip():
      raise Unreadable("there is no number before its words")
    if _NOT_A_UNIT & set(words) or len(words) > 6:
      raise Unreadable(f"its words {unit!r} may change what it says")
    if self._symbols & set(re.findall(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])", unit)):
      raise Unreadable(f"{unit!r} may be a factor or a unit")
    scale = _SCALES.get(words[0], 0) if words else 0
    if set(words[1:]) & set(_SCALES):
      raise Unreadable(f"its words {unit!r} do not say how many")
    return latex[:match.start()].strip(), unit, scale


def _compact(latex: str) -> str:
  return re.sub(r"[\s$]+|\\text|[{}]", "", latex)


@lru_cache(4096)
def _expression(latex: str) -> sympy.Expr:
  """One expression, parsed."""
  match = _PLAIN_FRACTION.fullmatch(latex)
  if match and int(match[3]):
    return sympy.Rational(int(match[1] + match[2]), int(match[3]))
  spelled = explicit(without_thousands_commas(latex))
  try:
    value = latex2sympy(
        spelled, is_real=None, normalization_config=None, conversion_config=_CONVERSION,
        convert_degrees=r"\circ" in spelled)
  except Exception as fault:  # the parser raises nothing more special
    raise Unreadable("it is no expression that the parser knows") from fault
  if not isinstance(value, sympy.Expr):
    raise Unreadable("it is no single expression")
  return value


def read(text: str, symbols: frozenset[str] = frozenset(), grouped: bool = True,
         lone_units: bool = False) -> Value:
  """Reads the statement of a result, without the words around it.

  Args:
    text: LaTeX, with or without its delimiters, or plain mathematics, or a few words.
    symbols: the symbols of the reference; a letter among them is a factor and never a unit.
    grouped: whether commas between groups of three digits group them (58,500), outside of brackets,
      rather than part a list.
    lone_units: whether a letter behind a number and a space may be a unit (5 m), rather than a
      factor.

  Raises:
    Unreadable: it is none of the kinds of `Value`, or something in it would be lost.
  """
  latex = cleaned(text)
  if not latex:
    raise Unreadable("there is nothing in it")
  if len(latex) > _MAX_CHARACTERS:
    raise Unreadable("it is too long for a result")
  latex = latex.rpartition(r"\implies")[2].strip()
  latex = re.sub(r"^(?:=|\\approx(?![A-Za-z]))\s*(?=.)", "", latex)
  if r"\ldots" in latex:
    return Verbatim(_compact(latex))
  if grouped and not re.match(r"\\\{|[(\[]", latex):
    latex = without_thousands_commas(latex)
  return _Reading(symbols, lone_units).listing(latex)
