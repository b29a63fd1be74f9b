"""The arena's workers: each reads the text it is sent and does what it is good at.

A worker reads the question, its subtask, and whatever earlier answers it is shown. The subtask says
which part of the question to do; a plain one means the next part not done yet. The worker then
succeeds with the probability of the skill that this part needs, and otherwise gives a plausible
wrong answer; a noisy worker loses some calls altogether. Luck depends on the worker, the part and
the request's seed, so a request repeated word for word brings the same answer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from conductor_jax.arena.server import Answerer
from conductor_jax.arena.world import SKILLS, Question, World, stable_hash, understand
from conductor_jax.workers.pool import Pool, WorkerSpec

# What comes of a call that is lost in noise.
NOISE = "I am sorry, I lost the thread."
# More than any answer has; with it, a budget knows what a call may cost at most.
_MAX_TOKENS = 64
# Which words of a subtask name which part of a question.
_NAMED = {
    "almanac": re.compile(r"almanac|look up", re.IGNORECASE),
    "arithmetic": re.compile(r"calculat|arithmetic", re.IGNORECASE),
    "words": re.compile(r"spell|rewrite", re.IGNORECASE),
    "sorting": re.compile(r"order|sort|count", re.IGNORECASE),
}
_QUESTION = re.compile(r"Question:\n(.+?)(?:\n|$)")
_SUBTASK = re.compile(r"ubtask:\n")
_ANSWER = re.compile(r"<answer>(.*?)</answer>")


@dataclass(frozen=True)
class Specialist:
  """What a worker can do.

  Attributes:
    name: its model name.
    capacity: "small", "medium" or "large".
    price_in: dollars per million prompt tokens.
    price_out: dollars per million completion tokens.
    skills: probability of success by skill.
    almanac: which edition it holds: "current", "old" or "none". A fact that is not in it cannot be
      known, whatever the skill.
    noise: share of the calls that bring nothing, and say so.
    unguided: multiplies the probability of success where the subtask names no part of the question.
  """

  name: str
  capacity: str
  price_in: float
  price_out: float
  skills: Mapping[str, float]
  almanac: str = "none"
  noise: float = 0.0
  unguided: float = 1.0


def _skilled(skill: str, probability: float, elsewhere: float = 0.05) -> dict[str, float]:
  return dict.fromkeys(SKILLS, elsewhere) | {skill: probability}


SPECIALISTS = (
    Specialist("abacus-large", "large", 2.0, 8.0, _skilled("arithmetic", 0.97)),
    Specialist("abacus-small", "small", 0.1, 0.4, _skilled("arithmetic", 0.70)),
    Specialist("scribe-medium", "medium", 0.5, 2.0, _skilled("words", 0.97)),
    Specialist("scribe-small", "small", 0.1, 0.4, _skilled("words", 0.70)),
    Specialist("clerk-medium", "medium", 0.5, 2.0, _skilled("sorting", 0.97)),
    # Good at one thing only: no worker alone, however often it is asked, solves a two-hop task.
    Specialist("archivist-medium", "medium", 0.5, 2.0, _skilled("almanac", 0.98, 0.0), "current"),
    Specialist("generalist-large", "large", 3.0, 15.0,
               dict.fromkeys(SKILLS, 0.5) | {"almanac": 0.95}, "old"),
)

# One model in three sizes. All know the almanac; what is more than a look into it takes a larger
# one, and each works better where it is told what to do.
ALLROUND = tuple(
    Specialist(
        f"allround-{capacity}", capacity, price, 4 * price,
        {"almanac": 0.98, "sorting": sorting, "words": words, "arithmetic": arithmetic}, "current",
        unguided=0.6)
    for capacity, price, sorting, words, arithmetic in (
        ("small", 0.1, 0.9, 0.5, 0.3), ("medium", 0.5, 0.95, 0.95, 0.6),
        ("large", 2.0, 0.97, 0.97, 0.97)))

Team = Literal["specialists", "allround"]
TEAMS: Mapping[Team, tuple[Specialist, ...]] = MappingProxyType({
    "specialists": SPECIALISTS, "allround": ALLROUND})


def _part(question: Question, subtask: str, earlier: str | None) -> tuple[str | None, bool]:
  """The skill of the part to do, None if the subtask asks for something the question lacks.

  And whether the subtask names it.
  """
  named = [skill for skill, words in _NAMED.items() if words.search(subtask)]
  if named:
    return next((skill for skill in named if skill in question.skills), None), True
  return question.skills[-1 if earlier is not None else 0], False


def respond(
    world: World, specialist: Specialist, messages: list[dict[str, str]], seed: int) -> str:
  """A worker's answer to a conversation."""
  text = "\n".join(message["content"] for message in messages)
  found = _QUESTION.search(text)
  question = understand(found[1]) if found else None
  if question is None:
    return "I do not understand the question."
  *before, subtask = _SUBTASK.split(text)
  answers = _ANSWER.findall("".join(before))
  earlier = answers[-1] if answers else None
  skill, guided = _part(question, subtask, earlier)
  if skill is None:
    return "That is not what the question is about."
  generator = np.random.default_rng(
      stable_hash(specialist.name, found[1], skill, earlier, seed))
  if specialist.noise and generator.random() < specialist.noise:
    return NOISE
  if skill == "almanac":
    known = specialist.almanac == "current" or (
        specialist.almanac == "old" and question.town in world.old_towns)
    right = world.fact(question.fact, question.town) if known else None
    if right is None:
      return f"I have no record of {question.town}."
  else:
    value = question.given if question.fact is None else earlier
    if value is None:
      return f"I do not know the {question.fact} of {question.town}."
    try:
      right = question.operation.apply(value, question.number)
    except ValueError:
      return f"I cannot work with {value!r}."
  chance = specialist.skills[skill] * (1.0 if guided else specialist.unguided)
  answer = right if generator.random() < chance else slip(right, generator)
  return answered(answer)


