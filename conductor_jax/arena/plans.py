"""Example plans for the warm start, as an untaught instruct model might write them.

They fit the task: a short line says what it needs, subtasks follow from it, and a two-hop task
mostly gets two steps with open access. They know nothing of the workers: ids are drawn uniformly,
whatever the task.
"""

import numpy as np

from conductor_jax.arena.world import understand
from conductor_jax.tasks.task import Task
from conductor_jax.workflows.lists import render_lists
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


def example_plan(task: Task, workers: int, generator: np.random.Generator) -> tuple[str, Workflow]:
  """Draws a plan for a task of the arena.

  Args:
    task: one of `World.tasks`.
    workers: how many workers are on offer.
    generator: the source of every choice.

  Returns:
    A completion text and the plan it holds.
  """
  skills = understand(task.question).skills
  worker_ids = [int(i) for i in generator.integers(workers, size=2)]
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
  return f"This needs {need}.\n{render_lists(workflow)}", workflow


def plain_plan(task: Task, workers: int, generator: np.random.Generator) -> tuple[str, Workflow]:
  """Draws a plan for a task of any kind: one worker answers, or a second one checks its answer.

  Arguments and returns as for `example_plan`; the task does not matter.
  """
  del task
  worker_ids = [int(i) for i in generator.integers(workers, size=2)]
  answer = Step(worker_ids[0], "Answer the question.")
  if generator.random() < 0.5:
    need, steps = "one answer", (answer,)
  else:
    need = "an answer, then a check"
    steps = (answer, Step(worker_ids[1], "Check the answer and correct it.", (0,)))
  workflow = Workflow(steps)
  return f"This needs {need}.\n{render_lists(workflow)}", workflow
