"""Steps on two batches whose rows have other shapes.

Run as a program, this file is a process with eight devices that takes such a step on all of them.
"""

import json
import warnings
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import optax
import pytest

from conductor_jax.training.batch import Group, GroupedBatch, pack
from conductor_jax.training.optimizer import adamw
from conductor_jax.training.step import abstract_state
from tests.training.gradient_steps import CASES, grid, groups, largest_difference, make
from tests.training.host_devices import reports, start


def later_groups() -> list[Group]:
  """Two more groups of four, further from the policy that sampled them."""
  return [replace(group, advantages=-1.5 * group.advantages,
                  sampler_logprobs=[each - 0.5 for each in group.sampler_logprobs])
          for group in groups()[2:]]


def first_batch(samples: int = 2) -> GroupedBatch:
  return pack(groups(), pad=0, samples_per_row=samples)


def later_batch() -> GroupedBatch:
  """Eight rows of one completion."""
  return pack(later_groups(), pad=0, prompt_multiple=16, samples_per_row=1)


def optimizer() -> optax.GradientTransformationExtraArgs:
  # A large epsilon, lest rounding be blown up to whole steps.
  return adamw(optax.constant_schedule(1e-2), b1=0.9, b2=0.99, weight_decay=0.1,
               mu_dtype="float32", eps=1e-3)


def prepared(case, mesh=(1, 1, 1), micro_batches=2, later_micro_batches=4):
  step, state, _ = make(
      CASES[case], grid(*mesh), optimizer(), micro_batches=micro_batches,
      later_micro_batches=later_micro_batches, clip_norm=0.25,
      steer_entropy=lambda coefficient, entropy: coefficient / 2 + entropy / 10)
  return step, state


@cache
def compiled(case):
  """A step, and its first state on the host."""
  step, state = prepared(case)
  return step, jax.device_get(state), jax.tree.map(lambda x: x.sharding, state)


def fresh(case):
  """The step and a copy of its first state, for it to consume."""
  step, state, shardings = compiled(case)
  return step, jax.device_put(state, shardings, may_alias=False)


def taken(step, state, *batches: GroupedBatch):
  """State, on the host, and measurements after a step."""
  state, measurements = step(state, *batches)
  return jax.device_get(state), {name: float(value) for name, value in measurements.items()}


def in_one_batch(step, state):
  """A step on the same rollouts in one batch, a row for each."""
  return taken(step, state, pack([*groups(), *later_groups()], pad=0, samples_per_row=1))


def assert_same_step(found, expected):
  (state, measurements), (expected_state, expected_measurements) = found, expected
  assert measurements.keys() == expected_measurements.keys()
  for name, value in expected_measurements.items():
    np.testing.assert_allclose(measurements[name], value, rtol=2e-5, atol=2e-6, err_msg=name)
  assert largest_difference(state.params, expected_state.params) < 1e-5
  assert largest_difference(state.optimizer.mu, expected_state.optimizer.mu) < 1e-5
  assert (state.step, state.skipped) == (expected_state.step, expected_state.skipped)
  np.testing.assert_allclose(
      state.entropy_coefficient, expected_state.entropy_coefficient, rtol=1e-5)


@pytest.mark.parametrize("case, samples", [("KL and entropy", 2), ("adapters", 4)])
def test_two_batches_are_one_step_of_the_same_rollouts_in_one_batch(case, samples):
  found = taken(*fresh(case), first_batch(samples), later_batch())
  assert_same_step(found, in_one_batch(*fresh(case)))
  assert found[1]["grad_norm"] > 0.5


def test_the_two_batches_differ_in_all_that_a_step_learns_from_them():
  # Otherwise a mean of means, or one batch twice, would pass for both.
  first, later = (taken(*fresh("KL and entropy"), batch)[1]
                  for batch in (first_batch(), later_batch()))
  for name in ("loss", "entropy", "kl", "grad_norm", "logprob_gap_max"):
    assert abs(first[name] - later[name]) > 1e-3, name
  assert first_batch().completion_mask.sum() == 62 and later_batch().completion_mask.sum() == 26


