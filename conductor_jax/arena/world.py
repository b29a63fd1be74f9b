"""The arena's world: an almanac of made-up towns and the questions that can be asked about it.

A question is an operation on an argument. The argument is given ("heron") or is a fact of the
almanac ("the river of Tolvena"); with a fact it is a two-hop question, which needs two skills.

    kind        skill needed                        example
    arithmetic  arithmetic                          What is 17 plus 25?
    words       words                               Spell "heron" backwards.
    sorting     sorting                             Arrange the letters of "heron" from a to z.
    almanac     almanac                             What is the river of Tolvena?
    two-hop     almanac, then one of the others     Spell the river of Tolvena backwards.

The training and the test split are disjoint by construction: every town, word and tuple of numbers
belongs to one of them.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from conductor_jax.tasks.task import Task

Split = Literal["train", "test"]
SKILLS = ("arithmetic", "words", "sorting", "almanac")
KINDS = (*SKILLS, "two-hop")

NAME_FACTS = ("river", "founder")
NUMBER_FACTS = ("number of bridges", "number of wells")

WORDS = """
acorn amber anchor anvil apron arrow badge banner barrel basket beacon beaver bishop blanket bottle
branch bridle bucket button cabin camel candle canoe canyon carpet castle cellar cherry chimney
cider cinder cloak clover cobalt copper corner cotton cradle crater cricket crystal dagger desert
dragon eagle ember engine fabric falcon feather fiddle finger flagon forest fossil fountain garden
garnet ginger glacier goblet granite hammer harbor harvest hazel helmet heron hollow hornet island
ivory jacket jasper jungle kettle kitten ladder lagoon lantern lemon linen lizard lobster locket
magnet mantle marble market meadow melon mirror monkey mortar needle nettle nutmeg oyster paddle
parrot pebble pepper pigeon pillow planet plaster pocket pollen portal powder prairie quarry quiver
rabbit raven ribbon rocket saddle saffron salmon sandal shadow shelter silver sparrow spindle stable
summit temple thistle timber tunnel turtle valley velvet violet walnut window winter wizard yarrow
""".split()

_ONSETS = "b br c d dr f g gr h k l m n p r s st t th tr v w z".split()
_VOWELS = "a e i o u ai ea".split()
_CODAS = "l m n r s nd rn th".split()


def stable_hash(*parts) -> int:
  """64 bits that depend on the parts alone, the same in every process."""
  text = "\x1f".join(map(str, parts)).encode()
  return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Operation:
  """Something to do with an argument.

  Attributes:
    skill: who can do it.
    templates: ways to ask for it; `{x}` is the argument and `{n}` a number of the question's own.
    apply: (argument, n) → answer.
    numeric: whether the argument is a number.
  """

  skill: str
  templates: tuple[str, ...]
  apply: Callable[[str, int], str]
  numeric: bool


OPERATIONS = (
    Operation("arithmetic", ("What is {x} plus {n}?", "Add {n} to {x}."),
              lambda x, n: str(int(x) + n), True),
    Operation("arithmetic", ("What is {x} times {n}?", "Multiply {x} by {n}."),
              lambda x, n: str(int(x) * n), True),
    Operation("words", ("Spell {x} backwards.", "How does {x} read from right to left?"),
              lambda x, n: x[::-1], False),
    Operation("words", ("What is left of {x} without its vowels?", "Write {x} without vowels."),
              lambda x, n: "".join(c for c in x if c not in "aeiou"), False),
    Operation("sorting", ("Put the letters of {x} in alphabetical order.",
                          "Arrange the letters of {x} from a to z."),
              lambda x, n: "".join(sorted(x)), False),
    Operation("sorting", ("How many different letters occur in {x}?",
                          "Count the distinct letters of {x}."),
              lambda x, n: str(len(set(x))), False),
)
LOOKUPS = ("What is the {fact} of {town}?", "Tell me the {fact} of {town}.")


@dataclass(frozen=True)
class Question:
  """A question understood.

  Attributes:
    operation: what to do last, None where the fact itself is asked for.
    number: the operation's own number, 0 where it has none.
    given: the argument, None where it is a fact.
    fact: name of the fact, None where the argument is given.
    town: whose fact.
  """

  operation: Operation | None
  number: int = 0
  given: str | None = None
  fact: str | None = None
  town: str | None = None

  @property
  def skills(self) -> tuple[str, ...]:
    """The skills needed, in order."""
    lookup = () if self.fact is None else ("almanac",)
    return lookup + (() if self.operation is None else (self.operation.skill,))

  @property
  def kind(self) -> str:
    return self.skills[0] if len(self.skills) == 1 else "two-hop"


def _pattern(template: str) -> str:
  return (re.escape(template).replace(r"\{x\}", r"(?P<x>.+?)").replace(r"\{n\}", r"(?P<n>\d+)")
          .replace(r"\{fact\}", r"(?P<fact>.+?)").replace(r"\{town\}", r"(?P<town>\w+)"))


_FACT = re.compile(r"the (?P<fact>[a-z ]+) of (?P<town>[A-Z]\w+)")
_PATTERNS = [
    (re.compile(_pattern(template)), operation)
    for operation in (*OPERATIONS, None)
    for template in (LOOKUPS if operation is None else operation.templates)]


def understand(text: str) -> Question | None:
  """Reads a question, None if it is none of this world's."""
  for pattern, operation in _PATTERNS:
    match = pattern.fullmatch(text.strip())
    if match is None:
      continue
    if operation is None:
      return Question(None, fact=match["fact"], town=match["town"])
    number = int(match.groupdict().get("n") or 0)
    fact = _FACT.fullmatch(match["x"])
    if fact is not None:
      return Question(operation, number, fact=fact["fact"], town=fact["town"])
    return Question(operation, number, given=match["x"].strip('"'))
  return None


