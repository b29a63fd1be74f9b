"""A simulated frontier pool, to rehearse a configuration of the paper's scale at no cost.

Seven workers stand in for the paper's, in its order. They know the answers of the benchmarks and
give them with the accuracies below, so that the road from prompt to reward can be walked with real
questions, graders, prices and traffic before anyone is paid. What a run on it earns says nothing of
the real models: two accuracies are published, everything else is this project's assumption.

A worker finds the task by its question, at the start of a line of the first user message. Its luck
is a function of (model, question, seed) alone. Where it is shown an earlier answer it may take that
over instead of its own.
"""

import bisect
import hashlib
import itertools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any, Literal

from conductor_jax.arena.server import Answerer
from conductor_jax.errors import UserError
from conductor_jax.tasks.graders.markers import boxes
from conductor_jax.tasks.sources import load_tasks
from conductor_jax.tasks.task import Task
from conductor_jax.workers.pool import Pool, WorkerSpec

UNKNOWN = "I don't know."


@dataclass(frozen=True)
class Figure:
  """A number and where it is from: the paper, or an assumption of this project."""

  value: float
  source: Literal["published", "assumed"] = "assumed"


@dataclass(frozen=True)
class FrontierWorker:
  """One simulated model.

  Attributes:
    model: the name sent to the endpoint.
    accuracy: task kind -> share of right answers, in percent.
    price_in: dollars per million prompt tokens.
    price_out: dollars per million completion tokens.
    words: length of an answer.
    capacity: as in `WorkerSpec`.
    temperature: as the paper sets it; GPT-5 accepts 1 only.
  """

  model: str
  accuracy: Mapping[str, Figure]
  price_in: Figure
  price_out: Figure
  words: Figure
  capacity: str
  temperature: float = 0.2


def _worker(model, gsm8k, mmlu, math500, prices, words, capacity, **rest) -> FrontierWorker:
  figures = [value if isinstance(value, Figure) else Figure(value)
             for value in (gsm8k, mmlu, math500, *prices, words)]
  accuracy = MappingProxyType(dict(zip(("gsm8k", "mmlu", "math500"), figures, strict=False)))
  return FrontierWorker(model, accuracy, *figures[3:], capacity, **rest)


def _published(value: float) -> Figure:
  return Figure(value, "published")


# Bare numbers are assumptions.    gsm8k mmlu  math500  $ in, out  words
WORKERS: tuple[FrontierWorker, ...] = (
    _worker("gemini-2.5-pro",       96.0, 89.0, 93.0, (1.25, 10.0), 260, "large"),
    _worker("claude-sonnet-4",      96.0, 87.0, 91.0, (3.0, 15.0), 220, "large"),
    _worker("gpt-5",                97.0, _published(93.5), _published(99.0), (1.25, 10.0), 300,
            "large", temperature=1.0),
    _worker("qwen3-32b",            93.0, 81.0, 84.0, (0.1, 0.3), 180, "medium"),
    _worker("gemma-3-27b",          92.0, 77.0, 83.0, (0.1, 0.2), 160, "medium"),
    _worker("qwen3-32b-reasoning",  95.0, 85.0, 94.0, (0.1, 0.3), 420, "medium"),
    _worker("deepseek-r1-distill-qwen-32b", 93.0, 81.0, 92.0, (0.15, 0.3), 420, "medium"),
)

# How often a worker takes over the last answer it is shown, by whether its own would be right.
ADOPTS_IF_RIGHT = Figure(0.1)
ADOPTS_IF_WRONG = Figure(0.6)

_MAX_TOKENS = 4096
_REASONING = ("Let me work through this carefully. First I restate what is given and what is asked."
              " Then I look at the relation between the quantities and check each step.")


@dataclass(frozen=True)
class _Form:
  """How answers to one kind of task look.

  Attributes:
    write: result -> the sentence that states it.
    read: text -> the result that the last such sentence states, None if there is none.
    spoil: (task, random source) -> a plausible wrong result.
  """

  write: Callable[[str], str]
  read: Callable[[str], str | None]
  spoil: Callable[[Task, random.Random], str]


def _last(pattern: str) -> Callable[[str], str | None]:
  compiled = re.compile(pattern)

  def read(text: str) -> str | None:
    found = compiled.findall(text)
    return found[-1] if found else None

  return read


def _last_box(text: str) -> str | None:
  found = [content for _, content in boxes(text) if content.strip(" .…")]
  return found[-1] if found else None


def _other_letter(task: Task, source: random.Random) -> str:
  letters = ascii_uppercase[:len(task.metadata["choices"])]
  return source.choice([letter for letter in letters if letter != task.reference])


def _near_number(task: Task, source: random.Random) -> str:
  value = Decimal(task.reference)
  near = [value + 1, value - 1, value + 10, value * 2, value * 10]
  return f"{source.choice([number for number in near if number != value]):f}"


