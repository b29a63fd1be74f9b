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
from conductor_jax.workflows.format import Example
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
VAGUE = ("Help with the question.", "Do your part.")
ROLE_OF = {"almanac": "researcher", "arithmetic": "calculator", "words": "writer",
           "sorting": "solver"}
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


def example_team(
    task: Task, models: Sequence[int], generator: np.random.Generator) -> Example:
  """Draws a plan for a task of the arena as a wordy instruct model might write it.

  It fits the task, and has more than the task needs: every third one a checker at its end, every
  third duty is vague, some answers are shown to who does not need them, and sizes are drawn
  uniformly. Arguments as for `example_plan`.
  """
  skills = understand(task.question).skills

  def chance(share: float) -> bool:
    return bool(generator.random() < share)

  def worker() -> int:
    return models[int(generator.integers(len(models)))]

  def duty(skill: str) -> str:
    options = VAGUE if chance(1 / 3) else SUBTASKS[skill]
    return options[int(generator.integers(len(options)))]

  steps = [Step(worker(), duty(skills[0]))]
  roles = [ROLE_OF[skills[0]] if chance(2 / 3) else "solver"]
  for skill in skills[1:]:
    steps.append(Step(worker(), duty(skill), (0,) if chance(0.8) else ()))
    roles.append(ROLE_OF[skill] if chance(2 / 3) else "solver")
  if chance(1 / 3):
    last = len(steps) - 1
    sees = tuple(i for i in range(len(steps)) if i == last or chance(0.5))
    steps.append(Step(worker(), CHECKS[int(generator.integers(len(CHECKS)))], sees))
    roles.append("checker")
  need = ", then ".join(NEEDS[skill] for skill in skills)
  return Example(task.question, models, f"This needs {need}.", Workflow(tuple(steps)),
                 roles=tuple(roles))


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
