import pytest

from conductor_jax.rewards import Reward, RewardValues, first_round_reward, reward
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
  assert got == (None if expected is None else Reward(expected, expected))


def test_a_plan_that_does_not_parse_gets_zero():
  assert reward(ParseFailure("no lists", 0), None, None, RewardValues()) == Reward(0.0, 0.0)


def test_the_three_values_are_those_given():
  values = RewardValues(unparsed=-1.0, wrong=0.25, right=1.5)
  ran = transcript("answered", answer="4")
  assert reward(ParseFailure("no lists", 0), None, None, values) == Reward(-1.0, -1.0)
  assert reward(plan(1), ran, WRONG, values) == Reward(0.25, 0.25)
  assert reward(plan(1), ran, RIGHT, values) == Reward(1.5, 1.5)


def test_size_takes_from_a_reward_and_a_right_answer_at_few_tokens_adds_to_it():
  workflow = Workflow((Step(0, "A"), Step(0, "B", (0,)), Step(0, "C", (0, 1))))
  values = RewardValues(
      wrong=0.0, per_step=0.02, per_dependency=0.01, efficiency=0.1, efficient_tokens=200)

  def of(tokens: int, grade: Grade) -> Reward:
    calls = [CallRecord("a", {}, "", Usage(), 0.0, 1, "answered")] * 3
    return reward(ParsedPlan(workflow, {}),
                  Transcript(workflow, calls, "4", Usage(prompt_tokens=tokens)), grade, values)

  # Three steps and three dependencies; a quarter of the tokens leaves three quarters of the bonus.
  assert of(50, RIGHT) == Reward(
      pytest.approx(1 - 0.06 - 0.03 + 0.075), 1.0, steps=pytest.approx(-0.06),
      dependencies=pytest.approx(-0.03), efficiency=pytest.approx(0.075))
  assert of(300, RIGHT).efficiency == 0.0
  assert of(50, WRONG) == Reward(0.0, 0.0, steps=pytest.approx(-0.06),
                                 dependencies=pytest.approx(-0.03))


def test_a_parsed_plan_without_a_transcript_is_a_bug():
  with pytest.raises(ValueError, match="no transcript"):
    reward(plan(1), None, None, RewardValues())


@pytest.mark.parametrize(("answer", "grade", "expected"), [
    ("4", RIGHT, 1.0), ("5", WRONG, 0.5), (None, WRONG, 0.5), ("4", None, None)])
def test_a_round_that_keeps_the_answer_is_worth_what_the_answer_is(answer, grade, expected):
  kept = Transcript(Workflow(()), (), answer, Usage())
  values = RewardValues(per_dollar=9.0, per_thousand_tokens=9.0, per_second=9.0)
  got = reward(ParsedPlan(Workflow(()), {}), kept, grade, values)
  assert got == (None if expected is None else Reward(expected, expected))


class TestEffort:
  # Two steps that run one after the other for 3 s and 4 s, and one beside them for 5 s.
  WORKFLOW = Workflow((Step(0, "a"), Step(0, "b", (0,)), Step(0, "c")))
  CALLS = [CallRecord("a", {}, "4", usage, latency, 1, "answered") for usage, latency in (
      (Usage(100, 200, 0.01), 3.0), (Usage(150, 250, 0.02), 4.0), (Usage(50, 250, 0.02), 5.0))]

  def reward(self, grade=RIGHT, **values) -> Reward:
    usage = sum((call.usage for call in self.CALLS), Usage())
    ran = Transcript(self.WORKFLOW, self.CALLS, "4", usage)
    return reward(ParsedPlan(self.WORKFLOW, {}), ran, grade, RewardValues(**values))

  @pytest.mark.parametrize(("values", "part", "taken"), [
      ({"per_dollar": 2.0}, "cost", -0.1),  # of $0.05
      ({"per_thousand_tokens": 0.3}, "tokens", -0.3),  # of 1000 tokens, read and written
      ({"per_second": 0.01}, "latency", -0.07)])  # of 3 s + 4 s
  def test_each_term_takes_its_coefficient_of_what_the_workers_took(self, values, part, taken):
    right, wrong = self.reward(**values), self.reward(WRONG, **values)
    assert getattr(right, part) == pytest.approx(taken)
    assert {name for name in ("cost", "tokens", "latency") if getattr(right, name)} == {part}
    assert (right.outcome, right.total) == (1.0, pytest.approx(1.0 + taken))
    assert (wrong.outcome, wrong.total) == (0.5, pytest.approx(0.5 + taken))

  def test_the_parts_add_up_to_the_total(self):
    got = self.reward(per_dollar=2.0, per_thousand_tokens=0.3, per_second=0.01)
    assert got.total == pytest.approx(0.53)
    assert got.total == got.outcome + (got.cost + got.tokens + got.latency)

  @pytest.mark.parametrize("unparsed", [0.0, -1.0, 0.2])
  def test_a_plan_that_runs_is_never_worth_less_than_one_that_does_not_parse(self, unparsed):
    got = self.reward(WRONG, unparsed=unparsed, per_dollar=1000.0)
    assert (got.total, got.outcome, got.cost) == (unparsed, 0.5, pytest.approx(-50.0))

  def test_without_coefficients_no_part_is_a_negative_zero(self):
    got = self.reward()
    assert got == Reward(1.0, 1.0)
    assert [str(part) for part in (got.cost, got.tokens, got.latency)] == ["0.0"] * 3

  def test_effort_rejects_nothing_and_saves_nothing(self):
    assert self.reward(None, per_dollar=2.0) is None


@pytest.mark.parametrize(("kind", "discount", "expected"), [
    ("discounted", 0.25, 0.625), ("discounted", 0.0, 0.5), ("discounted", 1.0, 1.0),
    ("own", 0.25, 0.5), ("final", 0.25, 1.0)])
def test_a_first_round_of_half_is_worth_what_a_right_second_one_makes_of_it(
    kind, discount, expected):
  assert first_round_reward(0.5, 1.0, discount, kind) == expected


def test_a_second_round_that_spoils_the_answer_takes_from_the_first():
  assert first_round_reward(1.0, 0.5, 0.25, "discounted") == 0.875
  assert first_round_reward(1.0, 0.0, 0.25, "discounted") == 0.75
  assert first_round_reward(1.0, 0.5, 0.25, "final") == 0.5


def test_a_rejected_second_round_rejects_a_first_one_whose_reward_needs_it():
  assert first_round_reward(0.5, None, 0.25, "discounted") is None
  assert first_round_reward(0.5, None, 0.25, "final") is None
  assert first_round_reward(0.5, None, 0.25, "own") == 0.5
