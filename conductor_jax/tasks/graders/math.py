r"""Mathematical equivalence: MATH-500.

math-verify parses and compares. Around it stand repairs of what it loses in parsing, an exact check
of what it takes for equal (it rounds), and one comparison it lacks (over the real domain). It may
hang, so `grade` belongs in a child process: see `process.py`.
"""

import logging
import re

import sympy
from math_verify import parse, verify

from conductor_jax.tasks.graders.markers import boxes, last_tagged, without_thinking
from conductor_jax.tasks.task import GradingError

logging.getLogger("math_verify").setLevel(logging.ERROR)

_TAIL_CHARACTERS = 1000
_BARE_CHARACTERS = 200
_MAX_EXPONENTS = 3  # 2^(2^(2^n)): no reference of a benchmark stacks more
_ROMAN_CONSTANT = re.compile(
    r"\\(?:mathrm|text|operatorname|mathit|rm)\s*(?:\{\s*([ei])\s*\}|\s([ei])(?![A-Za-z]))")
_PADDED_BRACE = re.compile(r"(?<!\\)(\{)\s+|(?<!\\)\s+(\})")
_DELIMITED = re.compile(r"\$\$(.*)\$\$|\$(.*)\$|\\\((.*)\\\)|\\\[(.*)\\\]", re.DOTALL)
_BASE = re.compile(r"[0-9A-F]\s*_\s*\{?\s*([0-9]+)\s*\}?$")
_WORD = re.compile(r"[A-Za-z]{2,}")
_FUNCTIONS = {"sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "pi", "arcsin",
              "arccos", "arctan", "infty"}
_SAMPLES = tuple(sympy.Rational(n, d) for n, d in ((3, 7), (17, 11), (29, 9), (5, 13), (41, 6)))


def _root_braces(latex: str) -> str:
  r"""Rewrites `\sqrt(…)`, which math-verify reads as nothing, to `\sqrt{…}`."""
  start = latex.find(r"\sqrt(")
  while start >= 0:
    opening, depth = start + 5, 0
    for index in range(opening, len(latex)):
      depth += {"(": 1, ")": -1}.get(latex[index], 0)
      if not depth:
        latex = f"{latex[:opening]}{{{latex[opening + 1:index]}}}{latex[index + 1:]}"
        break
    start = latex.find(r"\sqrt(", start + 1)
  return latex


def _repaired(latex: str) -> str:
  """Rewrites what math-verify drops: a roman e or i, a padded brace, a root in parentheses."""
  latex = _ROMAN_CONSTANT.sub(lambda match: f"{{{match[1] or match[2]}}}", latex)
  return _root_braces(_PADDED_BRACE.sub(lambda match: match[1] or match[2], latex))


def _undelimited(text: str) -> str:
  text = text.strip()
  match = _DELIMITED.fullmatch(text)
  if match and "$" not in (inner := next(group for group in match.groups() if group is not None)):
    return inner.strip()
  return text


def _is_bare_expression(text: str) -> bool:
  """Whether the text is an expression without any words or delimiters around it."""
  if len(text) > _BARE_CHARACTERS or "\n" in text or re.search(r"[$?]|\\[(\[]", text):
    return False
  if text.isalpha():
    return True
  words = _WORD.findall(re.sub(r"\\text\s*\{[^{}]*\}|\\[A-Za-z]+", " ", text))
  return bool(text) and all(word in _FUNCTIONS for word in words)


def _tail(text: str) -> str:
  """The last lines, since a long text costs the parser's expressions much time."""
  if len(text) <= _TAIL_CHARACTERS:
    return text
  tail = text[-_TAIL_CHARACTERS:]
  return tail.partition("\n")[2] or tail


def final_expression(answer: str) -> tuple[str, bool]:
  r"""The part of an answer that states the result, and whether it is nothing but that.

  An `<answer>` tag comes first, then the last `\boxed{}`, then a text that is a bare expression.
  """
  answer = without_thinking(answer)
  tagged = last_tagged(answer)
  stated = (tagged[1] if tagged else answer).strip()
  text = _undelimited(stated)
  boxed = boxes(text)
  if boxed:
    return _undelimited(boxed[-1][1]), True
  if tagged and not re.search(r"[A-Za-z]{2,}\s+[A-Za-z]{2,}\s", text):
    return text, True
  whole = text != stated or _is_bare_expression(text)
  return (text, True) if whole else (_tail(text), False)


def _exponents(latex: str) -> int:
  """How many exponents are stacked on one another."""
  deepest, stack = 0, []
  for index, character in enumerate(latex):
    if character == "^":
      deepest = max(deepest, sum(stack) + 1)
    elif character == "{":
      stack.append(latex[:index].rstrip().endswith("^"))
    elif character == "}" and stack:
      stack.pop()
  return deepest


def _is_expression(value) -> bool:
  return isinstance(value, sympy.Expr) and not value.has(sympy.UnevaluatedExpr)


