"""How far measured accuracies can be trusted: intervals, paired differences and pass@k.

What is drawn is the question. Its score is the mean over its repeats, and the bootstrap draws whole
questions with their repeats: these are more alike than answers to different questions, and an
interval over single answers would be too narrow. The repeats within a question are not drawn again:
their spread is in the scores already, and would be counted twice (Davison and Hinkley, Bootstrap
Methods and their Application, section 3.8).

Over training runs of several seeds the run is what is drawn, and there are few: their mean has
Student's interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import betaincinv, stdtrit

LEVEL = 0.95
RESAMPLES = 10_000
# Resamples that exist at once, to bound the memory.
_CHUNK = 1000

Draws = Float[np.ndarray, " resamples"]


@dataclass(frozen=True)
class Estimate:
  """A number, its interval, and the resampled values that this is from.

  Attributes:
    value: what was measured.
    low, high: the interval of `LEVEL`, which holds the value.
    draws: the same number in every resample, NaN where none of its questions was drawn.
  """

  value: float
  low: float
  high: float
  draws: Draws


def estimate(value: float, draws: Draws) -> Estimate:
  """The percentile interval of resampled values, widened to hold the value if it does not."""
  low, high = np.nanquantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
  return Estimate(value, min(value, float(low)), max(value, float(high)), draws)


def bootstrap(
    scores: Float[np.ndarray, "questions columns"], pairs: Sequence[tuple[int, int]] = (), *,
    generator: np.random.Generator, resamples: int = RESAMPLES
) -> tuple[list[Estimate | None], list[Estimate | None]]:
  """Mean scores and paired differences of mean scores, with intervals.

  All columns see the same resamples of the questions, so a difference is that of two columns on the
  same questions. A mean is over the questions that its column has a score for, a difference over
  those that both have.

  Where all scores of a column are equal, as when every answer is right, a resample is like any
  other. There the draws are those of the posterior of a proportion under Jeffreys' prior with as
  many trials as questions (Brown, Cai and DasGupta 2001, section 4.1.2), for a difference those of
  its gains less those of its losses: 30 right of 30 are 92 to 100 %, not 100 to 100 %.

  Args:
    scores: in [0, 1]; NaN where a column has none.
    pairs: columns (a, b) whose difference a − b is wanted.
    generator: draws.
    resamples: how often.

  Returns:
    Of the columns and of the pairs; None where there is no question.
  """
  if not len(scores):
    return [None] * scores.shape[1], [None] * len(pairs)
  # Questions with the same scores are alike: only how many of a kind are drawn matters.
  kinds, counts = _kinds(scores)
  differences = (np.stack([kinds[:, a] - kinds[:, b] for a, b in pairs], axis=1)
                 if pairs else np.empty((len(kinds), 0)))
  values = np.concatenate([kinds, differences], axis=1)
  known = np.isfinite(values)
  filled = np.where(known, values, 0.0)
  draws = _resampled(filled, known, counts, resamples, generator)
  found: list[Estimate | None] = []
  for column in range(values.shape[1]):
    has, own = known[:, column], filled[:, column]
    if not has.any():
      found.append(None)
      continue
    questions = counts[has].sum()
    drawn = draws[:, column]
    if np.ptp(own[has]) == 0:
      drawn = _alike(own[has][0], questions, column >= scores.shape[1], resamples, generator)
    found.append(estimate(float(counts[has] @ own[has] / questions), drawn))
  return found[:scores.shape[1]], found[scores.shape[1]:]


def _kinds(
    scores: Float[np.ndarray, "questions columns"]
) -> tuple[Float[np.ndarray, "kinds columns"], Int[np.ndarray, " kinds"]]:
  """The distinct rows, and how often each occurs."""
  missing = -1.0  # no score; NaN is not equal to itself
  kinds, counts = np.unique(
      np.where(np.isnan(scores), missing, scores), axis=0, return_counts=True)
  return np.where(kinds == missing, np.nan, kinds), counts


def _resampled(
    filled: Float[np.ndarray, "kinds columns"], known: Bool[np.ndarray, "kinds columns"],
    counts: Int[np.ndarray, " kinds"], resamples: int, generator: np.random.Generator
) -> Float[np.ndarray, "resamples columns"]:
  """The mean of each column over its known scores in every resample, NaN where it has none."""
  questions, parts = counts.sum(), []
  for start in range(0, resamples, _CHUNK):
    drawn = generator.multinomial(
        questions, counts / questions, size=min(_CHUNK, resamples - start)).astype(np.float64)
    with np.errstate(invalid="ignore"):
      parts.append((drawn @ filled) / (drawn @ known))
  return np.concatenate(parts)


def _alike(
    score: float, questions: int, signed: bool, resamples: int, generator: np.random.Generator
) -> Draws:
  """Draws for questions that all have the same score; `signed` for a difference."""
  def posterior(share: float) -> Draws:
    # Evenly spread, so that equal columns have equal intervals; in a random order, so that means
    # and differences of them are those of independent draws.
    ranks = (generator.permutation(resamples) + 0.5) / resamples
    return betaincinv(questions * share + 0.5, questions * (1 - share) + 0.5, ranks)

  gains = posterior(max(score, 0.0))
  return gains - posterior(max(-score, 0.0)) if signed else gains


def pass_at_k(answers: int, right: int, k: int) -> float:
  """The chance that one of k answers to a question is right, from more answers, without bias.

  1 − C(n − c, k) / C(n, k) for c right of n answers, as a product that does not overflow (Chen et
  al. 2021, arXiv 2107.03374, equation 1).

  Raises:
    ValueError: k is above n.
  """
  if k > answers:
    raise ValueError(f"pass@{k} needs {k} answers to a question, got {answers}")
  if answers - right < k:
    return 1.0
  return float(1 - np.prod(1 - k / np.arange(answers - right + 1, answers + 1)))


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
  """Student's interval of `LEVEL` of the mean of independent values; None of fewer than two.

  The mean ± t(n − 1) · s / √n, with the sample's standard deviation s.
  """
  if len(values) < 2:
    return None
  centre = float(np.mean(values))
  arm = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2) * np.std(values, ddof=1)
              / np.sqrt(len(values)))
  return centre - arm, centre + arm
