"""Example plans for the warm start, as an untaught instruct model might write them.

They fit the task: a short line says what it needs, subtasks follow from it, and a two-hop task
mostly gets two steps with open access. They know nothing of the workers: ids are drawn uniformly,
whatever the task. In a later round they know nothing of the answer before, either: every second one
leaves it as it is, right or wrong.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from conductor_jax.arena.specialists import NOISE, answered, slip
from conductor_jax.arena.world import understand
from conductor_jax.tasks.task import Task
from conductor_jax.workflows.few_shot import Example
from conductor_jax.workflows.workflow import Step, Workflow

NEEDS = {
    "almanac": "the almanac",
    "arithmetic": "a calculation",
    "words": "spelling",
    "sorting": "order",
}
SUBTASKS = {
    "almanac": ("Look it up in the almanac.", "Find it in the almanac."),
    "arithmetic": ("Do the calculation.", "Calculate the result."),
    "words": ("Spell it as asked.", "Rewrite it as asked."),
    "sorting": ("Order or count as asked.", "Count or order as asked."),
}
CHECKS = ("Check the answer.", "Answer the question.")


# Draws a plan for a task of whatever kind, with workers of these numbers.
DrawPlan = Callable[[Task, Sequence[int], np.random.Generator], Example]


def example_plan(
    task: Task, models: Sequence[int], generator: np.random.Generator) -> Example:
  """Draws a plan for a task of the arena.

  Args:
    task: one of `World.tasks`.
    models: the numbers of the workers on offer.
    generator: the source of every choice.
  """
  skills = understand(task.question).skills
  worker_ids = [models[int(i)] for i in generator.integers(len(models), size=2)]
  draw = generator.random()

  def subtask(skill: str) -> str:
    return SUBTASKS[skill][int(generator.integers(len(SUBTASKS[skill])))]

  subtasks = [subtask(skill) for skill in skills]
  if len(skills) == 1:
    opened = ()
    if draw < 0.04:
      subtasks.append(CHECKS[int(generator.integers(len(CHECKS)))])
      opened = (0,) if draw < 0.02 else ()
  else:
    opened = (0,) if draw < 0.92 else ()
    if draw >= 0.96:
      subtasks = [CHECKS[1]]
  sees = [(), opened]
  workflow = Workflow(tuple(
      Step(worker_ids[i], text, sees[i]) for i, text in enumerate(subtasks)))
  need = ", then ".join(NEEDS[skill] for skill in skills)
  return Example(task.question, models, f"This needs {need}.", workflow)


def plain_plan(task: Task, models: Sequence[int], generator: np.random.Generator) -> Example:
  """Draws a plan for a task of any kind: one worker answers, or a second one checks its answer.

  Arguments as for `example_plan`; what the task asks does not matter.
  """
  worker_ids = [models[int(i)] for i in generator.integers(len(models), size=2)]
  answer = Step(worker_ids[0], "Answer the question.")
  if generator.random() < 0.5:
    need, steps = "one answer", (answer,)
  else:
    need = "an answer, then a check"
    steps = (answer, Step(worker_ids[1], "Check the answer and correct it.", (0,)))
  return Example(task.question, models, f"This needs {need}.", Workflow(steps))


def later_plan(
    task: Task, models: Sequence[int], generator: np.random.Generator, draw: DrawPlan) -> Example:
  """Draws the answer of a first round, and what a second one makes of it.

  Args:
    task, models, generator: as for `example_plan`.
    draw: draws plans of a first round.
  """
  kind = int(generator.integers(3))
  right = task.reference.splitlines()[0][:40] if task.reference else "none"
  previous = NOISE if kind == 2 else answered(slip(right, generator) if kind else right)
  if generator.random() < 0.5:
    return Example(task.question, models, "This answer can stay.", Workflow(()), previous)
  example = draw(task, models, generator)
  first, *others = example.workflow.steps
  if generator.random() < 0.25:
    first = replace(first, sees_previous=True)
  return replace(example, workflow=Workflow((first, *others)), previous=previous)
