import math

import numpy as np
import pytest

from conductor_jax.evaluation.statistics import t_interval


def test_of_three_runs_the_interval_is_the_mean_and_4_30_standard_errors():
  # The 97.5 % quantile of Student's t with 2 degrees of freedom is 4.30265.
  assert t_interval([1.0, 2.0, 3.0]) == pytest.approx(
      (2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)), abs=1e-5)


def test_of_five_runs_the_interval_is_the_mean_and_2_78_standard_errors():
  # Deviations −0.02, 0, 0.02, 0.01, −0.01: a variance of 0.001 / 4; t with 4 degrees is 2.77645.
  arm = 2.77645 * math.sqrt(0.00025 / 5)
  assert t_interval([0.90, 0.92, 0.94, 0.93, 0.91]) == pytest.approx(
      (0.92 - arm, 0.92 + arm), abs=1e-6)


@pytest.mark.parametrize("values", [[], [0.5]])
def test_fewer_than_two_runs_have_no_interval(values):
  assert t_interval(values) is None


def test_equal_runs_have_an_interval_of_no_width():
  assert t_interval([0.5, 0.5, 0.5]) == (0.5, 0.5)


def test_the_interval_of_five_runs_holds_the_truth_in_95_of_100_experiments():
  runs = np.random.default_rng(0).normal(0.8, 0.03, size=(2000, 5))
  hits = [low <= 0.8 <= high for low, high in map(t_interval, runs)]
  assert 0.935 <= np.mean(hits) <= 0.965
