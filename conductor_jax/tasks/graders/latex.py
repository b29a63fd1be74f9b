r"""LaTeX as people and models write it, made plain for math-verify's parser.

This settles the notation of a whole answer; `spelling.py` then spells out each expression in it.
"""

import re
import unicodedata

_CHARACTERS = str.maketrans({
    "−": "-", "–": "-", "﹣": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ",
    "÷": "/", "∕": "/", "⁄": "/", "π": r"\pi ", "𝜋": r"\pi ", "ϖ": r"\pi ", "∞": r"\infty ",
    "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ",
    "≃": r"\approx ", "∈": r"\in ", "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ",
    "±": r"\pm ", "∓": r"\mp ", "°": r"^{\circ}", "√": r"\surd ", "…": r"\ldots ", "→": r"\to ",
    "⇒": r"\implies ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}",
    "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "⟨": "(", "⟩": ")", "′": "'", "’": "'", "“": "",
    "”": "",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}", "⅕": r"\frac{1}{5}", "⅛": r"\frac{1}{8}", "$": " ", "\u200b": "",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "ℯ": "e", "ⅇ": "e", "ⅈ": "i", "ı": "i", "𝑒": "e",
    "𝑖": "i"})
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")

FUNCTIONS = frozenset((
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh arcsinh "
    "arccosh arctanh arsinh arcosh artanh log ln exp gcd lcm max min det").split())
GREEK = frozenset((
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi "
    "rho varrho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma "
    "Upsilon Phi Psi Omega Pi").split())

_WORDS = "|".join(sorted(FUNCTIONS | GREEK | {"pi", "infty"}, key=len, reverse=True))
_BARE_WORD = re.compile(
    rf"(?<![\\A-Za-z])(?:({_WORDS})|(sqrt)|(?i:infinity|inf))(?![A-Za-z])")
_OLD_FONT = re.compile(r"\{\s*\\(rm|it|bf|sf)(?![A-Za-z])\s*([^{}]*)\}")
_FONT = re.compile(
    r"\\(mathrm|mathit|mathbf|mathsf|mathtt|mathnormal|boldsymbol|bm|operatorname\*?|text|textrm|"
    r"textit|textbf|textsf|textnormal|textup|mbox|hbox|emph|underline|rm|mathop)"
    r"(?:\s*\{([^{}]*)\}|\s+([A-Za-z])(?![A-Za-z]))")
_EMPHASIS = frozenset(("mathbf", "boldsymbol", "bm", "textbf", "emph", "underline"))
_LIST_WORD = re.compile(r"(?:and|or|und|oder|et|ou)", re.IGNORECASE)
_NUMERIC = re.compile(r"[0-9.,+\-/\s%]+")

_ROWS = re.compile(
    r"\\(?:begin|end)\s*\{(?:align|aligned|equation|gather|gathered|split|multline)\*?\}")
_REWRITES = tuple((re.compile(pattern), replacement) for pattern, replacement in (
    (r"\\(?:left|right|middle|[bB]igg?[lrm]?)\s*\.", ""),
    (r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\s*", ""),
    (r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|nonumber|strut|hfill)(?![A-Za-z])",
     " "),
    (r"\\(?:hspace|vspace|phantom|label|tag)\*?\s*\{[^{}]*\}", " "),
    # Digits are grouped by threes with what typesets as a thin gap, and with commas.
    (r"(?<=[0-9])(?:\s*,\s*\\[!,:;]|\{,\}|\\[,!:; ])\s*(?=[0-9]{3}(?![0-9]))", ""),
    (r"(?<![\w.,)}\]])([0-9]{1,3})((?: [0-9]{3})+)(?![\w])",
     lambda match: match[1] + match[2].replace(" ", "")),
    (r"(?<!\\)\\[,:;! ]|~", " "),
    (r"\\q?quad(?![A-Za-z])(?!\s*\\text)", " , "),
    (r"\\q?quad(?![A-Za-z])", " "),
    (r"\\(?:langle|lgroup|lparen)(?![A-Za-z])", "("),
    (r"\\(?:rangle|rgroup|rparen)(?![A-Za-z])", ")"),
    (r"\\(?:lvert|rvert|vert|mid)(?![A-Za-z])", "|"), (r"\\lbrack(?![A-Za-z])", "["),
    (r"\\rbrack(?![A-Za-z])", "]"), (r"\\lbrace(?![A-Za-z])", r"\\{"),
    (r"\\rbrace(?![A-Za-z])", r"\\}"),
    (r"\\(?:leqslant|leqq|leq)(?![A-Za-z])|<=", r"\\le "),
    (r"\\(?:geqslant|geqq|geq)(?![A-Za-z])|>=", r"\\ge "),
    (r"\\neq(?![A-Za-z])|!=|\\not\s*=", r"\\ne "), (r"\\lt(?![A-Za-z])", "<"),
    (r"\\gt(?![A-Za-z])", ">"), (r"==", "="),
    (r"\\(?:simeq|thickapprox|approxeq|cong|sim|doteq)(?![A-Za-z])|~=", r"\\approx "),
    (r"\\(?:Rightarrow|Longrightarrow|rightarrow|iff|Leftrightarrow)(?![A-Za-z])", r"\\implies "),
    (r"\\(?:varnothing|O)(?![A-Za-z])", r"\\emptyset "),
    (r"\\(?:dots|cdots|dotsc|dotsb|dotso|vdots)(?![A-Za-z])|\.\.\.", r"\\ldots "),
    (r"\\(?:imath|jmath)(?![A-Za-z])", " i "), (r"\\(?:uppi|Uppi)(?![A-Za-z])", r"\\pi "),
    (r"\\(?:degree|textdegree)(?![A-Za-z])", r"^{\\circ}"), (r"\^\s*\\circ", r"^{\\circ}"),
    (r"\\(?:lor|vee|land|wedge)(?![A-Za-z])", " , "),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"), (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
    (r"\\bmod(?![A-Za-z])", r"\\mod"), (r"\*\*", "^"), (r"\*", r"\\cdot "),
    (r"(?<![\w}])\.(?=[0-9])", "0."),
    (r"(?<![\w.])([0-9]+(?:\.[0-9]+)?)[eE]([+-]?[0-9]{1,4})(?![\w.])", r"\1\\cdot 10^{\2}"),
))
_MIXED = re.compile(r"(?<![\w./^_)}])([0-9]+)\s+([0-9]+)\s*/\s*([0-9]+)(?![\w.^])")
_PLAIN_THOUSANDS = re.compile(r"(?<![\w.,])[0-9]{1,3}(?:,[0-9]{3})+(?![\w,])")
_REPEATING = re.compile(r"([0-9]*)\.([0-9]*)\\(?:overline|bar|dot)\s*(?:\{([0-9]+)\}|([0-9]))")
_GOING_ON = re.compile(r"([0-9]*)\.([0-9]*?)(?:([0-9])\3{2,}|([0-9]{2,6}?)\4+)\s*\\ldots$")
_ROOT_SIGN = re.compile(r"\\surd\s*(?:([0-9]+(?:\.[0-9]+)?|[A-Za-z]|\\pi)|(?=[({\\]))")


