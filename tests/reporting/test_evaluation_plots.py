import re
from xml.etree import ElementTree

import numpy as np
import pytest

from conductor_jax.reporting.evaluation_plots import accuracy_by_cost, pareto_front, worker_use
from conductor_jax.reporting.evaluation_table import strategy_labels
from conductor_jax.reporting.figure import PAGE, PAPER, inline_svg, svg_document
from conductor_jax.reporting.page import page
from conductor_jax.reporting.point_labels import place_labels
from tests.reporting.evaluations import WORKERS, evaluation, hand_made

FRAME = np.array([0.0, 0.0, 700.0, 380.0])


def texts(figure):
  document = ElementTree.fromstring(svg_document(figure, "salt"))
  return ["".join(node.itertext()) for node in document.iter() if node.tag.endswith("text")]


def cost_figure(results, palette=PAPER):
  return accuracy_by_cost(results["mean"]["strategies"], strategy_labels(results), palette)


def boxes(centres, sizes):
  return np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)


def overlaps(boxes):
  common = (np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
            - np.maximum(boxes[:, None, :2], boxes[None, :, :2]))
  return int(((common > 0).all(axis=-1).sum() - len(boxes)) / 2)


def test_the_front_is_what_nothing_beats():
  costs = [1.0, 2.0, 3.0, 3.0, 4.0, 0.5]
  accuracies = [0.5, 0.4, 0.7, 0.6, 0.7, 0.1]
  assert pareto_front(costs, accuracies) == [5, 0, 2]


def test_points_alike_are_on_the_front_together():
  assert pareto_front([1.0, 1.0, 2.0], [0.5, 0.5, 0.5]) == [0, 1]
  assert pareto_front([], []) == []


@pytest.mark.parametrize("seed", range(6))
def test_no_two_labels_of_twelve_points_overlap_and_all_are_in_the_frame(seed):
  generator = np.random.default_rng(seed)
  places = generator.uniform([60, 120], [640, 300], size=(12, 2))
  sizes = np.stack([generator.uniform(40, 130, size=12), np.full(12, 12.0)], axis=1)
  placed = boxes(place_labels(places, sizes, boxes(places, np.full((12, 2), 10.0)), FRAME), sizes)
  assert overlaps(placed) == 0
  assert (placed[:, :2] >= FRAME[:2]).all() and (placed[:, 2:] <= FRAME[2:]).all()


def test_labels_of_points_in_one_place_stand_around_it():
  places, sizes = np.full((6, 2), 200.0), np.tile([80.0, 12.0], (6, 1))
  assert overlaps(boxes(place_labels(places, sizes, np.empty((0, 4)), FRAME), sizes)) == 0


def test_a_label_makes_way_for_a_line():
  place, size = np.array([[300.0, 200.0]]), np.array([[80.0, 12.0]])
  line = np.array([[300.0, 199.0, 700.0, 201.0]])  # to the right
  box, = boxes(place_labels(place, size, line, FRAME), size)
  assert box[1] >= 201 or box[3] <= 199 or box[2] <= 300


def test_a_label_at_the_edge_stays_in_the_frame():
  place, size = np.array([[695.0, 375.0]]), np.array([[80.0, 12.0]])
  box, = boxes(place_labels(place, size, np.empty((0, 4)), FRAME), size)
  assert box[2] <= 700 and box[3] <= 380


def test_every_strategy_with_an_accuracy_is_named():
  results = evaluation(strategies=("conductor", "best_single_worker", "small"))
  results["mean"]["strategies"]["small"]["accuracy"] = None
  found = texts(cost_figure(results))
  assert {"conductor", "best single worker (large)", "dollars per question"} <= set(found)
  assert "small" not in found


def test_nothing_to_draw_is_no_figure():
  assert cost_figure(hand_made(a={"accuracy": None, "accuracy_interval": None})) is None
  assert accuracy_by_cost({}, {}, PAPER) is None


def test_costs_are_on_a_logarithmic_axis_with_plain_numbers():
  figure = cost_figure(evaluation(cost=lambda index: 10.0 ** (index - 5)))
  assert figure.axes[0].get_xscale() == "log"
  assert {"0.00001", "0.0001", "0.001"} <= set(texts(figure))
  assert not any("e-" in text for text in texts(figure))


def test_what_costs_nothing_has_a_place_of_its_own_left_of_all_that_does():
  figure = cost_figure(evaluation(cost=lambda index: [0.0, 0.002, 0.01][index]))
  axes = figure.axes[0]
  assert "0" in texts(figure)
  places = sorted(x for line in axes.lines if line.get_marker() == "o" for x in line.get_xdata())
  assert 0 < places[0] < 0.002 <= places[1] and axes.get_xlim()[0] < places[0]


def test_where_nothing_costs_anything_tokens_stand_in_for_dollars():
  figure = cost_figure(evaluation(cost=lambda index: 0.0))
  found = texts(figure)
  assert "worker tokens per question" in found and "dollars per question" not in found


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
def test_accuracies_at_the_edge_are_drawn_whole(accuracy):
  figure = cost_figure(evaluation(accuracy=lambda index: accuracy))
  low, high = figure.axes[0].get_ylim()
  assert low < 100 * accuracy < high


def test_worker_use_has_a_bar_for_each_benchmark_and_a_name_for_each_worker():
  results = evaluation(strategies=("conductor", "best_single_worker", "small"))
  figure = worker_use(results, strategy_labels(results), PAPER)
  assert {"gsm8k", "mmlu", "conductor", *WORKERS, "share of the steps"} <= set(texts(figure))
  for axes in figure.axes:
    widths = np.array([[patch.get_width() for patch in bars] for bars in axes.containers])
    np.testing.assert_allclose(widths.sum(axis=0), 1)


def test_strategies_that_always_ask_the_same_worker_are_left_out_of_worker_use():
  results = evaluation(strategies=("conductor", "small"))
  assert len(worker_use(results, strategy_labels(results), PAPER).axes) == 1
  alone = evaluation(strategies=("small",))
  assert worker_use(alone, strategy_labels(alone), PAPER) is None


def test_twelve_workers_differ_in_colour_or_hatching():
  results = evaluation(strategies=("conductor",), workers=tuple(f"w{i}" for i in range(12)))
  axes, = worker_use(results, strategy_labels(results), PAPER).axes
  looks = {(bars[0].get_facecolor(), bars[0].get_hatch()) for bars in axes.containers}
  assert len(looks) == 12


def test_a_figure_on_a_page_has_the_pages_colours_and_one_on_paper_its_own():
  results = evaluation()
  svg = inline_svg(cost_figure(results, PAGE), "cost", "Cost")
  assert {"--ink", "--grid", "--ground", "--series-0"} <= set(re.findall(r"var\((.*?)\)", svg))
  assert not re.search(r"#0a0[ab]", svg)
  paper = svg_document(cost_figure(results), "salt")
  assert PAPER.ground in paper and not re.search(r"#0a0[ab]|var\(", paper)


def test_the_colours_on_paper_are_those_of_a_page_in_a_light_room():
  light = page("run", "report", []).split("prefers-color-scheme: dark")[0]
  colours = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{3,6});", light))

  def whole(colour):
    return colour if len(colour) == 7 else "#" + "".join(2 * digit for digit in colour[1:])

  assert (PAPER.ink, PAPER.grid, PAPER.ground) == tuple(
      whole(colours[name]) for name in ("ink", "grid", "ground"))
  assert PAPER.series == tuple(whole(colours[f"series-{i}"]) for i in range(7))
