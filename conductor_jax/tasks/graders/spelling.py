r"""One expression in LaTeX, spelled out for math-verify's parser.

The parser drops or misreads some of what it meets without a word: a root in parentheses, the base
of a number, the product of two numbers side by side (it adds them). What cannot be carried over
whole is refused.
"""

import re

from conductor_jax.tasks.graders.latex import FUNCTIONS, GREEK

_MAX_NESTING = 12
_CONSTANTS = frozenset(("pi", "infty", "hbar", "ell")) | GREEK
_BIG = frozenset(("sum", "prod", "int", "lim"))
_ACCENTS = frozenset(("overline", "bar", "vec", "hat", "widehat", "tilde", "widetilde",
                      "overrightarrow", "mathbb", "mathcal"))
# A letter before parentheses is a function's name; any other is a factor.
_FUNCTION_LETTERS = frozenset("fghFGHPQTVEW")
_ENDS_ARGUMENT = frozenset(("+", "-", ",", "=", r"\cdot", r"\times", r"\to"))
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]+)?|\s+|.", re.DOTALL)


class Unreadable(ValueError):
  """No expression that can be read; the message says why."""


class _Spelling:
  """Rewrites one expression, token by token."""

  def __init__(self, latex: str):
    self._tokens = [token for token in _TOKEN.findall(latex) if not token.isspace()]
    self._next = 0
    self._nesting = 0

  def whole(self) -> str:
    text = self._until(None)
    if self._next < len(self._tokens):
      raise Unreadable(f"there is a {self._tokens[self._next]} too many")
    return text

  def _take(self) -> str:
    if self._next == len(self._tokens):
      raise Unreadable("it breaks off")
    self._next += 1
    return self._tokens[self._next - 1]

  def _peek(self) -> str:
    return self._tokens[self._next] if self._next < len(self._tokens) else ""

  def _argument(self, parentheses: bool = False, digits: bool = False) -> str:
    """What a command takes: a group, or one token; of a number one digit, as TeX does, or all."""
    token = self._take()
    if token == "{":
      return self._until("}")
    if token == "(" and parentheses:
      return self._until(")")
    if token[0].isdigit() and len(token) > 1 and not digits:
      self._tokens[self._next - 1:self._next] = [token[0], token[1:]]
      return token[0]
    if token in (r"\frac", r"\sqrt", r"\binom"):
      return self._command(token)
    if token[1:] in _CONSTANTS or token == r"\circ":
      return token
    if not token.isalnum() and not token[0].isdigit():
      raise Unreadable(f"a {token} stands where a number should")
    return token

  def _command(self, token: str) -> str:
    if token == r"\frac":
      numerator = self._argument(True)
      return rf"\frac{{{numerator}}}{{{self._argument(True)}}}"
    if token == r"\binom":
      n, k = self._argument(), self._argument()
      # The parser would work out a binomial at once, however large.
      return rf"\frac{{({n})!}}{{({k})!\cdot (({n})-({k}))!}}"
    index = ""
    if self._peek() == "[":
      self._take()
      index = self._until("]")
      if len(index) > 3:
        raise Unreadable("a root has no plain index")
    return rf"\sqrt{f'[{index}]' if index else ''}{{{self._argument(True)}}}"

  def _until(self, closing: str | None) -> str:
    """One sequence of terms and factors, up to the closing bracket."""
    self._nesting += 1
    if self._nesting > _MAX_NESTING:
      raise Unreadable("its brackets are nested too deep")
    out: list[str] = []
    factor = False    # whether what stands last can be multiplied by what follows
    name = False      # whether it is a function's name, or a sum's sign
    integer = False   # whether it is a whole number that stands alone
    bars = 0          # | that are open
    functions = 0     # functions whose argument goes on without parentheses
    outer_bars = 0    # | that were open where the first of them began

    def add(text: str, explicit: bool) -> None:
      out.append(rf"\cdot {text}" if factor and explicit else text)

    while True:
      if self._next == len(self._tokens):
        if closing:
          raise Unreadable(f"a {closing} is missing")
        break
      token = self._take()
      if token == closing:
        break
      was_integer, integer = integer, False
      function = token[1:] in FUNCTIONS
      if functions and factor and (
          function or token in _ENDS_ARGUMENT or token == "|" and bars == outer_bars > 0):
        out.append(")" * functions)
        functions = 0
      if token in ("(", "[", "{"):
        inner = self._until({"(": ")", "[": "]", "{": "}"}[token])
        if not inner:
          raise Unreadable("there is nothing in its brackets")
        add(f"({inner})", explicit=not name)
        factor, name = True, False
      elif token in ("^", "_"):
        if not (factor or name) or token == "_" and out[-1].strip()[-1:].isdigit():
          raise Unreadable(f"a {token} stands alone")
        out.append(f"{token}{{{self._argument(token == '^', digits=True)}}}")
      elif token[0].isdigit():
        if factor and out[-1].strip()[-1:].isdigit():
          raise Unreadable("two numbers stand side by side")
        integer = token.isdigit() and not factor
        add(token, explicit=True)
        factor, name = True, False
      elif token == r"\frac" and was_integer:
        fraction = self._command(token)
        parts = re.fullmatch(r"\\frac\{([0-9]+)\}\{([0-9]+)\}", fraction)
        if parts and int(parts[1]) < int(parts[2]):
          out[-1] = f"({out[-1]}+{fraction})"
        else:
          add(fraction, explicit=True)
      elif token in (r"\frac", r"\sqrt", r"\binom"):
        add(self._command(token), explicit=True)
        factor, name = True, False
      elif token.isalpha() and token.isascii():
        out.append(token)
        factor, name = True, token in _FUNCTION_LETTERS and self._peek() == "("
      elif token == r"\circ" and closing == "}":
        out.append(token)
        factor = True
      elif token[1:] in _CONSTANTS:
        out.append(f"{token} ")
        factor, name = True, False
      elif function:
        out.append(f"{token} ")
        while self._peek() in ("^", "_"):
          script = self._take()
          out.append(f"{script}{{{self._argument(script == '^', digits=True)}}}")
        factor, name = False, True
        if self._peek() not in ("(", "["):
          out.append("(")
          outer_bars = outer_bars if functions else bars
          functions += 1
          name = False
      elif token[1:] in _BIG:
        out.append(f"{token} ")
        factor, name = False, True
      elif token[1:] in _ACCENTS:
        out.append(f"{token}{{{self._argument()}}}")
        factor, name = True, False
      elif token in (r"\lfloor", r"\lceil"):
        end = token.replace("l", "r", 1)
        add(f"{token} {self._until(end)}{end} ", explicit=True)
        factor, name = True, False
      elif token == "|":
        closes = bars and factor
        bars += -1 if closes else 1
        if bars > _MAX_NESTING:
          raise Unreadable("its bars are nested too deep")
        add("|", explicit=not closes)
        factor, name = bool(closes), False
      elif token == "!":
        if not factor:
          raise Unreadable("a ! stands alone")
        out.append(token)
      elif token in ("+", "-", "/", ",", "=", r"\cdot", r"\times", r"\to", r"\mod", r"\div"):
        out.append(r"\cdot " if token == r"\times" else token + " " * (len(token) > 1))
        factor = name = False
      else:
        raise Unreadable(f"{token} is not understood here")
    if bars:
      raise Unreadable("a | is missing")
    self._nesting -= 1
    return "".join(out) + ")" * functions


def explicit(latex: str) -> str:
  """Spells out one cleaned expression: braces around arguments, and products between factors.

  Raises:
    Unreadable: something in it would be lost or misread.
  """
  return _Spelling(latex).whole()
