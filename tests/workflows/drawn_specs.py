"""Specifications in every style that YAML has for the same thing, written without the project."""

from conductor_jax.workflows.roles import ROLES
from conductor_jax.workflows.spec import SpecFormat
from conductor_jax.workflows.spec_schema import Agent
from conductor_jax.workflows.workflow import Step, Workflow

SPEC = SpecFormat(workers=(4, 0, 2))
_WORKER = {"small": 4, "medium": 0, "large": 2}
_NAMES = ("finder", "solver-2", "Prüferin", "e\u0301tude", "数え手", "🧮", "agent 7", "no", "1.0",
          "it's me", 'the "best"', "a:b", "x, y", "null", "#3", "- dash", "true: false")
_WORDS = ("find", "the", "answer", "and", "check", "it", "Größe", "cafe\u0301", "答え", "🧮", "é",
          "10%", "x²", "f(x)=2", "can't", "well-known", "α", "7", "no", "~")
# None of these may stand in a text without quotes.
_ODD = ('"quoted"', "\\frac{1}{2}", "a: b", " #1", "[x]", "{y}", "a, b", "what?", "'tis'", "<b>",
        "- item", "&co", "*bold*", "!now", "%", "@home", "`code`", "| x", "> y", "agents: none")
_BEFORE = (
    "", "\n", "Two agents will do.\n", "I plan:\n\n", "agents: I need two of them.\n\n",
    "<think>\nagents:\n  - name: draft\n</think>\n", "Überlegung 🤔\u2028 und mehr\n",
    "```python\nprint(1)\n```\n", "---\n", "a tab\there and a \x07 bell\n", "</think>",
    "```yaml\nagents: []\n```\nBetter:\n")
_SHORT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


def drawn_spec(generator, format=SPEC):
  """Draws a completion that holds a plan, and what it says.

  Args:
    generator: of numpy.
    format: a `SpecFormat` whose workers are 4, 0 and 2 for small, medium and large.

  Returns:
    The completion; the agents, with their duties as YAML reads them; and the workflow, in which
    every worker is on offer.
  """
  draw = _Draw(generator)
  count = 1 + draw.below(format.max_steps)
  names = [_NAMES[i] for i in generator.permutation(len(_NAMES))[:count]]
  agents, steps, parts = [], [], []
  indentation = " " * draw.of((0, 2, 3))
  for number, name in enumerate(names):
    seen = [i for i in generator.permutation(number) if draw.chance(0.6)]
    role, capacity = draw.of(tuple(ROLES)), draw.of(tuple(_WORKER))
    in_braces = draw.chance(0.15)
    duty, written_duty = draw.text(_duty(draw), indentation + "    ", in_braces, blocks=True)
    column = indentation + "  "
    values = {
        "name": draw.text(name, column + "  ", in_braces)[1],
        "role": draw.text(role, column + "  ", in_braces)[1], "duty": written_duty,
        "capacity": draw.text(capacity, column + "  ", in_braces)[1],
        "references": draw.names([names[i] for i in seen], column, in_braces)}
    values = {key: value for key, value in values.items() if key in format.fields}
    parts.append(draw.agent(values, indentation, in_braces))
    agents.append(Agent(
        name, duty, role if format.roles else None, capacity if format.capacities else None,
        tuple(names[i] for i in seen) if format.references else ()))
    asked = f"{ROLES[role]} {duty.strip()}" if format.roles else duty.strip()
    sees = tuple(sorted(map(int, seen))) if format.references else tuple(range(number))
    steps.append(Step(_WORKER[capacity] if format.capacities else 0, asked, sees))
  completion = draw.around("agents:" + draw.end_of_line() + "".join(parts))
  return completion, tuple(agents), Workflow(tuple(steps))


def _duty(draw):
  words = [draw.of(_WORDS) for _ in range(1 + draw.below(8))]
  if draw.chance(0.4):
    words.insert(draw.below(len(words) + 1), draw.of(_ODD))
  text = " ".join(words).strip()
  return text.replace(" ", "\n", 1) if draw.chance(0.15) else text


