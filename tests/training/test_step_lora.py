"""A step that trains adapters beside a frozen base."""

import jax
import numpy as np
import optax
import pytest

from conductor_jax.training.batch import pack
from conductor_jax.training.optimizer import adamw
from tests.training.gradient_steps import CASES, LORA, grid, groups, make

ADAPTERS = {f"{target}_lora_{part}" for target in LORA.targets for part in "ab"}


@pytest.fixture(scope="module")
def trained():
  """The state before and after two steps, and what is frozen, before and after."""
  optimizer = adamw(
      optax.constant_schedule(1e-2), b1=0.9, b2=0.99, weight_decay=0.0, mu_dtype="float32")
  step, state, frozen = make(CASES["adapters"], grid(1, 1, 1), optimizer)
  before = jax.tree.map(np.array, (state, frozen))
  for _ in range(2):
    state, _ = step(state, pack(groups(), pad=0))
  return before, (state, frozen)


def test_only_adapters_are_in_the_state_and_every_one_is_trained(trained):
  (before, _), (after, _) = trained
  for tree in (after.params, after.optimizer.mu, after.optimizer.nu):
    assert tree.keys() == {"layers"} and tree["layers"].keys() == ADAPTERS
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(tree))
  for name in ADAPTERS:
    moved = np.abs(np.asarray(after.params["layers"][name]) - before.params["layers"][name])
    # Twice Adam's step.
    assert 0.01 < moved.max() < 0.021


def test_the_frozen_base_stays_bit_for_bit_and_in_bfloat16(trained):
  (_, before), (_, after) = trained
  assert "query" in after["layers"] and "embedding" in after
  for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
    assert new.dtype == jax.numpy.bfloat16
    assert np.asarray(new).tobytes() == old.tobytes()
