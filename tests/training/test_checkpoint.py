import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conductor_jax.errors import UserError
from conductor_jax.training.checkpoint import Checkpoints
from conductor_jax.training.step import TrainState


def state(value: float) -> TrainState:
  query = jnp.full((2, 3), value, jnp.float32)
  return TrainState(
      params={"layers": {"query": query}, "embedding": jnp.arange(4.0) + value},
      optimizer=(jnp.int32(7), {"layers": {"query": -query}}),
      step=jnp.int32(value), skipped=jnp.int32(0), entropy_coefficient=jnp.float32(value / 3))


@pytest.fixture
def said():
  return []


@pytest.fixture
def checkpoints(tmp_path, said):
  opened = Checkpoints(tmp_path / "grpo", keep=3, say=said.append)
  yield opened
  opened.close()


def damage(folder, step):
  """Flips one byte in the middle of the largest file."""
  largest = max((p for p in (folder / str(step)).rglob("*") if p.is_file()),
                key=lambda p: p.stat().st_size)
  content = bytearray(largest.read_bytes())
  content[len(content) // 2] ^= 0xFF
  largest.write_bytes(content)


def test_what_was_saved_comes_back_bit_for_bit_with_its_record(checkpoints):
  saved = state(np.float32(0.1))
  checkpoints.save(5, saved, {"cursor": {"next_index": 3}, "seconds": 1.5})
  step, restored, record = checkpoints.restore(state(0.0))
  assert step == 5
  jax.tree.map(np.testing.assert_array_equal, saved, restored)
  assert record == {"cursor": {"next_index": 3}, "seconds": 1.5}


def test_an_empty_folder_holds_nothing(checkpoints):
  assert checkpoints.newest() is None
  assert checkpoints.restore(state(0.0)) is None


def test_the_newest_are_kept(checkpoints):
  for step in range(1, 6):
    checkpoints.save(step, state(step), {})
  assert sorted(int(p.name) for p in checkpoints.folder.iterdir()) == [3, 4, 5]
  assert checkpoints.restore(state(0.0))[0] == 5


def test_a_damaged_checkpoint_is_told_set_aside_and_the_one_before_it_read(checkpoints, said):
  for step in (1, 2):
    checkpoints.save(step, state(step), {})
  damage(checkpoints.folder, 2)
  step, restored, _ = checkpoints.restore(state(0.0))
  assert step == 1
  np.testing.assert_array_equal(restored.params["embedding"], np.arange(4.0) + 1)
  assert len(said) == 1 and f"{checkpoints.folder / '2'} is corrupt" in said[0]
  assert checkpoints.folder.with_name("grpo-2.corrupt").is_dir()
  checkpoints.save(2, state(2), {})
  assert checkpoints.restore(state(0.0))[0] == 2


def test_where_none_can_be_read_all_are_left_and_the_remedy_is_told(checkpoints):
  for step in (1, 2):
    checkpoints.save(step, state(step), {})
    damage(checkpoints.folder, step)
  with pytest.raises(UserError, match="none of the checkpoints .* can be read: restore one"):
    checkpoints.restore(state(0.0))
  assert sorted(int(p.name) for p in checkpoints.folder.iterdir()) == [1, 2]


def test_a_checkpoint_torn_by_a_crash_does_not_count(checkpoints, tmp_path, said):
  checkpoints.save(1, state(1), {})
  (checkpoints.folder / "2.orbax-checkpoint-tmp").mkdir()
  reopened = Checkpoints(checkpoints.folder, keep=3, say=said.append)
  assert reopened.restore(state(0.0))[0] == 1
  reopened.close()
