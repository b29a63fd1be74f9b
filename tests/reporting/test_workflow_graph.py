"""The graph of a plan: which steps and arrows it has, where they stand, and what they say."""

import html
import re
import xml.etree.ElementTree as ElementTree

import pytest

from conductor_jax.reporting.token_picture import Scales
from conductor_jax.reporting.workflow_graph import workflow_graph

FULL = Scales(0.0, 1.0)
WORKERS = ["small", "large"]


def step(*sees, worker=0, subtask="Solve it.", previous=False):
  return {"worker": worker, "subtask": subtask, "sees": list(sees), "sees_previous": previous}


def taken(target, removed, delta):
  return {"family": "dependency", "step": target, "span": [0, 1], "removed": removed,
          "delta": delta}


def drawn(*plan, calls=(), counterfactuals=()):
  text = workflow_graph({"plan": list(plan), "calls": list(calls),
                         "counterfactuals": list(counterfactuals)}, WORKERS, FULL)
  return ElementTree.fromstring(text)


def parts(graph, kind):
  return [each for each in graph.iter("g") if kind in each.get("class").split()]


def titles(graph, kind):
  return [each.find("title").text for each in parts(graph, kind)]


def boxes(graph):
  """Left, top, right and bottom of each step."""
  found = []
  for each in parts(graph, "step"):
    x, y, width, height = (float(each.find("rect").get(name))
                           for name in ("x", "y", "width", "height"))
    found.append((x, y, x + width, y + height))
  return found


def words(part):
  """The lines of text in a step."""
  return ["".join(each.itertext()) for each in part.iter("text")]


def test_a_step_has_its_number_its_worker_and_the_beginning_of_its_subtask():
  first, last = parts(drawn(
      step(subtask="Find the height of the tower and the year in which it was built."),
      step(worker=1, subtask="Add.")), "step")
  assert words(first) == ["0 small", "Find the height of the", "tower and the year in whi…"]
  assert words(last) == ["1 large", "Add.", "answer"]
  assert first.find("title").text == (
      "step 0, small: Find the height of the tower and the year in which it was built.")


def test_the_last_step_alone_is_marked_as_the_answer_s():
  graph = drawn(step(), step(0), step(0, 1))
  assert [each.get("class") for each in parts(graph, "step")] == ["step", "step", "step last"]
  assert [words(each)[-1] == "answer" for each in parts(graph, "step")] == [False, False, True]


def test_there_is_an_arrow_for_every_answer_that_is_seen():
  graph = drawn(step(), step(), step(), step(0, 1), step(0, 1, 2, 3))
  assert titles(graph, "arrow") == [
      "step 3 sees step 0", "step 3 sees step 1", "step 4 sees step 0", "step 4 sees step 1",
      "step 4 sees step 2", "step 4 sees step 3"]
  assert graph.get("aria-label") == (
      "Workflow of 5 steps; 3 sees 0, 1; 4 sees 0, 1, 2, 3")
  assert titles(drawn(step(), step()), "arrow") == []


def test_a_step_stands_right_of_all_that_it_sees():
  graph = drawn(step(), step(), step(), step(0, 1), step(0, 1, 2, 3))
  lefts = [left for left, *_ in boxes(graph)]
  assert lefts[0] == lefts[1] == lefts[2] < lefts[3] < lefts[4]


@pytest.mark.parametrize("plan", [
    [step()], [step(*range(i)) for i in range(8)], [step() for _ in range(6)],
    [step(), step(), step(), step(0, 1), step(0, 1, 2, 3)],
    [step(previous=True), step(), step(0, 1), step(1, previous=True)]])
def test_nothing_overlaps_and_everything_is_inside(plan):
  graph = drawn(*plan)
  width, height = float(graph.get("width")), float(graph.get("height"))
  found = boxes(graph)
  for index, (left, top, right, bottom) in enumerate(found):
    assert 0 <= left and right <= width and top >= 10 and bottom <= height
    for other in found[index + 1:]:
      assert right < other[0] or other[2] < left or bottom < other[1] or other[3] < top
  for each in parts(graph, "arrow"):
    for x, y in points(each):
      assert 0 <= x <= width and 0 <= y <= height
      # An arrow passes by the steps between its ends.
      assert not any(left < x < right and top < y < bottom for left, top, right, bottom in found)


def points(arrow):
  """Corners of an arrow's line, and the middles of what lies level between two of them."""
  path = arrow.find("path").get("d")
  x, y = map(float, re.match(r"M([\d.]+) ([\d.]+)", path).groups())
  found = [(x, y)]
  for command, numbers in re.findall(r"([CH])([\d. ]+)", path):
    values = list(map(float, numbers.split()))
    if command == "H":
      found.append(((x + values[0]) / 2, y))
      x = values[0]
    else:
      x, y = values[-2:]
    found.append((x, y))
  return found


def test_an_arrow_leads_from_the_side_of_its_source_to_that_of_its_target():
  graph = drawn(step(), step(0))
  (_, top, right, bottom), (left, *_) = boxes(graph)
  arrow, = parts(graph, "arrow")
  line, head = (path.get("d") for path in arrow.findall("path"))
  centre = (top + bottom) / 2
  assert line.startswith(f"M{right:.0f} {centre:.1f}C")
  assert head == f"M{left:.0f} {centre:.1f}l-7 -4v8z"