class World:
  """One almanac and its questions, fixed by a seed."""

  def __init__(self, seed: int, towns: int = 240):
    self.seed = seed
    generator = np.random.default_rng([seed, 1])
    # A made-up name is no dictionary word, which may belong to the other split.
    names = set(WORDS)

    def name(syllables: int) -> str:
      while True:
        parts = [generator.choice(_ONSETS) + generator.choice(_VOWELS) for _ in range(syllables)]
        word = "".join(parts) + generator.choice(_CODAS)
        if word not in names and 5 <= len(word) <= 9:
          names.add(word)
          return word

    self.almanac: dict[str, dict[str, str]] = {}
    for _ in range(towns):
      town = name(2).capitalize()
      self.almanac[town] = {fact: name(2) for fact in NAME_FACTS} | {
          fact: str(generator.integers(3, 60)) for fact in NUMBER_FACTS}
    # An old edition knows every second town, in both splits; two-hop questions name the others.
    self.old_towns = set(list(self.almanac)[::2])

  def split_of(self, *argument) -> Split:
    """Which split a town, word or tuple of numbers belongs to: one in four is a test one."""
    return "test" if stable_hash("split", *argument) % 4 == 0 else "train"

  def fact(self, fact: str, town: str) -> str | None:
    return self.almanac.get(town, {}).get(fact)

  def answer(self, question: Question) -> str:
    """The right answer."""
    value = question.given
    if question.fact is not None:
      value = self.fact(question.fact, question.town)
    return value if question.operation is None else question.operation.apply(value, question.number)

  def tasks(self, split: Split, count: int) -> list[Task]:
    """Distinct tasks, one third of them two-hop, the other kinds in equal parts.

    The same split, count and seed give the same tasks in the same mixed order. A third of the
    two-hop tasks ends in each of arithmetic, words and sorting.

    Raises:
      ValueError: the split has not that many distinct questions of some kind.
    """
    two_hop = count // 3
    counts = {kind: (count - two_hop + i) // len(SKILLS) for i, kind in enumerate(SKILLS)}
    counts["two-hop"] = two_hop
    tasks = []
    for kind in KINDS:
      seen: set[str] = set()
      questions = self._questions(kind, split, seen)
      repeats = 0
      while len(seen) < counts[kind]:
        text = next(questions)
        repeats += 1
        if repeats > 10_000:
          raise ValueError(
              f"the {split} split has not {counts[kind]} distinct {kind} questions; ask for fewer "
              f"than {count} tasks")
        if text not in seen:
          repeats = 0
          seen.add(text)
          tasks.append(Task(
              id=f"arena-{self.seed}-{split}-{kind}-{len(seen)}", question=text,
              reference=self.answer(understand(text)), kind=kind))
    order = np.random.default_rng([self.seed, 4, split == "test"]).permutation(len(tasks))
    return [tasks[i] for i in order]

  def _questions(self, kind: str, split: Split, seen: set[str]) -> Iterator[str]:
    generator = np.random.default_rng([self.seed, 2, KINDS.index(kind), split == "test"])

    def pick(options):
      return options[int(generator.integers(len(options)))]

    def town(options) -> str:
      return pick([t for t in options if self.split_of(t) == split])

    words = [word for word in WORDS if self.split_of(word) == split]
    every_town = list(self.almanac)
    recent = [t for t in every_town if t not in self.old_towns]
    while True:
      if kind == "almanac":
        yield pick(LOOKUPS).format(fact=pick(NAME_FACTS + NUMBER_FACTS), town=town(every_town))
        continue
      # By the questions taken: repeats do not count for the equal parts of the final skills.
      skill = SKILLS[(len(seen) + 1) % 3] if kind == "two-hop" else kind
      operation = pick([o for o in OPERATIONS if o.skill == skill])
      number = int(generator.integers(3, 40))
      if kind == "two-hop":
        fact = pick(NUMBER_FACTS if operation.numeric else NAME_FACTS)
        argument = f"the {fact} of {town(recent)}"
      elif operation.numeric:
        given = int(generator.integers(3, 90))
        if self.split_of(given, number) != split:
          continue
        argument = str(given)
      else:
        argument = f'"{pick(words)}"'
      yield pick(operation.templates).format(x=argument, n=number)
