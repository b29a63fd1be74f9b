import pytest

from conductor_jax.rewards import RewardValues, reward
from conductor_jax.tasks.task import Grade
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import ParsedPlan, ParseFailure, Step, Workflow

RIGHT = Grade(True, "4", "It is 4.")
WRONG = Grade(False, "5", "It is not 4.")


def plan(steps: int) -> ParsedPlan:
  return ParsedPlan(Workflow((Step(0, "Solve it."),) * steps), {})


def transcript(*outcomes: str, answer: str | None) -> Transcript:
  calls = [CallRecord("a", {}, "", Usage(), 0.0, 1, outcome) for outcome in outcomes]
  return Transcript(plan(len(outcomes)).workflow, calls, answer, Usage())


@pytest.mark.parametrize("outcomes, answer, grade, expected", [
    (["answered"], "4", RIGHT, 1.0),
    (["answered"], "5", WRONG, 0.5),
    (["truncated"], "4", RIGHT, 1.0),
    (["truncated"], "The", WRONG, 0.5),
    (["refused"], None, WRONG, 0.5),
    (["refused"], None, None, 0.5),
    (["refused", "skipped"], None, WRONG, 0.5),
    (["refused", "answered"], "4", RIGHT, 1.0),
    (["unavailable"], None, None, None),
    (["unavailable", "skipped"], None, None, None),
    (["unavailable", "answered"], "4", RIGHT, None),
    (["answered"], "4", None, None),
])
def test_reward_of_a_plan_that_parsed_follows_the_failure_table(outcomes, answer, grade, expected):
  got = reward(plan(len(outcomes)), transcript(*outcomes, answer=answer), grade, RewardValues())
  assert got == expected


def test_a_plan_that_does_not_parse_gets_zero():
  assert reward(ParseFailure("no lists", 0), None, None, RewardValues()) == 0.0


def test_the_three_values_are_those_given():
  values = RewardValues(unparsed=-1.0, wrong=0.25, right=1.5)
  ran = transcript("answered", answer="4")
  assert reward(ParseFailure("no lists", 0), None, None, values) == -1.0
  assert reward(plan(1), ran, WRONG, values) == 0.25
  assert reward(plan(1), ran, RIGHT, values) == 1.5


def test_a_parsed_plan_without_a_transcript_is_a_bug():
  with pytest.raises(ValueError, match="no transcript"):
    reward(plan(1), None, None, RewardValues())