def answered(answer: str) -> str:
  """How a worker gives an answer."""
  return f"My answer is <answer>{answer}</answer>."


def slip(right: str, generator: np.random.Generator) -> str:
  """A plausible wrong answer."""
  if right.isdecimal():
    return str(int(right) + int(generator.integers(1, 10)))
  place = int(generator.integers(len(right))) if right else 0
  letter = "abcdefghijklmnopqrstuvwxyz"[int(generator.integers(26))]
  changed = right[:place] + letter + right[place + 1:]
  return changed if changed != right else right + letter


def with_noise(
    noise: Sequence[tuple[str, float]], team: Team = "specialists") -> list[Specialist]:
  """The workers of a team, some of them noisy.

  Args:
    noise: names of workers, and the share of their calls that bring nothing.
    team: a name in `TEAMS`.
  """
  shares = dict(noise)
  return [replace(specialist, noise=shares.get(specialist.name, 0.0))
          for specialist in TEAMS[team]]


def shuffled(seed: int, team: Team = "specialists") -> list[Specialist]:
  """The workers of a team in the order of their ids, which depends on the seed."""
  workers = TEAMS[team]
  return [workers[i] for i in np.random.default_rng([seed, 3]).permutation(len(workers))]


def answerers(
    seed: int, noise: Sequence[tuple[str, float]] = (), team: Team = "specialists"
) -> dict[str, Answerer]:
  """The server's factory: one answerer per worker; `noise` and `team` as in `with_noise`."""
  world = World(seed)

  def answerer(specialist: Specialist) -> Answerer:
    return lambda messages, request_seed: respond(world, specialist, messages, request_seed)

  return {specialist.name: answerer(specialist) for specialist in with_noise(noise, team)}


def arena_pool(base_url: str, seed: int, team: Team = "specialists") -> Pool:
  """The pool of a team that the server at `base_url` serves, ids shuffled by the seed."""
  return Pool(tuple(
      WorkerSpec(
          name=s.name, base_url=base_url, model=s.name, price_in=s.price_in,
          price_out=s.price_out, capacity=s.capacity, sampling={"max_tokens": _MAX_TOKENS})
      for s in shuffled(seed, team)))