@pytest.mark.parametrize(("delta", "classes", "style", "label"), [
    (0.5, "wanted arrow taken", "--share:50%", "Δ +0.5"),
    (-1.0, "unwanted arrow taken", "--share:100%", "Δ −1"),
    (0.0, "arrow taken", None, "Δ 0"), (None, "arrow taken", None, "no verdict")])
def test_what_a_counterfactual_took_away_is_dashed_in_the_colour_of_its_delta(
    delta, classes, style, label):
  graph = drawn(step(), step(), step(0, 1), counterfactuals=[taken(2, [1], delta)])
  plain, dashed = parts(graph, "arrow")
  assert (plain.get("class"), dashed.get("class"), dashed.get("style")) == ("arrow", classes, style)
  assert dashed.find("title").text == f"step 2 sees step 1; without 1: {label}"
  assert [each.text for each in graph.findall("text")] == [label]


def test_what_was_taken_together_has_one_number():
  graph = drawn(step(), step(), step(), step(0, 1, 2), counterfactuals=[taken(3, [0, 1, 2], 0.5)])
  assert len(parts(graph, "taken")) == 3
  assert [each.text for each in graph.findall("text")] == ["Δ +0.5"]
  assert titles(graph, "taken")[2] == "step 3 sees step 2; without 0, 1, 2: Δ +0.5"


def test_an_arrow_that_was_taken_twice_tells_both_and_has_the_colour_of_the_first_verdict():
  graph = drawn(step(), step(0), counterfactuals=[
      taken(1, [0], None), taken(1, [0], -0.5), taken(1, [0], 1.0)])
  arrow, = parts(graph, "arrow")
  assert arrow.get("class") == "unwanted arrow taken"
  assert [each.text for each in graph.findall("text")] == ["no verdict; Δ −0.5; Δ +1"]


def test_other_counterfactuals_leave_the_graph_as_it_is():
  duty = {"family": "duty", "step": 1, "span": [0, 1], "removed": [], "delta": 1.0}
  plan = (step(), step(0))
  assert ElementTree.tostring(drawn(*plan, counterfactuals=[duty])) == ElementTree.tostring(
      drawn(*plan))


def test_numbers_of_arrows_that_cross_do_not_overlap():
  plan = (step(), step(), step(0, 1), step(0, 1))
  # The two arrows cross in their middles.
  alone = [drawn(*plan, counterfactuals=[each]).find("text")
           for each in (taken(2, [1], 0.25), taken(3, [0], 0.5))]
  assert [each.get("x") for each in alone] == 2 * [alone[0].get("x")]
  assert abs(float(alone[0].get("y")) - float(alone[1].get("y"))) < 10
  both = drawn(*plan, counterfactuals=[taken(2, [1], 0.25), taken(3, [0], 0.5)]).findall("text")
  ys = sorted(float(each.get("y")) for each in both)
  assert len(ys) == 2 and ys[1] - ys[0] >= 15


def test_the_answer_of_the_round_before_is_seen_from_a_place_of_its_own():
  graph = drawn(step(previous=True), step(0, previous=True))
  assert titles(graph, "arrow") == [
      "step 0 sees the round before", "step 1 sees the round before", "step 1 sees step 0"]
  before, = parts(graph, "before")
  assert words(before) == ["answer of round before"]
  assert boxes(graph)[0][2] < boxes(graph)[1][0]


def test_the_calls_name_the_workers_else_the_pool_else_their_ids():
  calls = [{"worker": "called"}, {"worker": "again"}]
  assert [words(each)[0] for each in parts(drawn(step(), step(0), calls=calls), "step")] == [
      "0 called", "1 again"]
  assert [words(each)[0] for each in parts(drawn(step(worker=1), step(worker=7)), "step")] == [
      "0 large", "1 worker 7"]


def test_long_names_and_wide_letters_are_cut_to_fit():
  node, = parts(drawn(step(subtask="塔" * 40), calls=[{"worker": "Qwen/Qwen2.5-72B-Instruct"}]),
                "step")
  assert words(node)[:3] == ["0 Qwen/Qwen2.5-72B-I…", "塔" * 13, "塔" * 12 + "…"]


def test_a_long_word_is_broken():
  node, = parts(drawn(step(subtask="see " + "x" * 60)), "step")
  assert words(node)[1:3] == ["see " + "x" * 22, "x" * 25 + "…"]


def test_what_a_model_wrote_is_escaped():
  evil = "</svg><script>1</script>&\"'"
  text = workflow_graph({"plan": [step(subtask=evil)], "calls": [{"worker": evil}]}, WORKERS, FULL)
  assert "<script" not in text and text.count(html.escape(evil)) == 2
  assert titles(ElementTree.fromstring(text), "step") == [f"step 0, {evil}: {evil}"]


@pytest.mark.parametrize("plan", ["no lists", []])
def test_there_is_no_graph_without_steps(plan):
  assert workflow_graph({"plan": plan, "calls": []}, WORKERS, FULL) == ""


def test_steps_of_older_logs_that_say_less_are_drawn_alone():
  graph = ElementTree.fromstring(
      workflow_graph({"plan": [{"worker": 1}], "calls": []}, WORKERS, FULL))
  assert [words(each) for each in parts(graph, "step")] == [["0 large", "answer"]]
