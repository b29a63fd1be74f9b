import pytest

from conductor_jax.workers.call import Usage
from conductor_jax.workflows.workflow import Step, Workflow


@pytest.mark.parametrize("sees", [(2,), (1,), (-1,), (0, 0), (5,)])
def test_a_step_sees_distinct_earlier_steps_only(sees):
  with pytest.raises(ValueError, match="step 1"):
    Workflow((Step(0, "a"), Step(0, "b", sees)))


def test_what_a_step_sees_is_ascending():
  steps = (Step(0, "a"), Step(0, "b"))
  assert Workflow((*steps, Step(0, "c", (0, 1)))).steps[2].sees == (0, 1)
  with pytest.raises(ValueError, match=r"step 2 .*\(1, 0\)"):
    Workflow((*steps, Step(0, "c", (1, 0))))


def test_a_workflow_without_steps_has_no_depth():
  assert (Workflow(()).steps, Workflow(()).heights, Workflow(()).depth) == ((), (), 0)


def test_steps_that_see_the_answer_before_differ_from_those_that_do_not():
  assert Step(0, "a") != Step(0, "a", (), True)
  assert not Step(0, "a").sees_previous


def test_equal_plans_are_equal_and_hash_alike():
  one, other = (Workflow((Step(1, "a"), Step(0, "b", (0,)))) for _ in range(2))
  assert one == other
  assert len({one, other, Workflow((Step(1, "a"),))}) == 2


def test_usage_adds_up():
  assert Usage(1, 2, 0.5) + Usage(10, 20, 0.25) == Usage(11, 22, 0.75)
  assert Usage(11, 22, 0.75).tokens == 33


@pytest.mark.parametrize(("sees", "heights"), [
    (((),), (1,)), (((), (), ()), (1, 1, 1)), (((), (0,), (1,)), (3, 2, 1)),
    (((), (), (0, 1)), (2, 2, 1)), (((), (0,), (0,), (1, 2)), (3, 2, 2, 1)),
    (((), (0,), ()), (2, 1, 1)), (((), (), (1,), (0,), (2, 3)), (3, 3, 2, 2, 1)),
    (((), (0,), (0, 1)), (3, 2, 1))])
def test_a_steps_height_and_the_depth_are_lengths_of_longest_chains(sees, heights):
  workflow = Workflow(tuple(Step(0, "a", seen) for seen in sees))
  assert workflow.heights == heights
  assert workflow.depth == max(heights)