def _font(match: re.Match) -> str:
  font, content = match[1].rstrip("*"), (match[2] or match[3] or "").strip()
  if font in _EMPHASIS or _NUMERIC.fullmatch(content):
    return f" {content} "
  if content in FUNCTIONS:
    return rf"\{content} "
  if content in ("e", "i", r"\pi", r"\infty"):
    return f" {content} "
  if _LIST_WORD.fullmatch(content.strip(" ,;")) or content in (",", ";"):
    return " , "
  after_number = match.string[:match.start()].rstrip()[-1:] in tuple("0123456789)}")
  if len(content) == 1 and font not in ("text", "mbox", "hbox") and not after_number:
    return f" {content} "
  return rf"\text{{{content}}}" if content else " "


def _repeating(match: re.Match) -> str:
  whole, fixed, period = match[1] or "0", match[2], match[3] or match[4]
  numerator = int(whole + fixed + period) - int(whole + fixed)
  return rf"(\frac{{{numerator}}}{{{'9' * len(period)}{'0' * len(fixed)}}})"


def cleaned(latex: str) -> str:
  r"""Settles the notation: fonts, spaces, Unicode's signs, grouped digits, commands of one meaning.

  Words in an upright font that are no mathematics become `\text{…}`.
  """
  latex = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+", lambda m: f"^{{{m[0].translate(_RAISED)}}}", latex)
  latex = re.sub("[₀-₉]+", lambda m: f"_{{{m[0].translate(_LOWERED)}}}", latex)
  latex = unicodedata.normalize("NFKC", latex.replace("\\$", " ").translate(_CHARACTERS))
  latex = _OLD_FONT.sub(r"\\\1{\2}", latex)
  for _ in range(3):  # \mathbf{\text{…}}
    latex = _FONT.sub(_font, latex)
  if _ROWS.search(latex):
    latex = re.sub(r"\\\\|&", " ", _ROWS.sub(" ", latex))  # a chain of equations over several lines
  for pattern, replacement in _REWRITES:
    latex = pattern.sub(replacement, latex)
  latex = _BARE_WORD.sub(
      lambda m: rf"\{m[1]} " if m[1] else r"\surd " if m[2] else r"\infty ", latex)
  latex = re.sub(r"(?<![\\A-Za-z])(?:and|or)(?![A-Za-z])", " , ", latex)
  latex = _ROOT_SIGN.sub(lambda m: rf"\sqrt{{{m[1]}}}" if m[1] else r"\sqrt", latex)
  latex = _GOING_ON.sub(_repeating, _REPEATING.sub(_repeating, latex.rstrip()))
  latex = _MIXED.sub(r"(\1+\\frac{\2}{\3})", latex)
  return re.sub(r"\s+", " ", latex).strip().rstrip(".,;:").strip()


def without_thousands_commas(latex: str) -> str:
  """Joins digits that plain commas group, as in 58,500; in brackets they may be a pair."""
  return _PLAIN_THOUSANDS.sub(lambda m: m[0].replace(",", ""), latex)