class _Draw:
  """Draws layouts; every text ends its line, every line its break."""

  def __init__(self, generator):
    self._generator = generator

  def below(self, count):
    return int(self._generator.integers(count))

  def of(self, options):
    return options[self.below(len(options))]

  def chance(self, share):
    return bool(self._generator.random() < share)

  def end_of_line(self):
    return self.of(("\n",) * 5 + (" \n", "  # name: nobody\n"))

  def text(self, value, column, in_braces, blocks=False):
    """Writes a text whose further lines begin at a column; also what YAML reads, with a break."""
    styles = ["double"]
    if "\n" not in value:
      styles.append("single")
      is_simple = all(word in _WORDS + tuple(ROLES) + tuple(_WORKER) for word in value.split(" "))
      if is_simple and value not in ("~", "null") or value in _NAMES[:9]:
        styles += ["plain"] * 3
    if blocks and not in_braces and not value.startswith(" "):
      # A line that begins with a blank is not folded.
      styles += ["literal"] + ["folded"] * ("\n " not in value)
    style = self.of(styles)
    if style in ("literal", "folded"):
      return self._block(value, column, style)
    words = value.split(" ")
    # A line of its own may begin with no sign of YAML, and blanks are lost where a line ends.
    can_fold = len(words) > 1 and all(words) and not in_braces and style != "plain"
    if can_fold and self.chance(0.2):
      place = 1 + self.below(len(words) - 1)
      halves = (" ".join(words[:place]), " ".join(words[place:]))
      if not halves[1].startswith(("---", "...")):
        joint = f"\n{column}{' ' * self.below(3)}"
        return value, self._quoted(halves, joint, style)
    if style == "plain":
      return value, value
    return value, self._quoted((value,), "", style)

  def _quoted(self, parts, joint, style):
    if style == "single":
      return "'" + joint.join(part.replace("'", "''") for part in parts) + "'"
    return '"' + joint.join("".join(map(self._escaped, part)) for part in parts) + '"'

  def _escaped(self, character):
    code = ord(character)
    if character == " " or not self.chance(0.1):
      return _SHORT.get(character, character)
    if code < 0x100 and self.chance(0.5):
      return f"\\x{code:02x}"
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08x}"

  def _block(self, value, column, style):
    chomping = self.of(("", "-", "+"))
    lines = value.split("\n")
    if style == "folded":
      # A blank line is a break, and a break a blank.
      lines = [piece for line in lines for piece in (*self._folds(line), "")][:-1]
    indent = column + " " * self.below(2)
    head = {"literal": "|", "folded": ">"}[style] + chomping + self.of(("", "", " # a text"))
    body = "\n".join(f"{indent}{line}" if line else "" for line in lines)
    return value if chomping == "-" else f"{value}\n", f"{head}\n{body}"

  def _folds(self, line):
    words = line.split(" ")
    place = 1 + self.below(len(words))
    if not all(words) or place >= len(words) or not self.chance(0.5):
      return (line,)
    return " ".join(words[:place]), " ".join(words[place:])

  def names(self, names, column, in_braces):
    """Writes a list of names, what comes after `references:` included."""
    def written(name):
      # What no bracket nor comma ends.
      return self.text(name, column + "  ", True)[1]

    if names and not in_braces and self.chance(0.4):
      indent = column + " " * self.of((0, 2))
      return "".join(
          f"\n{indent}- {written(name)}{self.of(('', '', '  # ' + names[0]))}" for name in names)
    blank, comma = self.of(("", " ")), self.of((",", ", ", " , ", f",\n{column}  "))
    after = self.of(("", "", ",")) if names else ""
    return f"[{blank}{comma.join(map(written, names))}{after}{blank}]"

  def agent(self, values, indentation, in_braces):
    keys = [list(values)[i] for i in self._generator.permutation(len(values))]
    named = {key: self.of((key, key, f'"{key}"')) for key in keys}
    if in_braces:
      pairs = ", ".join(f"{named[key]}: {values[key]}" for key in keys)
      return f"{indentation}- {{{pairs}}}{self.end_of_line()}"
    lines = []
    for key in keys:
      begins = f"{indentation}{'  ' if lines else '- '}{named[key]}:"
      value = values[key] if values[key].startswith("\n") else f" {values[key]}"
      is_block = values[key][:1] in "|>" and "\n" in value
      lines.append(begins + value + ("\n" if is_block else self.end_of_line()))
      if self.chance(0.1):
        lines.append(f"{indentation}  # role: solver, and [\n")
    return "".join(lines)

  def around(self, document):
    """Puts text before and after the document, fences around it, other line breaks into it."""
    before = self.of(_BEFORE)
    # After a fence only a fence counts.
    fenced = "```" in before and "python" not in before or self.chance(0.3)
    document = self.of(("", "", "# The team\n", "---\n")) + document if fenced else document
    document += self.of(("", "", "...\n", "\n\n"))
    if fenced:
      after = self.of(("\n```", "\n```\nThat is all.", "\n```\n\nagents: these two.\n", ""))
      document = f"{self.of(('```', '```yaml', '```yml'))}\n{document}{after}"
    text = before + document
    return text.replace("\n", "\r\n") if self.chance(0.15) else text