def nothing(batch: GroupedBatch) -> GroupedBatch:
  return replace(batch, completion_mask=np.zeros_like(batch.completion_mask),
                 advantages=np.full_like(batch.advantages, 3.0))


@pytest.mark.parametrize("teaches", ["the first", "the later"])
def test_a_batch_of_which_nothing_counts_leaves_the_other_one_its_step(teaches):
  first, later = first_batch(), later_batch()
  pair, alone = ((first, nothing(later)), first) if teaches == "the first" else (
      (nothing(first), later), later)
  assert_same_step(taken(*fresh("KL and entropy"), *pair), taken(*fresh("KL and entropy"), alone))


def test_two_batches_of_which_nothing_counts_move_nothing_but_the_counter():
  step, state = fresh("KL and entropy")
  state, _ = step(state, first_batch(), later_batch())
  before = jax.tree.map(np.array, state)
  state, measurements = step(state, nothing(first_batch()), nothing(later_batch()))
  jax.tree.map(np.testing.assert_array_equal, jax.device_get(state), replace(before, step=2))
  assert measurements["skipped"] == measurements["grad_norm"] == 0


@pytest.mark.parametrize("broken", ["the first", "the later"])
def test_a_loss_that_is_not_finite_in_one_of_them_skips_the_step_of_both(broken):
  step, state = fresh("KL and entropy")
  first, later = first_batch(), later_batch()
  state, _ = step(state, first, later)
  before = jax.tree.map(np.array, state)
  values = (first if broken == "the first" else later).advantages
  values[0, 0, 0] = np.nan
  for skipped in (1, 2):
    state, measurements = step(state, first, later)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(state),
                 replace(before, step=1 + skipped, skipped=skipped))
    assert measurements["skipped"] == 1 and not np.isfinite(measurements["loss"])
  state, measurements = step(state, first_batch(), later_batch())
  assert (state.step, state.skipped, measurements["skipped"]) == (4, 0, 0)
  assert largest_difference(jax.device_get(state.params), before.params) > 1e-3


def test_the_state_is_given_away_and_what_is_trained_stays_where_it_is():
  step, state = fresh("KL and entropy")
  # Arrays from the host may lie where no device can write.
  state, _ = step(state, first_batch(), later_batch())
  given = jax.tree.leaves(state)
  places = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state.params)]
  state, _ = step(state, first_batch(), later_batch())
  assert all(leaf.is_deleted() for leaf in given)
  assert [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state.params)] == places


def shapes(tree):
  return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def test_one_batch_is_lowered_to_one_program_and_two_to_three_that_fit_each_other():
  step, state = fresh("KL and entropy")
  abstract = abstract_state(grid(1, 1, 1), state.params, optimizer())
  first, later = (jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), batch)
                  for batch in (first_batch(), later_batch()))
  with warnings.catch_warnings():
    warnings.simplefilter("error")  # for arrays that are given away and of no use
    one, two = step.lower(abstract, first), step.lower(abstract, first, later)
  assert (len(one), len(two)) == (1, 3)
  begin, go_on, finish = (shapes(each.out_info) for each in two)
  assert begin == go_on
  assert begin.totals == shapes(state.params)
  assert finish == shapes(one[0].out_info)


def report() -> dict:
  """What differs on eight devices from one of them, with the rollouts in one batch there."""
  expected, expected_values = in_one_batch(*prepared("KL and entropy"))
  state, values = taken(
      *prepared("KL and entropy", mesh=(2, 2, 2), later_micro_batches=2),
      first_batch(), later_batch())
  return {"values": {name: values[name] - value for name, value in expected_values.items()},
          "parameters": largest_difference(state.params, expected.params)}


def test_eight_devices_take_the_step_of_one():
  found, = reports(start(__file__, devices=8))
  assert {name: value for name, value in found["values"].items() if not abs(value) < 2e-5} == {}
  assert "loss" in found["values"] and found["parameters"] < 1e-5


if __name__ == "__main__":
  print(json.dumps(report()))
