import pytest

from conductor_jax.errors import OutOfBudget
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workflows.transcript import Transcript, refuse_over_budget
from conductor_jax.workflows.workflow import Step, Workflow

PLAN = Workflow((Step(0, "a"), Step(0, "b", (0,))))


def transcript(*outcomes, error=None):
  return Transcript(
      PLAN, [CallRecord("w", {}, "", Usage(), 0.0, 1, outcome, error) for outcome in outcomes],
      None, Usage())


@pytest.mark.parametrize(("outcomes", "unavailable"), [
    (("answered", "truncated"), False), (("refused", "skipped"), False),
    (("unavailable", "skipped"), True), (("unavailable", "answered"), True),
    (("over_budget", "skipped"), True), (("answered", "over_budget"), True)])
def test_a_transcript_tells_infrastructure_and_budget_from_the_plan(outcomes, unavailable):
  assert transcript(*outcomes).unavailable is unavailable


def test_a_call_without_room_in_the_budget_ends_the_run_with_what_was_spent():
  error = "the budget of the run, $1, has no room for a call of 'w'; spent: w $0.9"
  with pytest.raises(OutOfBudget) as caught:
    refuse_over_budget([
        None, transcript("answered", "answered"), transcript("over_budget", "skipped", error=error),
        transcript("over_budget", "skipped", error="another")])
  assert str(caught.value).startswith(error)


def test_no_other_outcome_ends_the_run():
  refuse_over_budget([
      None, transcript("answered", "truncated"), transcript("refused", "skipped"),
      transcript("unavailable", "answered")])
