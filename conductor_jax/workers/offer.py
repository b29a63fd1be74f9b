"""Which of the pool's workers a question's plan may use.

An adaptive conductor is trained with another subset for every question, and so learns what to do
without some of them (RL Conductor, arXiv 2512.04388). How the subsets are drawn is not published:

    law                  a question is offered
    "all"                every worker
    "fixed:3"            3 of them, drawn
    "uniform:2-5"        2, 3, 4 or 5 of them: first how many, then which
    "groups:open,small"  those of one of these named groups, drawn
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conductor_jax.errors import UserError

_LAW = re.compile(r"all|fixed:(\d+)|uniform:(\d+)-(\d+)|groups:([^,]+(?:,[^,]+)*)")
LAWS = "all, fixed:K, uniform:K-L or groups:NAME,..."


@dataclass(frozen=True)
class Offer:
  """What one question is offered.

  Attributes:
    workers: ids in the pool, ascending.
    renumbered: whether plans number these workers from 0 on. Otherwise they keep their ids, and
      the one thing that tells a policy who is who.
  """

  workers: tuple[int, ...]
  renumbered: bool = False

  @property
  def numbers(self) -> Sequence[int]:
    """What plans call the workers, ascending."""
    return range(len(self.workers)) if self.renumbered else self.workers

  def worker(self, number: int) -> int:
    """The id in the pool of a worker that a plan names."""
    return self.workers[number] if self.renumbered else number

  def number(self, worker: int) -> int:
    """What a plan calls the worker of an id in the pool."""
    return self.workers.index(worker) if self.renumbered else worker


class OfferLaw:
  """A law by which offers are drawn.

  Args:
    law: as above.
    names: of the pool's workers, by id.
    groups: names of workers by the group's name.
    renumber: see `Offer.renumbered`.

  Raises:
    UserError: the law is none of these, or it cannot be kept with these workers.
  """

  def __init__(
      self, law: str, names: Sequence[str], groups: Mapping[str, Sequence[str]], *,
      renumber: bool = False):
    self._renumber = renumber
    match = _LAW.fullmatch(law)
    if match is None:
      raise UserError(f"{law!r} must be one of {LAWS}")
    fixed, least, most, chosen = match.groups()
    self._groups: list[tuple[int, ...]] = []
    self._sizes = (int(fixed or least or len(names)), int(fixed or most or len(names)))
    self._workers = len(names)
    if chosen is not None:
      for group in chosen.split(","):
        if group not in groups:
          raise UserError(f"{law!r}: there is no group {group!r}, of "
                          f"{', '.join(groups) or 'none at all'}: describe it in pool.groups")
        self._groups.append(_ids(groups[group], group, names))
    elif not 1 <= self._sizes[0] <= self._sizes[1]:
      raise UserError(f"{law!r} leaves no worker: offer 1 at least, and the fewer first")
    elif self._sizes[1] > len(names):
      raise UserError(f"{law!r} asks for {self._sizes[1]} workers, and the pool has {len(names)}")

  def draw(self, generator: np.random.Generator) -> Offer:
    """Draws what a question is offered."""
    if self._groups:
      return Offer(self._groups[int(generator.integers(len(self._groups)))], self._renumber)
    if self._sizes[0] == self._workers:
      return self.whole
    size = int(generator.integers(self._sizes[0], self._sizes[1], endpoint=True))
    drawn = generator.choice(self._workers, size, replace=False)
    return Offer(tuple(sorted(map(int, drawn))), self._renumber)

  @property
  def whole(self) -> Offer:
    """All that can ever be on offer."""
    workers = {worker for group in self._groups for worker in group} or range(self._workers)
    return Offer(tuple(sorted(workers)), self._renumber)

  @property
  def always(self) -> frozenset[int]:
    """The ids of the workers that every question is offered."""
    if self._groups:
      return frozenset.intersection(*map(frozenset, self._groups))
    return frozenset(range(self._workers) if self._sizes[0] == self._workers else ())


def _ids(members: Sequence[str], group: str, names: Sequence[str]) -> tuple[int, ...]:
  """The ids of a group's workers.

  Raises:
    UserError: it has none, one twice, or one that the pool does not have.
  """
  if not members:
    raise UserError(f"group {group!r} leaves no worker: name one at least")
  for member in members:
    if member not in names:
      raise UserError(
          f"group {group!r}: there is no worker {member!r}, of {', '.join(names)}")
  if len(set(members)) < len(members):
    raise UserError(f"group {group!r} names a worker twice: {', '.join(members)}")
  return tuple(sorted(names.index(member) for member in members))
