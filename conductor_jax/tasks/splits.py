"""Training and held-out tasks that share no question, balanced over benchmarks or not."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from conductor_jax.errors import UserError
from conductor_jax.tasks.benchmark import lettered
from conductor_jax.tasks.task import Task

# Training and held-out questions of RL Conductor (arXiv 2512.04388) where it says how many.
_PARTS = {"math500": (300, 100)}

_DASHES = str.maketrans(dict.fromkeys("‐‑‒–—−", "-"))
_LATEX_SPACING = re.compile(
    r"\\(?:left|right|quad|qquad|displaystyle|[Bb]igg?[lr]?)(?![a-zA-Z])|\\[,;:! ()\[\]]|~")
_LATEX_FRACTION = re.compile(r"\\[dt]frac(?![a-zA-Z])")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# Words, numbers, and signs that an expression means something else without.
_TOKENS = re.compile(r"""[^\W\d_]+|\d+(?:\.\d+)?|[^\w\s.,;:?'"“”‘’…`$\\{}]|_""")
_HYPHEN = re.compile(r"(?<=[^\W\d_]{2})-(?=[^\W\d_]{2})")


class Split(NamedTuple):
  """Disjoint parts of tasks.

  Attributes:
    train: to train on.
    heldout: to evaluate on.
    notes: what was left out and what is missing, in sentences.
  """

  train: list[Task]
  heldout: list[Task]
  notes: tuple[str, ...]


def normalised(question: str) -> str:
  """What two publications of one question have in common.

  Upper and lower case, white space, commas and full stops, quotation marks, hyphens between words,
  separators of thousands, and LaTeX's dollars, braces, backslashes and spacing make no difference.
  Numbers, operators, parentheses and other signs do.
  """
  text = unicodedata.normalize("NFKC", question).translate(_DASHES).casefold()
  text = _LATEX_FRACTION.sub(r"\\frac", _LATEX_SPACING.sub(" ", text))
  return " ".join(_TOKENS.findall(_HYPHEN.sub(" ", _THOUSANDS.sub("", text))))


def question_texts(task: Task) -> tuple[str, ...]:
  """What a task asks, normalised: two tasks ask the same if they have a text in common.

  A multiple-choice question is there with its options, and without them.
  """
  options = lettered("", task.metadata["choices"]) if task.metadata.get("choices") else ""
  whole = normalised(task.question)
  if not (options and task.question.endswith(options)):
    return (whole,)
  return whole, normalised(task.question.removesuffix(options))


def without(tasks: Iterable[Task], others: Iterable[Task]) -> list[Task]:
  """The tasks that ask nothing that the others ask."""
  asked = {text for task in others for text in question_texts(task)}
  return [task for task in tasks if asked.isdisjoint(question_texts(task))]


def split_tasks(
    tasks: Sequence[Task], *, train: int, heldout: int, balanced: bool, evaluated: Sequence[Task]
) -> Split:
  """Cuts tasks into parts, and leaves out of training whatever is evaluated on.

  Args:
    tasks: in the order in which they are taken, the held-out ones first.
    train: training tasks at most.
    heldout: held-out tasks at most.
    balanced: whether both parts have as many tasks of each kind. Where a kind has fewer, all of
      them are taken, and a note says so. MATH-500 is first cut into the paper's 100 held-out and
      300 training questions.
    evaluated: further tasks, whose questions must not be trained on.

  Raises:
    UserError: nothing is left to train on, of some kind if they are to be balanced.
  """
  texts = {task.id: question_texts(task) for task in tasks}
  # Of tasks that are the same, the first.
  distinct = {texts[task.id][0]: task for task in reversed(tasks)}
  kinds: dict[str, list[Task]] = {}
  for task in tasks:
    if distinct[texts[task.id][0]] is task:
      kinds.setdefault(task.kind if balanced else "", []).append(task)
  shares = {kind: (_share(train, len(kinds), number), _share(heldout, len(kinds), number))
            for number, kind in enumerate(kinds)}
  parts = {kind: _parts(kind, kinds[kind], shares[kind][1]) for kind in kinds}
  held = [task for part, _ in parts.values() for task in part]
  asked = {text for task in held for text in texts[task.id]}
  asked |= {text for task in evaluated for text in question_texts(task)}
  trained: list[Task] = []
  notes, leaks = [], 0
  for kind, (part, rest) in parts.items():
    clean = [task for task in rest if asked.isdisjoint(texts[task.id])]
    leaks += len(rest) - len(clean)
    if not clean:
      raise UserError(
          f"--config.evaluation.tasks={heldout} leaves nothing to train on of the "
          f"{len(kinds[kind])} questions{f' of {kind}' if kind else ''}: lower it")
    wanted, wanted_heldout = shares[kind]
    if balanced and (len(clean) < wanted or len(part) < wanted_heldout):
      notes.append(f"{kind} has {min(len(clean), wanted)} training and {len(part)} held-out tasks, "
                   f"{wanted} and {wanted_heldout} were wanted")
    trained += clean[:wanted]
  if leaks:
    notes.append(f"left out of training, for they are evaluated on too: {leaks} questions")
  return Split(trained, held, tuple(notes))


def _share(total: int, parts: int, number: int) -> int:
  """How much of a total one of the parts has."""
  return total // parts + (number < total % parts)


def _parts(kind: str, tasks: list[Task], heldout: int) -> tuple[list[Task], list[Task]]:
  """The held-out tasks of one kind, and those that may be trained on."""
  if kind not in _PARTS:
    return tasks[:heldout], tasks[heldout:]
  train, test = _PARTS[kind]
  return tasks[:min(heldout, test)], tasks[test:test + train]
