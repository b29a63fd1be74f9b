import pytest

from conductor_jax.workflows.plan_metrics import (
    access_density,
    duplicates,
    mean,
    steps_per_plan,
    worker_entropy_bits,
    worker_shares,
)
from conductor_jax.workflows.workflow import Step, Workflow


def workflow(*steps: tuple[int, tuple[int, ...]]) -> Workflow:
  return Workflow(tuple(Step(worker, "Solve it.", sees) for worker, sees in steps))


# Six steps: worker 0 three times, worker 1 twice, worker 3 once.
PLANS = [workflow((0, ()), (0, (0,)), (1, ())), workflow((1, ())), workflow((3, ()), (0, (0,)))]


def test_steps_per_plan_is_the_mean_length():
  assert steps_per_plan(PLANS) == 2.0


def test_worker_shares_count_steps_not_plans():
  assert worker_shares(PLANS, 5) == pytest.approx([1 / 2, 1 / 3, 0, 1 / 6, 0])


def test_entropy_of_halves_thirds_and_sixths():
  # 1/2 * 1 + 1/3 * log2(3) + 1/6 * log2(6)
  assert worker_entropy_bits(PLANS) == pytest.approx(0.5 + 1.5849625 / 3 + 2.5849625 / 6)


def test_entropy_of_four_workers_in_equal_use_is_two_bits():
  assert worker_entropy_bits([workflow((0, ()), (1, ())), workflow((2, ()), (3, ()))]) == 2.0


def test_entropy_of_one_worker_is_a_plain_zero():
  assert str(worker_entropy_bits([workflow((2, ()), (2, ()))])) == "0.0"


def test_access_density_leaves_out_first_steps():
  assert access_density(PLANS) == pytest.approx(2 / 3)


def test_a_duplicate_equals_any_earlier_plan_and_the_first_plan_is_none():
  one, two, three = PLANS
  assert duplicates([one, two, one, three, two, one]) == [False, True, False, True, True]
  assert duplicates([one]) == duplicates([]) == []


def test_plans_that_differ_in_a_worker_a_subtask_or_what_a_step_sees_are_no_duplicates():
  plan = workflow((0, ()), (1, (0,)))
  others = [workflow((0, ()), (2, (0,))), workflow((0, ()), (1, ())), workflow((0, ())),
            Workflow((Step(0, "Check it."), Step(1, "Solve it.", (0,)))),
            Workflow((Step(0, "Solve it.", sees_previous=True), Step(1, "Solve it.", (0,))))]
  assert not any(duplicates([plan, *others]))
  assert duplicates([plan, workflow((0, ()), (1, (0,)))]) == [True]


def test_a_mean_over_nothing_is_none():
  assert mean([]) is None
  assert steps_per_plan([]) is None
  assert worker_entropy_bits([]) is None
  assert worker_shares([], 3) is None
  assert access_density([workflow((0, ()))]) is None
