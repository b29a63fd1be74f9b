from xml.etree import ElementTree

import numpy as np
import pytest

from conductor_jax.reporting.ablation_plot import ablation_plot
from conductor_jax.reporting.figure import PAPER, svg_document
from tests.reporting.ablations import numbers, results, three_seeds


def texts(figure):
  document = ElementTree.fromstring(svg_document(figure, "salt"))
  return ["".join(node.itertext()) for node in document.iter() if node.tag.endswith("text")]


def points(axes, size):
  return sorted((float(y), round(float(x), 6)) for line in axes.lines
                if line.get_marker() == "o" and line.get_markersize() == size
                for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True))


def test_every_arm_has_its_mean_its_interval_and_its_seeds():
  axes, = ablation_plot(results(*three_seeds()), PAPER).axes
  assert points(axes, 7) == [(0, 72.0), (1, 82.0)]
  assert [x for _, x in points(axes, 4)] == [70.0, 71.0, 75.0, 80.0, 82.0, 84.0]
  spans = [line.get_segments()[0][:, 0] for line in axes.collections]
  # 4.3027 · 2 / √3 = 4.968.
  np.testing.assert_allclose(spans[0], [82 - 4.968, 82 + 4.968], atol=1e-3)
  assert [label.get_text() for label in axes.get_yticklabels()] == ["with", "without"]


def test_the_mean_of_the_first_arm_is_a_line_through_its_panel():
  figure = ablation_plot(results(*three_seeds(), *three_seeds("reduced")), PAPER)
  for axes in figure.axes:
    line, = (line for line in axes.lines if line.get_marker() != "o")
    assert list(line.get_xdata()) == pytest.approx([82.0, 82.0])


def test_measurements_have_panels_of_their_own_with_their_names():
  figure = ablation_plot(results(*three_seeds(), *three_seeds("reduced")), PAPER)
  assert len(figure.axes) == 2
  assert {"Subtasks", "full", "reduced", "with", "without", "accuracy, %"} <= set(texts(figure))
  assert "full" not in texts(ablation_plot(results(*three_seeds()), PAPER))


def test_one_seed_is_a_dot_without_an_interval():
  axes, = ablation_plot(results(("with", "full", 3, numbers(0.5))), PAPER).axes
  assert points(axes, 7) == [(0, 50.0)] and points(axes, 4) == [] and not axes.collections


def test_an_interval_ends_where_accuracies_do():
  cells = [("with", "full", seed, numbers(accuracy)) for seed, accuracy in enumerate((0.5, 1.0))]
  axes, = ablation_plot(results(*cells), PAPER).axes
  assert list(axes.collections[0].get_segments()[0][:, 0]) == [0, 100]


def test_arms_without_an_accuracy_are_left_out_and_nothing_is_no_figure():
  cells = [("with", "full", 0, numbers(None)), ("without", "full", 0, numbers(0.5))]
  axes, = ablation_plot(results(*cells), PAPER).axes
  assert [label.get_text() for label in axes.get_yticklabels()] == ["without"]
  assert ablation_plot(results(cells[0]), PAPER) is None
  assert ablation_plot(results(), PAPER) is None
