"""The order in which tasks are trained on, a function of the seed and the position alone."""

from collections.abc import Sequence

import grain

from conductor_jax.tasks.task import Task


def task_order(tasks: Sequence[Task], seed: int, *, balanced: bool) -> grain.MapDataset:
  """Tasks without an end, shuffled anew in every epoch.

  Args:
    tasks: to train on.
    seed: of the shuffles.
    balanced: whether every kind comes equally often, in turn. If not, every task does.

  Returns:
    A data set with a task at every position, whichever was asked for before: to go on after an
    interruption takes the position and nothing else.
  """
  if not balanced:
    return grain.MapDataset.source(tasks).seed(seed).shuffle().repeat()
  kinds: dict[str, list[Task]] = {}
  for task in tasks:
    kinds.setdefault(task.kind, []).append(task)
  return grain.MapDataset.mix(
      [task_order(group, seed, balanced=False) for group in kinds.values()]).seed(seed)