def _changed_expression(task: Task, source: random.Random) -> str:
  number = re.search("[0-9]+", task.reference)
  if number:
    index = source.randrange(*number.span())
    digit = source.choice([d for d in "123456789" if d != task.reference[index]])
    return task.reference[:index] + digit + task.reference[index + 1:]
  if r"\text" in task.reference or task.reference.isalpha():
    return r"\text{none of these}"
  return f"{task.reference} + 1"


_FORMS: Mapping[str, _Form] = MappingProxyType({
    "gsm8k": _Form(lambda result: f"#### {result}", _last(r"#### (-?[0-9][0-9,.]*)"),
                   _near_number),
    "mmlu": _Form(lambda result: f"The answer is {result}.", _last(r"The answer is ([A-Z])\."),
                  _other_letter),
    "math500": _Form(lambda result: rf"Therefore the answer is $\boxed{{{result}}}$.", _last_box,
                     _changed_expression),
})


class _Questions:
  """Finds the task whose question a text starts with, by bisection."""

  def __init__(self, tasks: Sequence[Task]):
    self._tasks: dict[str, Task] = {}
    for task in tasks:
      self._tasks.setdefault(task.question, task)  # some benchmarks repeat questions: first counts
    self._sorted = sorted(self._tasks)
    # The longest other question that a question starts with.
    self._shorter: dict[str, str | None] = {}
    previous = None
    for question in self._sorted:
      while previous is not None and not question.startswith(previous):
        previous = self._shorter[previous]
      self._shorter[question] = previous
      previous = question

  def _at(self, text: str, start: int) -> Task | None:
    rest = text[start:] if start else text
    index = bisect.bisect_right(self._sorted, rest) - 1
    question = self._sorted[index] if index >= 0 else None
    # Whatever sorts between a text and its prefix starts with that prefix as well.
    while question is not None and not rest.startswith(question):
      question = self._shorter[question]
    return self._tasks[question] if question is not None else None

  def find(self, text: str) -> tuple[Task, int] | None:
    """The task and the position after its question, looked for at the start of every line."""
    start = 0
    while True:
      task = self._at(text, start)
      if task is not None:
        return task, start + len(task.question)
      start = text.find("\n", start) + 1
      if not start:
        return None


def _source(model: str, question: str, seed: int) -> random.Random:
  digest = hashlib.blake2b(f"{model}\0{seed}\0{question}".encode("utf-8", "surrogatepass"),
                           digest_size=8)
  return random.Random(int.from_bytes(digest.digest(), "big"))


def _answerer(worker: FrontierWorker, questions: _Questions) -> Answerer:
  words = itertools.cycle(_REASONING.split())
  reasoning = " ".join(itertools.islice(words, int(worker.words.value)))

  def answer(messages: list[dict[str, Any]], seed: int) -> str:
    first = next((index for index, message in enumerate(messages) if message["role"] == "user"),
                 None)
    found = questions.find(messages[first]["content"]) if first is not None else None
    if found is None:
      return UNKNOWN
    task, end = found
    form = _FORMS[task.kind]
    source = _source(worker.model, task.question, seed)
    right = 100 * source.random() < worker.accuracy[task.kind].value
    result = task.reference if right else form.spoil(task, source)
    adopts = source.random() < (ADOPTS_IF_RIGHT if right else ADOPTS_IF_WRONG).value
    if adopts:
      seen = [messages[first]["content"][end:]]
      seen += [message["content"] for message in messages[first + 1:]]
      result = form.read("\n".join(seen)) or result
    return f"{reasoning}\n\n{form.write(result)}"

  return answer


def answerers(path: str, benchmarks: Sequence[str], split: str) -> dict[str, Answerer]:
  """The server factory: one answerer per worker, all of which know these tasks.

  Args:
    path: as in `load_tasks`.
    benchmarks: likewise.
    split: likewise.

  Raises:
    UserError: the tasks cannot be loaded, or there are no accuracies for a benchmark.
  """
  for benchmark in benchmarks:
    if benchmark not in _FORMS:
      raise UserError(f"the simulated frontier pool has no accuracies for {benchmark!r}: "
                      f"choose from {', '.join(_FORMS)}")
  questions = _Questions(load_tasks(path, benchmarks, split))
  return {worker.model: _answerer(worker, questions) for worker in WORKERS}


def frontier_pool(base_url: str) -> Pool:
  """The workers as a pool behind one endpoint, in the paper's order, with its call parameters."""
  return Pool(tuple(
      WorkerSpec(
          name=worker.model, base_url=base_url, model=worker.model,
          price_in=worker.price_in.value, price_out=worker.price_out.value,
          capacity=worker.capacity,
          sampling={"temperature": worker.temperature, "max_tokens": _MAX_TOKENS})
      for worker in WORKERS))
