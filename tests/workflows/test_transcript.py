import pytest

from conductor_jax.errors import OutOfBudget
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workflows.transcript import Transcript, longest_way, refuse_over_budget
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


@pytest.mark.parametrize(("sees", "latencies", "seconds"), [
    (((), (), ()), (1.0, 2.0, 4.0), 4.0), (((), (0,), (1,)), (1.0, 2.0, 4.0), 7.0),
    (((), (), (0, 1)), (1.0, 2.0, 4.0), 6.0), (((), (0,), ()), (1.0, 2.0, 2.5), 3.0)])
def test_the_longest_way_is_that_of_the_slowest_chain(sees, latencies, seconds):
  workflow = Workflow(tuple(Step(0, "a", seen) for seen in sees))
  assert longest_way(workflow, latencies) == seconds
  calls = [CallRecord("w", {}, "", Usage(), latency, 1, "answered") for latency in latencies]
  assert Transcript(workflow, calls, "4", Usage()).seconds == seconds


def test_a_round_that_keeps_the_answer_takes_no_time():
  assert Transcript(Workflow(()), (), "4", Usage()).seconds == 0.0
