import math

import numpy as np
import pytest
from scipy.stats import beta

from conductor_jax.evaluation.statistics import bootstrap, estimate, pass_at_k


def intervals(scores, pairs=(), *, seed=0, resamples=10_000):
  return bootstrap(np.array(scores, float), pairs, generator=np.random.default_rng(seed),
                   resamples=resamples)


def column(*scores):
  (found,), _ = intervals([[score] for score in scores])
  return found


def test_the_value_is_the_mean_over_questions_and_the_interval_holds_95_percent_of_the_draws():
  found = column(0.0, 0.25, 1.0, 1.0)
  assert found.value == 0.5625
  inside = (found.draws >= found.low) & (found.draws <= found.high)
  assert 0.95 <= inside.mean() < 0.99  # a few values have all the draws
  assert found.low < 0.5625 < found.high


def test_two_questions_are_drawn_as_often_as_they_should():
  # Of four equally likely resamples of a wrong and a right one: both, both, and one of each twice.
  draws = column(0.0, 1.0).draws
  for mean, share in ((0.0, 0.25), (0.5, 0.5), (1.0, 0.25)):
    assert np.mean(draws == mean) == pytest.approx(share, abs=0.02)


def test_draws_spread_as_the_mean_of_a_sample_does():
  found = column(*[1.0] * 70, *[0.0] * 30)
  assert found.draws.std() == pytest.approx(math.sqrt(0.7 * 0.3 / 100), rel=0.03)
  assert (found.low, found.high) == (pytest.approx(0.61, abs=0.011), pytest.approx(0.79, abs=0.011))


def test_all_columns_see_the_same_resamples():
  scores = np.random.default_rng(1).random((40, 2))
  (a, b), (difference,) = intervals(scores, [(0, 1)])
  np.testing.assert_allclose(difference.draws, a.draws - b.draws, atol=1e-12)
  assert difference.value == pytest.approx(np.mean(scores[:, 0] - scores[:, 1]))


def test_a_difference_on_the_same_questions_is_surer_than_either_accuracy():
  hard = np.random.default_rng(2).random(200) < 0.5
  a = np.where(hard, 1.0, 0.0)
  b = a.copy()
  b[:10] = 0.0
  (first, _), (difference,) = intervals(np.stack([a, b], axis=1), [(0, 1)])
  assert difference.high - difference.low < 0.5 * (first.high - first.low)
  assert difference.low > 0  # b is never better


def test_a_mean_is_over_the_questions_with_a_score_and_a_difference_over_those_that_both_have():
  nan = math.nan
  (a, b), (difference, reverse) = intervals(
      [[1, nan], [1, 0], [0, 1], [nan, 1], [1, 0.5]], [(0, 1), (1, 0)])
  assert (a.value, b.value) == (3 / 4, 2.5 / 4)
  assert difference.value == pytest.approx((1 - 1 + 0.5) / 3)
  assert (reverse.value, reverse.low, reverse.high) == pytest.approx(
      (-difference.value, -difference.high, -difference.low))


def test_without_a_question_there_is_no_estimate():
  nan = math.nan
  (a, b), (difference,) = intervals([[1, nan], [0, nan]], [(0, 1)])
  assert a.value == 0.5 and b is None and difference is None
  assert intervals(np.empty((0, 2)), [(0, 1)]) == ([None, None], [None])


@pytest.mark.parametrize(("score", "low", "high"), [
    # Beta(30.5, 0.5) and its mirror image.
    (1.0, beta.ppf(0.025, 30.5, 0.5), 1.0), (0.0, 0.0, beta.ppf(0.975, 0.5, 30.5)),
    (0.5, beta.ppf(0.025, 15.5, 15.5), beta.ppf(0.975, 15.5, 15.5))])
def test_where_all_questions_have_the_same_score_the_interval_is_that_of_a_proportion(
    score, low, high):
  found = column(*[score] * 30)
  assert (found.low, found.value, found.high) == pytest.approx((low, score, high), abs=2e-4)


def test_equal_columns_without_a_spread_have_equal_intervals():
  (a, b), _ = intervals([[1, 1]] * 10)
  assert (a.low, a.high) == (b.low, b.high)


