"""Files that are written tensor by tensor hold what the library reads back."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from conductor_jax.models.safetensors_writer import write_safetensors

# Smaller than what is converted at a time, larger in one direction or both, and without any whole
# number of it; a vector; nothing at all.
SHAPES = [(3, 5), (70, 200), (3000, 2001), (4_000_001,), (0, 4)]


def random(shape):
  return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("held, dtype", [
    ("float32", "float32"), ("float32", "bfloat16"), ("bfloat16", "bfloat16"),
    ("bfloat16", "float16")])
def test_arrays_of_any_order_and_dtype(tmp_path, held, dtype, order):
  arrays = {f"{number}": np.asarray(random(shape).astype(held), order=order)
            for number, shape in enumerate(SHAPES)}
  write_safetensors(
      tmp_path / "file", {name: array.shape for name, array in arrays.items()}, dtype,
      arrays.__getitem__)
  loaded = load_file(tmp_path / "file")
  assert loaded.keys() == arrays.keys()
  for name, array in arrays.items():
    expected = array.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    assert loaded[name].dtype == expected.dtype
    assert loaded[name].tobytes() == expected.tobytes()


def test_a_slice_of_a_stack_is_rounded_as_devices_round(tmp_path):
  stack = random((4, 100, 80))
  # Halfway between two bfloat16 numbers, with an even and an odd one below.
  stack[2:] = [[[1 + 2**-8]], [[1 + 3 * 2**-8]]]
  write_safetensors(
      tmp_path / "file", {str(layer): (80, 100) for layer in range(len(stack))}, "bfloat16",
      lambda name: stack[int(name)].T)
  loaded = load_file(tmp_path / "file")
  for layer, matrix in enumerate(stack):
    expected = np.asarray(jnp.asarray(matrix.T).astype(jnp.bfloat16))
    np.testing.assert_array_equal(loaded[str(layer)].view("u2"), expected.view("u2"))


def test_the_next_tensor_is_asked_for_before_one_is_written(tmp_path):
  path, megabytes = tmp_path / "file", []

  def tensor(_):
    megabytes.append(path.stat().st_size / 1e6)
    return np.ones(1_000_000, np.float32)

  write_safetensors(path, dict.fromkeys("abc", (1_000_000,)), "float32", tensor)
  assert megabytes == pytest.approx([0, 0, 4], abs=0.2)
  assert path.stat().st_size / 1e6 == pytest.approx(12, abs=0.2)


def test_a_tensor_of_another_shape_than_was_said_is_an_error(tmp_path):
  with pytest.raises(ValueError, match=r"^weight is \(2,\), not \(3,\)$"):
    write_safetensors(
        tmp_path / "file", {"weight": (3,)}, "float32", lambda _: np.ones(2, np.float32))
