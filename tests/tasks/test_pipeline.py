from collections import Counter

import grain
import pytest

from conductor_jax.tasks.pipeline import task_order
from conductor_jax.tasks.task import Task

COUNTS = {"a": 3, "b": 5, "c": 7}
TASKS = [Task(f"{kind}/{i}", f"What is {kind} {i}?", "1", kind)
         for kind, count in COUNTS.items() for i in range(count)]


def ids(order, positions):
  return [order[position].id for position in positions]


@pytest.mark.parametrize("balanced", [False, True])
def test_a_position_has_the_same_task_after_a_restart_wherever_it_begins(balanced):
  order = task_order(TASKS, 3, balanced=balanced)
  first = ids(order, range(100))
  again = task_order(TASKS, 3, balanced=balanced)
  assert ids(again, range(60, 100)) == first[60:]
  assert ids(again, [99, 0, 37]) == [first[99], first[0], first[37]]
  assert ids(task_order(TASKS, 4, balanced=balanced), range(100)) != first


@pytest.mark.parametrize("balanced", [False, True])
def test_a_cursor_goes_on_where_it_was(balanced):
  def cursor():
    return iter(task_order(TASKS, 3, balanced=balanced).batch(4, batch_fn=list).to_iter_dataset())

  original = cursor()
  for _ in range(3):
    next(original)
  state = original.get_state()
  resumed = cursor()
  resumed.set_state(state)
  assert [next(resumed) for _ in range(9)] == [next(original) for _ in range(9)]


def test_every_epoch_has_every_task_once_in_another_order():
  order, size = task_order(TASKS, 3, balanced=False), len(TASKS)
  epochs = [ids(order, range(size * epoch, size * (epoch + 1))) for epoch in range(4)]
  for epoch in epochs:
    assert sorted(epoch) == sorted(task.id for task in TASKS)
  assert len(set(map(tuple, epochs))) == 4


def test_balanced_kinds_come_in_turn_however_many_tasks_they_have():
  order = task_order(TASKS, 3, balanced=True)
  assert [order[i].kind for i in range(9)] == ["a", "b", "c"] * 3
  # 105 is a whole number of epochs of each kind.
  counts = Counter(ids(order, range(3 * 105)))
  assert all(counts[task.id] == 105 / COUNTS[task.kind] for task in TASKS)


def test_the_order_of_tasks_never_changes_between_versions():
  # The published figures of the quickstart depend on it.
  order = task_order(TASKS, 1, balanced=False)
  reference = grain.MapDataset.source(TASKS).seed(1).shuffle().repeat()
  assert ids(order, range(45)) == ids(reference, range(45))
  assert ids(order, range(5)) == ["c/2", "b/2", "b/4", "b/0", "c/0"]
