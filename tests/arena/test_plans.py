"""Example plans: they parse, they fit the task, and they tell nothing of the workers."""

from collections import Counter

import numpy as np
import pytest

from conductor_jax.arena.plans import SUBTASKS, example_plan, plain_plan
from conductor_jax.arena.world import KINDS, World, understand
from conductor_jax.workflows.lists import ListFormat, parse_lists
from conductor_jax.workflows.workflow import ParsedPlan

WORKERS = 7
FORMAT = ListFormat()
TASKS = World(0).tasks("train", 500)
# The 99.9 % quantile of the chi-square distribution, by degrees of freedom.
QUANTILES = {2: 13.82, 6: 22.46, 24: 51.18, 36: 67.98, 54: 91.87}


def drawn(draw, seed, tasks=TASKS * 8, models=range(WORKERS)) -> list:
  """Triples (task, text, workflow)."""
  generator = np.random.default_rng(seed)
  examples = [draw(task, models, generator) for task in tasks]
  return [(task, FORMAT.written(example), example.workflow)
          for task, example in zip(tasks, examples, strict=True)]


@pytest.fixture(scope="module", params=[example_plan, plain_plan], ids=lambda f: f.__name__)
def plans(request):
  """4000 triples (task, text, workflow)."""
  return drawn(request.param, 0)


@pytest.fixture(scope="module")
def example_plans():
  return drawn(example_plan, 1)


def chi_square(table: np.ndarray) -> float:
  """Pearson's statistic of independence of a table's rows and columns."""
  expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
  assert expected.min() >= 5
  return float(np.sum((table - expected) ** 2 / expected))


def test_every_plan_parses_back_to_its_workflow(plans):
  for _, text, workflow in plans:
    parsed = parse_lists(text, FORMAT, workers=range(WORKERS))
    assert isinstance(parsed, ParsedPlan) and parsed.workflow == workflow


def test_every_worker_id_is_equally_frequent(plans):
  counts = Counter(step.worker for _, _, workflow in plans for step in workflow.steps)
  assert set(counts) == set(range(WORKERS))
  values = np.array(list(counts.values()))
  assert np.sum((values - values.mean()) ** 2 / values.mean()) < QUANTILES[WORKERS - 1]


def test_worker_ids_are_independent_of_the_kind(plans):
  table = np.zeros((len(KINDS), WORKERS))
  for task, _, workflow in plans:
    for step in workflow.steps:
      table[KINDS.index(task.kind), step.worker] += 1
  assert chi_square(table) < QUANTILES[(len(KINDS) - 1) * (WORKERS - 1)]


def test_worker_ids_are_independent_of_the_subtask_and_of_the_place(example_plans):
  subtasks = sorted({s.subtask for _, _, workflow in example_plans for s in workflow.steps})
  by_subtask, by_place = np.zeros((len(subtasks), WORKERS)), np.zeros((2, WORKERS))
  for _, _, workflow in example_plans:
    for place, step in enumerate(workflow.steps):
      by_subtask[subtasks.index(step.subtask), step.worker] += 1
      by_place[place, step.worker] += 1
  assert chi_square(by_subtask) < QUANTILES[(len(subtasks) - 1) * (WORKERS - 1)]
  assert chi_square(by_place) < QUANTILES[WORKERS - 1]


def test_the_two_ids_of_a_plan_are_independent(example_plans):
  table = np.zeros((WORKERS, WORKERS))
  for _, _, workflow in example_plans:
    if len(workflow.steps) == 2:
      table[workflow.steps[0].worker, workflow.steps[1].worker] += 1
  assert chi_square(table) < QUANTILES[(WORKERS - 1) ** 2]


def test_two_hop_plans_mostly_have_two_steps_with_open_access(example_plans):
  shapes = Counter(
      (len(workflow.steps), workflow.steps[-1].sees)
      for task, _, workflow in example_plans if task.kind == "two-hop")
  total = sum(shapes.values())
  # 92 %, 4 % and 4 % of 1328, give or take three standard deviations of at most 0.8 %.
  assert shapes[2, (0,)] / total == pytest.approx(0.92, abs=0.024)
  assert shapes[2, ()] / total == pytest.approx(0.04, abs=0.018)
  assert shapes[1, ()] / total == pytest.approx(0.04, abs=0.018)


def test_plans_for_one_skill_mostly_have_one_step(example_plans):
  shapes = Counter(
      (len(workflow.steps), workflow.steps[-1].sees)
      for task, _, workflow in example_plans if task.kind != "two-hop")
  total = sum(shapes.values())
  assert shapes[1, ()] / total == pytest.approx(0.96, abs=0.015)
  assert shapes[2, (0,)] / total == pytest.approx(0.02, abs=0.01)
  assert shapes[2, ()] / total == pytest.approx(0.02, abs=0.01)


def test_subtasks_name_the_skills_of_the_question_in_order(example_plans):
  for task, _, workflow in example_plans:
    skills = understand(task.question).skills
    if len(workflow.steps) < len(skills):
      continue
    for skill, step in zip(skills, workflow.steps, strict=False):
      assert step.subtask in SUBTASKS[skill]


def test_plain_plans_answer_half_the_time_and_check_the_other_half():
  workflows = [workflow for _, _, workflow in drawn(plain_plan, 2)]
  checked = [workflow for workflow in workflows if len(workflow.steps) == 2]
  assert len(checked) / len(workflows) == pytest.approx(0.5, abs=0.03)
  assert {workflow.steps[1].sees for workflow in checked} == {(0,)}
  assert {workflow.steps[0].subtask for workflow in workflows} == {"Answer the question."}


def test_the_generator_fixes_the_plan():
  def texts(seed):
    return [text for _, text, _ in drawn(example_plan, seed, TASKS[:20])]

  assert texts(3) == texts(3) != texts(4)


@pytest.mark.parametrize("draw", [example_plan, plain_plan], ids=lambda f: f.__name__)
def test_only_the_workers_on_offer_are_asked_and_each_equally_often(draw):
  plans = drawn(draw, 3, models=(1, 4, 6))
  counts = Counter(step.worker for _, _, workflow in plans for step in workflow.steps)
  assert set(counts) == {1, 4, 6}
  values = np.array(list(counts.values()))
  assert np.sum((values - values.mean()) ** 2 / values.mean()) < QUANTILES[2]


def test_an_example_names_its_question_and_the_models_it_was_drawn_for():
  example = example_plan(TASKS[0], (1, 4, 6), np.random.default_rng(0))
  assert (example.question, example.models, example.previous) == (
      TASKS[0].question, (1, 4, 6), None)
