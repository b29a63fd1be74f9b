"""Which mutations are tried: more of the families whose fields have mattered."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from conductor_jax.credit.mutations import Mutation
from conductor_jax.workflows.format import FAMILIES, Family


class Families:
  """Chances of the mutation families, from what their mutations have changed.

      chance(f) = floor + (1 − 3 floor) size(f) / Σ size
      size(f)  ←  decay size(f) + (1 − decay) mean |Δ| of the family's mutations of an iteration

  LEMON (arXiv 2605.14483) draws families adaptively from past |Δ|, with a floor; the form is ours.
  A family that had no mutation keeps its size.

  Args:
    floor: the least chance of a family, above 0 and 1/3 at most.
    decay: of what is remembered, from one iteration to the next.
  """

  def __init__(self, *, floor: float, decay: float):
    self._floor, self._decay = floor, decay
    self._sizes = dict.fromkeys(FAMILIES, 1.0)

  @property
  def chances(self) -> dict[Family, float]:
    """Of each family; they add up to 1."""
    total = sum(self._sizes.values())
    free = 1 - len(FAMILIES) * self._floor
    return {family: self._floor + free * (size / total if total else 1 / len(FAMILIES))
            for family, size in self._sizes.items()}

  def observe(self, deltas: Iterable[tuple[Family, float]]) -> None:
    """Learns from the mutations of an iteration: their families, and what each changed."""
    sizes: dict[Family, list[float]] = {}
    for family, delta in deltas:
      sizes.setdefault(family, []).append(abs(delta))
    for family, found in sizes.items():
      # In an order of its own: the sum of floats depends on it, and a resumed run must not.
      mean = float(np.mean(np.sort(found)))
      self._sizes[family] = self._decay * self._sizes[family] + (1 - self._decay) * mean

  def record(self) -> dict[str, float]:
    """What `restore` needs; JSON types."""
    return dict(self._sizes)

  def restore(self, record: Mapping[str, float]) -> None:
    """Goes on from a `record`."""
    self._sizes = {family: float(record[family]) for family in FAMILIES}


def draw_mutations(
    found: Sequence[Mutation], chances: Mapping[Family, float], count: int,
    generator: np.random.Generator) -> list[Mutation]:
  """Draws different mutations of one plan, each time a family first and then one of its own.

  Args:
    found: all there are.
    chances: of the families; among those that have a mutation left their ratios count.
    count: how many, if there are so many.
    generator: the source of every choice.
  """
  left: dict[Family, list[Mutation]] = {}
  for mutation in found:
    left.setdefault(mutation.family, []).append(mutation)
  drawn = []
  while left and len(drawn) < count:
    families = list(left)
    weights = np.array([chances[family] for family in families])
    family = families[int(generator.choice(len(families), p=weights / weights.sum()))]
    drawn.append(left[family].pop(int(generator.integers(len(left[family])))))
    if not left[family]:
      del left[family]
  return drawn
