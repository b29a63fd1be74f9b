"""Second rounds of the warm start: they parse, and know nothing of the answer before."""

from collections import Counter

import numpy as np
import pytest

from conductor_jax.arena.plans import example_plan, later_plan, plain_plan
from conductor_jax.arena.specialists import NOISE
from conductor_jax.arena.world import World
from conductor_jax.tasks.graders.text import grade
from conductor_jax.tasks.task import Task
from conductor_jax.workflows.format import Example
from conductor_jax.workflows.lists import ListFormat, parse_lists
from conductor_jax.workflows.workflow import ParsedPlan

MODELS = (1, 4, 6)
TASKS = World(0).tasks("train", 500)
# The 99.9 % quantile of the chi-square distribution, by degrees of freedom.
QUANTILES = {2: 13.82, 4: 18.47}


def drawn(draw, seed: int = 0, tasks=TASKS * 8) -> list[tuple[Task, Example]]:
  generator = np.random.default_rng(seed)
  return [(task, later_plan(task, MODELS, generator, draw)) for task in tasks]


@pytest.fixture(scope="module", params=[example_plan, plain_plan], ids=lambda f: f.__name__)
def plans(request):
  """4000 pairs of a task and what a second round makes of an answer to it."""
  return drawn(request.param)


def kind(task: Task, example: Example) -> str:
  """Of the answer before."""
  if example.previous == NOISE:
    return "lost"
  return "right" if grade(task.reference, example.previous).correct else "wrong"


def counted(pairs) -> np.ndarray:
  """The contingency table of pairs."""
  counts = Counter(pairs)
  rows, columns = (sorted({pair[place] for pair in counts}) for place in (0, 1))
  return np.array([[counts[row, column] for column in columns] for row in rows])


def chi_square(table: np.ndarray) -> float:
  """Pearson's statistic of independence of a table's rows and columns."""
  expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
  assert expected.min() >= 5
  return float(np.sum((table - expected) ** 2 / expected))


def test_a_third_of_the_answers_is_right_a_third_wrong_and_a_third_lost(plans):
  counts = Counter(kind(task, example) for task, example in plans)
  assert set(counts) == {"right", "wrong", "lost"}
  values = np.array(list(counts.values()))
  assert np.sum((values - values.mean()) ** 2 / values.mean()) < QUANTILES[2]


def test_half_of_the_plans_keep_the_answer(plans):
  kept = sum(not example.workflow.steps for _, example in plans)
  # Half of 4000, give or take four standard deviations.
  assert kept == pytest.approx(2000, abs=127)
  assert {example.thought for _, example in plans if not example.workflow.steps} == {
      "This answer can stay."}


def test_keeping_it_is_independent_of_what_answer_it_is(plans):
  table = counted((kind(task, example), len(example.workflow.steps) > 0)
                  for task, example in plans)
  assert table.shape == (3, 2) and table.sum() == 4000
  assert chi_square(table) < QUANTILES[2]


def test_whom_another_plan_asks_and_what_it_opens_is_independent_of_the_answer(plans):
  others = [(kind(task, example), example.workflow.steps[0])
            for task, example in plans if example.workflow.steps]
  by_worker = counted((kind, step.worker) for kind, step in others)
  by_opening = counted((kind, step.sees_previous) for kind, step in others)
  assert (by_worker.shape, by_opening.shape) == ((3, 3), (3, 2))
  assert chi_square(by_worker) < QUANTILES[4]
  assert chi_square(by_opening) < QUANTILES[2]


def test_the_first_step_of_every_fourth_other_plan_sees_the_answer_and_no_other_step_does(plans):
  others = [example.workflow.steps for _, example in plans if example.workflow.steps]
  opened = sum(first.sees_previous for first, *_ in others)
  deviation = (len(others) * 0.25 * 0.75) ** 0.5
  assert abs(opened - len(others) / 4) < 4 * deviation
  assert not any(step.sees_previous for _, *rest in others for step in rest)


@pytest.mark.parametrize("subtasks", [True, False])
@pytest.mark.parametrize("access", ["binary", "positions", "none"])
def test_every_plan_fits_every_format_and_parses_back(plans, access, subtasks):
  format = ListFormat(access=access, subtasks=subtasks)
  for _, example in plans[:600]:
    parsed = parse_lists(format.written(example), format, workers=MODELS, previous=True)
    assert isinstance(parsed, ParsedPlan)
    assert parsed.workflow == format.fitted(example)
    for step, fitted in zip(example.workflow.steps, parsed.workflow.steps, strict=True):
      assert fitted.worker == step.worker
      assert fitted.sees == (() if access == "none" else step.sees)


def test_in_the_first_place_it_is_what_the_draw_makes_of_the_task():
  for task, example in drawn(plain_plan, tasks=TASKS[:50]):
    assert (example.question, example.models) == (task.question, MODELS)
    if example.workflow.steps:
      assert example.workflow.steps[0].subtask == "Answer the question."


@pytest.mark.parametrize("reference", ["", "a\nlong one", "x" * 500, "12"])
def test_a_task_of_any_reference_has_a_short_answer_before(reference):
  task = Task("t", "Why?", reference, "text")
  for _, example in drawn(plain_plan, tasks=[task] * 40):
    assert 0 < len(example.previous) < 80 and "\n" not in example.previous


def test_the_generator_fixes_both_the_answer_and_the_plan():
  def texts(seed):
    return [(example.previous, ListFormat().written(example))
            for _, example in drawn(example_plan, seed, TASKS[:20])]

  assert texts(3) == texts(3) != texts(4)