def test_strategies_that_never_differ_may_differ_by_a_little():
  _, (difference,) = intervals([[1, 1], [0, 0]] * 20, [(0, 1)])
  assert difference.value == 0
  # A gain or a loss in 40 questions without any: below 6 % each.
  assert 0.04 < difference.high < beta.ppf(0.975, 0.5, 40.5)
  assert difference.low == pytest.approx(-difference.high, abs=0.003)


def test_a_strategy_that_is_always_better_is_better_by_all_but_a_little():
  _, (difference,) = intervals([[1, 0]] * 40, [(0, 1)])
  assert difference.value == difference.high == 1
  assert 0.85 < difference.low < beta.ppf(0.025, 40.5, 0.5)


def test_an_interval_is_widened_to_hold_its_value():
  found = estimate(0.9, np.array([0.1, 0.2, math.nan]))
  assert (found.high, round(found.low, 2)) == (0.9, 0.1)


def test_the_same_seed_gives_the_same_interval_and_chunks_make_no_difference_to_its_size():
  one, other = (intervals([[0.0], [1.0], [1.0]], seed=4, resamples=2500)[0][0] for _ in range(2))
  np.testing.assert_array_equal(one.draws, other.draws)
  assert one.draws.shape == (2500,)


def coverage(draw, truth, pairs=()):
  """How often the interval of the last estimate holds the truth, of 1000 evaluations."""
  generator = np.random.default_rng(7)
  hits = 0
  for _ in range(1000):
    columns, differences = bootstrap(draw(generator), pairs, generator=generator, resamples=600)
    found = [*columns, *differences][-1]
    hits += found.low <= truth <= found.high
  return hits / 1000


@pytest.mark.parametrize("repeats", [1, 4])
def test_the_interval_of_an_accuracy_holds_the_truth_in_95_of_100_evaluations(repeats):
  def draw(generator):
    # Questions are hard or easy: Beta(1.4, 0.6) has the mean 0.7.
    chance = generator.beta(1.4, 0.6, size=120)
    return generator.binomial(repeats, chance)[:, None] / repeats

  assert 0.93 <= coverage(draw, 0.7) <= 0.97


def test_the_interval_of_a_paired_difference_holds_the_truth_in_95_of_100_evaluations():
  def draw(generator):
    chance = generator.beta(1.4, 0.6, size=120)
    return np.stack([generator.binomial(3, chance), generator.binomial(3, 0.9 * chance)],
                    axis=1) / 3

  assert 0.93 <= coverage(draw, 0.1 * 0.7, [(0, 1)]) <= 0.97


@pytest.mark.parametrize(("answers", "right", "k", "chance"), [
    (5, 2, 1, 0.4), (5, 2, 2, 1 - 3 / 10), (5, 2, 3, 1 - 1 / 10), (5, 2, 4, 1.0), (5, 0, 5, 0.0),
    (10, 3, 5, 1 - 21 / 252), (4, 4, 1, 1.0), (1, 0, 1, 0.0)])
def test_pass_at_k_is_the_share_of_choices_of_k_answers_with_a_right_one(
    answers, right, k, chance):
  assert pass_at_k(answers, right, k) == pytest.approx(chance, abs=1e-12)


def test_pass_at_k_of_many_answers_does_not_overflow():
  n, c, k = 2000, 30, 100
  exact = 1 - math.comb(n - c, k) / math.comb(n, k)
  assert pass_at_k(n, c, k) == pytest.approx(exact, rel=1e-12)


def test_pass_at_k_has_no_bias():
  # Ten answers, each right with 0.3: one of three is with 1 - 0.7 ** 3.
  generator = np.random.default_rng(0)
  estimates = [pass_at_k(10, c, 3) for c in generator.binomial(10, 0.3, size=20_000)]
  assert np.mean(estimates) == pytest.approx(1 - 0.7**3, abs=0.005)


def test_pass_at_k_needs_k_answers():
  with pytest.raises(ValueError, match="pass@3 needs 3 answers to a question, got 2"):
    pass_at_k(2, 1, 3)
