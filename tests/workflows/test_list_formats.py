"""The formats that plans can have, workers of any numbers, and later rounds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_jax.workflows.lists import ListFormat, parse_lists, render_lists
from conductor_jax.workflows.workflow import (
    PLAIN_SUBTASK,
    ParsedPlan,
    ParseFailure,
    Step,
    Workflow,
)
from tests.workflows.drawn_workflows import workflows

FORMATS = [ListFormat(access=access, subtasks=subtasks)
           for access in ("binary", "positions", "none") for subtasks in (True, False)]
BOTH, POSITIONS = ListFormat(), ListFormat(access="positions")
NO_SUBTASKS, NO_ACCESS = ListFormat(subtasks=False), ListFormat(access="none")
MODELS_ONLY = ListFormat(access="none", subtasks=False)
IDS = [f"{format.access}, {'with' if format.subtasks else 'no'} subtasks" for format in FORMATS]

MODELS = "model_id = [2, 5]"
SUBTASKS = '\nsubtasks = ["Solve it.", "Check it."]'
ACCESS = '\naccess_list = [[], ["all"]]'


def parse(completion, format=BOTH, workers=range(7), previous=False):
  return parse_lists(completion, format, workers=workers, previous=previous)


def steps(completion, *arguments, **options):
  result = parse(completion, *arguments, **options)
  assert isinstance(result, ParsedPlan), result
  return result.workflow.steps


def failure(completion, *arguments, **options):
  result = parse(completion, *arguments, **options)
  assert isinstance(result, ParseFailure), result
  assert "\n" not in result.reason
  return result


class TestLeftOutLists:

  def test_the_lists_of_a_format_are_those_it_has_in_their_order(self):
    assert BOTH.names == POSITIONS.names == ("model_id", "subtasks", "access_list")
    assert NO_SUBTASKS.names == ("model_id", "access_list")
    assert NO_ACCESS.names == ("model_id", "subtasks")
    assert MODELS_ONLY.names == ("model_id",)

  def test_without_subtasks_every_worker_is_asked_the_plain_one(self):
    assert steps(MODELS + ACCESS, NO_SUBTASKS) == (
        Step(2, PLAIN_SUBTASK), Step(5, PLAIN_SUBTASK, (0,)))

  def test_without_access_lists_no_step_sees_another(self):
    assert steps(MODELS + SUBTASKS, NO_ACCESS) == (Step(2, "Solve it."), Step(5, "Check it."))

  def test_the_models_alone_are_a_plan(self):
    assert steps("So: " + MODELS, MODELS_ONLY) == (Step(2, PLAIN_SUBTASK), Step(5, PLAIN_SUBTASK))

  def test_lists_that_are_left_out_have_no_spans(self):
    fields = {format: {field for _, field in parse(text, format).spans} for format, text in (
        (BOTH, MODELS + SUBTASKS + ACCESS), (NO_SUBTASKS, MODELS + ACCESS),
        (NO_ACCESS, MODELS + SUBTASKS), (MODELS_ONLY, MODELS))}
    assert fields == {
        BOTH: {"worker", "subtask", "sees"}, NO_SUBTASKS: {"worker", "sees"},
        NO_ACCESS: {"worker", "subtask"}, MODELS_ONLY: {"worker"}}

  @pytest.mark.parametrize("stray", [
      SUBTASKS, "\nsubtasks = [", "\nsubtasks = ['a' 'b']", '\nsubtasks = ["\\frac"]',
      "\nsubtasks = None", "\nsubtasks = ['a', 'b', 'c']"])
  def test_subtasks_where_there_are_none_are_text_whatever_they_hold(self, stray):
    expected = (Step(2, PLAIN_SUBTASK), Step(5, PLAIN_SUBTASK, (0,)))
    assert steps(MODELS + stray + ACCESS, NO_SUBTASKS) == expected
    assert steps(stray.strip() + "\n" + MODELS + ACCESS + stray, NO_SUBTASKS) == expected

  @pytest.mark.parametrize("stray", [ACCESS, "\naccess_list = [[3]]", "\naccess_list = ["])
  def test_an_access_list_where_there_is_none_opens_nothing(self, stray):
    assert steps(MODELS + SUBTASKS + stray, NO_ACCESS)[1] == Step(5, "Check it.")
    assert steps(MODELS + stray, MODELS_ONLY)[1] == Step(5, PLAIN_SUBTASK)

  @pytest.mark.parametrize(("text", "format", "reason"), [
      (MODELS, NO_SUBTASKS, "no access_list = [...] follows model_id"),
      (MODELS, NO_ACCESS, "no subtasks = [...] follows model_id"),
      (MODELS + ACCESS, NO_ACCESS, "no subtasks = [...] follows model_id"),
      ("Ask 2.", MODELS_ONLY, "there is no model_id = [...]"),
      (ACCESS + "\n" + MODELS, NO_SUBTASKS, "no access_list = [...] follows model_id"),
      (MODELS + '\naccess_list = [[]]', NO_SUBTASKS,
       "access_list has 1 entries but model_id has 2")])
  def test_a_list_that_the_format_has_must_be_there(self, text, format, reason):
    assert failure(text, format).reason == reason

  def test_of_several_plans_the_last_one_counts(self):
    assert [step.worker for step in steps(f"{MODELS}\nOr:\nmodel_id = [1]", MODELS_ONLY)] == [1]
    assert "'x'" in failure(f"{MODELS}\nOr:\nmodel_id = ['x']", MODELS_ONLY).reason

  def test_a_format_is_refused_what_it_has_no_room_for(self):
    own = Workflow((Step(0, "Solve it."),))
    with pytest.raises(ValueError, match="without subtasks step 0 .* 'Solve it.'"):
      render_lists(own, NO_SUBTASKS)
    opened = Workflow((Step(0, "a"), Step(1, "b", (0,))))
    with pytest.raises(ValueError, match=r"none access cannot express that step 1 sees \(0,\)"):
      render_lists(opened, NO_ACCESS)


class TestNumbers:

  def test_workers_have_the_numbers_on_offer_and_no_others(self):
    for number in (1, 4, 6):
      assert steps(f"model_id = [{number}]", MODELS_ONLY, (1, 4, 6))[0].worker == number
    for number in (0, 2, 3, 5, 7):
      refused = failure(f"model_id = [{number}]", MODELS_ONLY, (1, 4, 6))
      assert refused.reason == f"model_id[0] is {number}, but the workers are 1, 4, 6"
      assert refused.position == len("model_id = [")

  def test_numbers_without_a_gap_are_named_by_the_first_and_the_last(self):
    assert failure("model_id = [3]", MODELS_ONLY, range(3)).reason == (
        "model_id[0] is 3, but the workers are 0 to 2")
    assert failure("model_id = [3]", MODELS_ONLY, (0, 1, 2)).reason.endswith("are 0 to 2")

  def test_one_worker_on_offer_is_named_alone(self):
    assert failure("model_id = [0]", MODELS_ONLY, (5,)).reason == (
        "model_id[0] is 0, but the workers are 5")


class TestLaterRounds:

  @pytest.mark.parametrize("format", FORMATS, ids=IDS)
  def test_empty_lists_keep_an_answer_and_are_refused_where_there_is_none(self, format):
    empty = "\n".join(f"{name} = []" for name in format.names)
    assert parse(empty, format, previous=True) == ParsedPlan(Workflow(()), {})
    assert failure(empty, format).reason == "the plan has 0 steps, allowed are 1 to 5"
    assert render_lists(Workflow(()), format, previous=True) == empty

  def test_more_steps_than_allowed_are_refused_in_later_rounds_too(self):
    assert failure("model_id = [0, 0, 0]", ListFormat(2, "none", False), previous=True).reason == (
        "the plan has 3 steps, allowed are 0 to 2")

  def test_lists_of_which_one_only_is_empty_are_refused(self):
    for text in ("model_id = []" + SUBTASKS + ACCESS, MODELS + "\nsubtasks = []" + ACCESS,
                 MODELS + SUBTASKS + "\naccess_list = []"):
      assert "entries but model_id has" in failure(text, previous=True).reason

  @pytest.mark.parametrize("format", [BOTH, POSITIONS], ids=["binary", "positions"])
  @pytest.mark.parametrize("entry", ['"all"', '["all"]'])
  def test_all_opens_the_answer_before_on_every_step_and_on_the_first(self, format, entry):
    text = MODELS + SUBTASKS + f"\naccess_list = [{entry}, {entry}]"
    first, second = steps(text, format, previous=True)
    assert (first.sees, first.sees_previous) == ((), True)
    assert (second.sees, second.sees_previous) == ((0,), True)
    first, second = steps(text, format)
    assert (first.sees, first.sees_previous) == ((), False)
    assert (second.sees, second.sees_previous) == ((0,), False)

  def test_an_empty_entry_and_one_that_names_steps_do_not_open_the_answer_before(self):
    first, second = steps(
        MODELS + SUBTASKS + "\naccess_list = [[], [0]]", POSITIONS, previous=True)
    assert (first.sees_previous, second.sees, second.sees_previous) == (False, (0,), False)

  def test_what_is_written_of_the_answer_before(self):
    def written(workflow, format=BOTH, previous=True):
      return render_lists(workflow, format, previous=previous).split("\n")[-1]

    opened = Workflow((Step(0, "a", (), True), Step(0, "b", (0,), True)))
    assert written(opened) == written(opened, POSITIONS) == 'access_list = [["all"], ["all"]]'
    named = Workflow((Step(0, "a"), Step(0, "b", (0,))))
    assert written(named, POSITIONS) == "access_list = [[], [0]]"
    with pytest.raises(ValueError, match=r"binary access cannot .* step 1 sees \(0,\)$"):
      written(named)
    mixed = Workflow((Step(0, "a"), Step(0, "b", (), True)))
    for format in (BOTH, POSITIONS):
      with pytest.raises(ValueError, match=r"step 1 sees \(\) and the answer before$"):
        written(mixed, format)
    for format in FORMATS:
      with pytest.raises(ValueError, match="the answer before$"):
        written(Workflow((Step(0, PLAIN_SUBTASK, (), True),)), format, previous=False)


@given(st.data(), st.sampled_from(FORMATS), st.booleans())
@settings(max_examples=300)
def test_what_is_rendered_parses_back_to_itself_in_every_format_and_round(data, format, previous):
  workers = data.draw(st.sampled_from([range(7), (1, 4, 6), (3,), (0, 10, 200)]))
  workflow = data.draw(workflows(format, workers, previous))
  completion = "So:\n" + render_lists(workflow, format, previous=previous)
  assert completion.count("\n") == len(format.names)
  result = parse(completion, format, workers, previous)
  assert isinstance(result, ParsedPlan), result
  assert result.workflow == workflow
  for index, step in enumerate(workflow.steps):
    start, end = result.spans[index, "worker"]
    assert int(completion[start:end]) == step.worker
    if format.subtasks:
      start, end = result.spans[index, "subtask"]
      assert completion[start - 1] == completion[end] == '"'
    if format.access != "none":
      start, end = result.spans[index, "sees"]
      assert completion[start] == "[" and completion[end - 1] == "]"


TOKENS = st.sampled_from([
    "model_id = [", "subtasks = [", "access_list = [", "]", "[", ",", "'", '"', "0", "1", "'a'",
    '"all"', "\n", "\\", "<think>", "</think>", "#", "[]", "\nmodel_id = []", "\nsubtasks = []",
    "\naccess_list = []"])


@given(st.lists(TOKENS, max_size=40).map("".join), st.sampled_from(FORMATS), st.booleans())
@settings(max_examples=300)
def test_no_text_raises_in_any_format_or_round(completion, format, previous):
  result = parse(completion, format, (2, 5), previous)
  if isinstance(result, ParseFailure):
    assert 0 <= result.position <= len(completion) and len(result.reason) < 200