def _close(a: sympy.Expr, b: sympy.Expr) -> bool:
  """Whether two numbers are equal, within 1e-5 of their size where one is a decimal."""
  if a == b:
    return True
  if a.is_Rational and b.is_Rational:
    return False
  tolerance = sympy.Float("1e-5" if a.has(sympy.Float) or b.has(sympy.Float) else "1e-40", 60)
  x, y = a.evalf(60), b.evalf(60)
  if not (x.is_number and y.is_number) or x.has(sympy.nan, sympy.oo, sympy.zoo):
    return False
  size = max(abs(x), abs(y))
  if size < sympy.Float("1e-50", 60):
    return sympy.simplify(a - b) == 0  # far below the digits evaluated: only the exact value tells
  return bool(abs(x - y) <= tolerance * size)


def _ordered_parts(value) -> tuple:
  if isinstance(value, sympy.Interval):  # what (a, b) is read as
    return value.start, value.end
  return value.args if isinstance(value, sympy.Tuple) else ()


def _confirmed(gold, found) -> bool:
  """Checks exactly what math-verify found equal after rounding to 6 decimals or 15 digits."""
  golds, founds = _ordered_parts(gold), _ordered_parts(found)
  if golds and len(golds) == len(founds):
    return all(_confirmed(a, b) for a, b in zip(golds, founds, strict=True))
  if not (_is_expression(gold) and _is_expression(found)):
    return True
  gold, found = gold.doit(), found.doit()
  symbols = sorted(gold.free_symbols | found.free_symbols, key=str)
  if not symbols:
    return _close(gold, found)
  if gold.free_symbols != found.free_symbols:
    return True  # a name is compared as a name: evelyn and e*v*e*l*y*n
  point = dict(zip(symbols, _SAMPLES * len(symbols), strict=False))
  return _close(gold.subs(point), found.subs(point))


def _bases_differ(reference: str, text: str) -> bool:
  """Whether both are numbers with their bases written out, such as 204_5, and the bases differ."""
  bases = [_BASE.search(latex.strip(" .")) for latex in (reference, text)]
  return all(bases) and bases[0][1] != bases[1][1]


def _equal_where_real(gold, found) -> bool:
  """Whether two expressions agree for all positive symbols, and wherever both are real.

  math-verify assumes nothing of a symbol's sign, so √(1/n) and 1/√n differ for it. Positive symbols
  alone would make |x| equal x: the signs sampled below tell those apart.
  """
  if not (_is_expression(gold) and _is_expression(found)):
    return False
  symbols = sorted(gold.free_symbols, key=str)
  if not symbols or gold.free_symbols != found.free_symbols or len(symbols) > 4:
    return False
  gold, found = gold.doit(), found.doit()
  positive = {symbol: sympy.Symbol(f"positive_{i}", positive=True)
              for i, symbol in enumerate(symbols)}
  if sympy.simplify(gold.subs(positive) - found.subs(positive)) != 0:
    return False
  for signs in range(2 ** len(symbols)):
    point = {symbol: _SAMPLES[i] * (-1 if signs >> i & 1 else 1)
             for i, symbol in enumerate(symbols)}
    a, b = gold.subs(point), found.subs(point)
    if (a.is_real or b.is_real) and not _close(a, b):
      return False
  return True


def _parsed(text: str, whole: bool) -> list:
  text = _repaired(text)
  return parse(rf"\boxed{{{text}}}" if whole else text, parsing_timeout=None)


def _same_text(a: str, b: str) -> bool:
  return re.sub(r"\s+|\\[!,;]", "", a) == re.sub(r"\s+|\\[!,;]", "", b)


def grade(reference: str, answer: str) -> tuple[bool, str | None, str]:
  """Compares an answer with the reference. Call it in a process that may be killed.

  Returns:
    The fields of a Grade.

  Raises:
    GradingError: the reference cannot be read.
  """
  reference = _undelimited(reference)
  boxed = boxes(reference)
  if boxed:
    reference = _undelimited(boxed[-1][1])
  gold = _parsed(reference, whole=True)
  if not gold or isinstance(gold[0], str):
    raise GradingError(f"the reference {reference!r} is not a mathematical expression")
  text, whole = final_expression(answer)
  if whole and _same_text(text, reference):
    return True, text, f"The answer {text} is the reference."
  if _exponents(text) > max(_MAX_EXPONENTS, _exponents(reference)):
    return False, text, "The answer stacks exponents too high to be the reference."
  found = _parsed(text, whole)
  if not found:
    return False, None, "The answer holds no expression that can be read (unparsed)."
  extracted = text if whole else str(found[-1])
  if verify(gold, found, timeout_seconds=None):
    correct = _confirmed(gold[0], found[0]) and not _bases_differ(reference, text)
  else:
    correct = _equal_where_real(gold[0], found[0])
  return correct, extracted, (f"The answer {extracted} "
                              f"{'equals' if correct else 'is not'} the reference {reference}.")
