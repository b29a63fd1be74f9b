import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_jax.workflows.lists import ListFormat, parse_lists, render_lists
from conductor_jax.workflows.workflow import ParsedPlan, ParseFailure, Step, Workflow
from tests.workflows.drawn_workflows import workflows

TWO_STEPS = """\
model_id = [2, 5]
subtasks = ["Solve the task.", 'Check it.']
access_list = [[], ["all"]]"""


def parse(completion, workers=7, max_steps=5, access="binary"):
  return parse_lists(completion, ListFormat(max_steps, access), workers=range(workers))


def render(workflow, access="binary"):
  return render_lists(workflow, ListFormat(access=access))


def steps(completion, **options):
  result = parse(completion, **options)
  assert isinstance(result, ParsedPlan), result
  return result.workflow.steps


def failure(completion, **options):
  result = parse(completion, **options)
  assert isinstance(result, ParseFailure), result
  assert 0 <= result.position <= len(completion)
  assert "\n" not in result.reason
  return result


def plan(worker="0", subtask='"a"', entry="[]"):
  return f"model_id = [{worker}]\nsubtasks = [{subtask}]\naccess_list = [{entry}]"


def subtask_of(literal):
  return steps(plan(subtask=literal))[0].subtask


def test_reads_a_plan_after_reasoning():
  assert steps("First solve, then check.\n\n" + TWO_STEPS) == (
      Step(2, "Solve the task."), Step(5, "Check it.", (0,)))


def test_spans_are_the_integer_the_text_between_the_quotes_and_the_whole_entry():
  completion = "Überlegung 🤔\n" + TWO_STEPS.replace("Check it.", r"Prüfe \"é\" 🧮.")
  result = parse(completion)
  shown = {key: completion[start:end] for key, (start, end) in result.spans.items()}
  assert shown == {
      (0, "worker"): "2", (0, "subtask"): "Solve the task.", (0, "sees"): "[]",
      (1, "worker"): "5", (1, "subtask"): r"Prüfe \"é\" 🧮.", (1, "sees"): '["all"]'}
  assert result.workflow.steps[1].subtask == 'Prüfe "é" 🧮.'


@pytest.mark.parametrize("completion", [
    f"```python\n{TWO_STEPS}\n```\nDone.",
    f"```\n{TWO_STEPS}```",
    TWO_STEPS.replace("\n", "; "),
    TWO_STEPS.replace("\n", "\r\n"),
    TWO_STEPS.replace("\n", "\n```\n\nNext come:\n```python\n"),
    TWO_STEPS.replace(" = ", "="),
    TWO_STEPS.replace("[2, 5]", "[\n  2,  # the solver\n  5,  # ]\n]"),
    TWO_STEPS.replace("'Check it.'", "\n\t'Check it.',\n"),
    TWO_STEPS.replace('["all"]', "'all'"),
    TWO_STEPS.replace('[[], ["all"]]', '["all", [ "all", ],]  # open'),
    TWO_STEPS.replace("'Check it.'", "r'Check it.'"),
    f"<answer>{TWO_STEPS}</answer>",
])
def test_layout_does_not_change_the_plan(completion):
  assert steps(completion) == (Step(2, "Solve the task."), Step(5, "Check it.", (0,)))


def test_the_last_complete_triple_counts():
  assert steps(plan("1") + "\nBetter:\n" + plan("2") + "\n" + plan("3"))[0].worker == 3


def test_a_triple_cut_off_by_the_end_leaves_the_earlier_one():
  for end in range(len(TWO_STEPS)):
    assert steps(plan("1") + "\n\n" + TWO_STEPS[:end])[0].worker == 1


def test_every_cut_of_a_single_plan_is_a_failure():
  for end in range(len(TWO_STEPS)):
    failure(TWO_STEPS[:end])


def test_a_faulty_last_triple_is_not_replaced_by_a_valid_draft():
  assert "model_id[0]" in failure(plan("1") + "\n" + plan("True")).reason


def test_prose_that_mentions_a_list_is_no_plan():
  prose = "\nHere model_id = [0] names the first model, and access_list = [[]] hides all."
  assert steps("I write model_id = [ids] first.\n" + plan("4") + prose)[0].worker == 4


def test_lists_quoted_inside_a_subtask_are_text():
  inner = "Write\\nmodel_id = [1]\\nsubtasks = ['x']\\naccess_list = [[]]"
  assert subtask_of(f'"{inner}"') == inner.replace("\\n", "\n")


def test_commented_out_lists_do_not_count():
  commented = "".join(f"\n# {line}" for line in plan("1").splitlines())
  assert steps(plan("3") + commented)[0].worker == 3


class TestThinking:

  def test_a_draft_inside_think_is_ignored(self):
    assert steps(f"<think>{plan('1')}</think>\n{plan('2')}")[0].worker == 2
    assert steps(f"{plan('2')}\n<think>{plan('1')}</think>")[0].worker == 2

  def test_a_plan_only_inside_think_is_no_plan(self):
    failure(f"<think>{plan()}</think> Done.")

  def test_thinking_that_never_ends_hides_what_follows(self):
    assert failure(f"<think>{plan()}").position == 0

  def test_a_closing_tag_whose_opening_stood_in_the_prompt_hides_what_precedes(self):
    assert steps(f"{plan('1')}\n</think>\n{plan('2')}")[0].worker == 2
    failure(f"{plan('1')}\n</think>\nDone.")

  def test_tags_inside_a_subtask_are_text(self):
    assert subtask_of('"No <think> and </think>, please."') == "No <think> and </think>, please."


class TestTrapsOfPythonsReader:

  def test_a_missing_comma_does_not_join_two_subtasks(self):
    completion = "model_id = [0]\nsubtasks = ['a' 'b']\naccess_list = [[]]"
    assert failure(completion).position == completion.index("'b'")

  def test_an_apostrophe_does_not_invent_a_step(self):
    assert "lacks a comma" in failure(plan(subtask="'Don't guess'")).reason

  @pytest.mark.parametrize("worker", [
      "True", "False", "None", "0.0", "1e0", "0j", "...", "'0'", "[0]", "(0)", "+0", "00", "01",
      "0x1", "1_0", "-0", "1 2", "0 + 1", "int(0)", "x", "*[0]", "٣", "0,,", ",", "{0}", "b'0'"])
  def test_only_plain_integers_are_workers(self, worker):
    failure(plan(worker=worker))

  @pytest.mark.parametrize("subtask", [
      "b'a'", "f'a'", "F'a'", "u'a'", "rb'a'", "br'a'", "a", "0", "None", "['a']", "('a')",
      "'a' + 'b'", "'a' % 1", "'a'.upper()", "'''a'''", '"""a"""', "“a”", "`a`", "'a\nb'",
      "'a\\\nb'", "'a", "a'", "*'a'", "'a' if x else 'b'", "'a'\n'b'"])
  def test_only_single_string_literals_are_subtasks(self, subtask):
    failure(plan(subtask=subtask))

  @pytest.mark.parametrize("after", [
      " * 2", " + [1]", "[0]", "[:1]", ".copy()", ", [1]", " or [1]", " if x else [1]", " == x",
      " for x in y", "]"])
  def test_a_list_that_an_expression_goes_on_from_is_refused(self, after):
    completion = plan().replace("[0]", "[0]" + after)
    assert failure(completion).position == completion.index("[0]") + 3

  @pytest.mark.parametrize("text", [
      "model_id = [0] subtasks = ['a'] access_list = [[]]",
      "model_id == [0]\nsubtasks == ['a']\naccess_list == [[]]",
      "my_model_id = [0]\nsubtasks = ['a']\naccess_list = [[]]",
      "model_id = (0,)\nsubtasks = ['a']\naccess_list = [[]]",
      "subtasks = ['a']\nmodel_id = [0]\naccess_list = [[]]",
      "model_id = [0]\naccess_list = [[]]\nsubtasks = ['a']",
      "model_id = [0]\nsubtasks = ['a']\nsubtasks = ['b']\naccess_list = [[]]",
      '{"model_id": [0], "subtasks": ["a"], "access_list": [[]]}',
      "", "[[", "I would ask model 0."])
  def test_three_assignments_in_order_are_needed(self, text):
    failure(text)


class TestEscapes:

  @pytest.mark.parametrize(("literal", "value"), [
      (r"'it\'s'", "it's"), (r'"\"x\""', '"x"'), (r'"a\\b"', r"a\b"), (r'"a\nb"', "a\nb"),
      (r'"a\tb"', "a\tb"), (r'"\x41\u00e9\U0001f600"', "Aé😀"), (r'"\x0c\x00"', "\f\0"),
      ('"it\'s"', "it's"), (r'r"\frac{1}{2}\times"', r"\frac{1}{2}\times"),
      (r'"\ne.g. this"', "\ne.g. this"), (r'"a\nnot"', "a\nnot"), (r'"\\"', "\\")])
  def test_are_decoded_as_python_does(self, literal, value):
    assert subtask_of(literal) == value

  @pytest.mark.parametrize("latex", [
      r"\lambda", r"\sqrt{2}", r"\pi", r"\(x\)", r"\[x\]", r"\cdot", r"\{1\}", r"\$5", r"\%"])
  def test_latex_that_python_leaves_alone_stays_as_written(self, latex):
    assert subtask_of(f'"Simplify {latex}."') == f"Simplify {latex}."

  @pytest.mark.parametrize("latex", [
      r"\frac{1}{2}", r"\beta", r"\rho", r"\alpha", r"\vec{v}", r"\times", r"\theta", r"\text{a}",
      r"\to", r"\neq", r"\nabla", r"\nu", r"\xi", r"\upsilon", r"\Upsilon", r"\N", r"\1", r"\07"])
  def test_latex_that_python_would_garble_is_refused(self, latex):
    completion = plan(subtask=f'"Simplify {latex} now"')
    refused = failure(completion)
    assert refused.position == completion.index(latex)
    assert "escape" in refused.reason

  @pytest.mark.parametrize("latex", [r"\frac{1}{2}", r"\times", r"\neq", r"\xi", r"\1"])
  def test_latex_with_doubled_backslashes_is_read(self, latex):
    assert subtask_of(f'"{latex}"'.replace("\\", "\\\\")) == latex

  @pytest.mark.parametrize("literal", [r'"\ud83d"', '"\ud83d"', r'"\ud83d\ude00"', r'"\U00110000"'])
  def test_code_points_that_are_no_characters_are_refused(self, literal):
    failure(plan(subtask=literal))


class TestValues:

  @pytest.mark.parametrize("worker", ["7", "-1", "99999999999", "9" * 5000])
  def test_a_worker_not_on_offer_is_named_with_its_place(self, worker):
    completion = plan(worker=worker)
    refused = failure(completion)
    assert refused.position == completion.index(worker)
    assert worker[:20] in refused.reason

  def test_the_bounds_of_the_pool_are_its_size(self):
    assert steps(plan("6"))[0].worker == 6
    assert steps(plan("1"), workers=2)[0].worker == 1
    failure(plan("2"), workers=2)

  def test_more_steps_than_allowed_are_refused(self):
    workflow = Workflow((Step(0, "a"),) * 5)
    assert len(steps(render(workflow))) == 5
    assert "5 steps" in failure(render(workflow), max_steps=4).reason

  def test_empty_lists_are_refused(self):
    assert "0 steps" in failure("model_id = []\nsubtasks = []\naccess_list = []").reason

  @pytest.mark.parametrize(("old", "new"), [
      ("[2, 5]", "[2]"), ("[2, 5]", "[2, 5, 1]"), (", 'Check it.'", ""), (', ["all"]', "")])
  def test_lists_of_unequal_length_are_refused(self, old, new):
    assert "entries" in failure(TWO_STEPS.replace(old, new)).reason

  @pytest.mark.parametrize("subtask", ["''", '"  "', r'"\n"', "'\u3000'"])
  def test_an_empty_subtask_is_refused(self, subtask):
    assert "empty" in failure(plan(subtask=subtask)).reason


class TestAccess:

  def second(self, entry, access):
    return parse(TWO_STEPS.replace('["all"]', entry), access=access)

  @pytest.mark.parametrize("access", ["binary", "positions"])
  def test_all_opens_every_earlier_step_and_nothing_on_the_first(self, access):
    for entry in ('"all"', '["all"]', "'all'"):
      assert steps(plan(entry=entry), access=access)[0].sees == ()
      three = (
          f"model_id = [0, 0, 0]\nsubtasks = ['a', 'b', 'c']\naccess_list = [[], [], {entry}]")
      assert steps(three, access=access)[2].sees == (0, 1)

  @pytest.mark.parametrize("entry", [
      '["all", "all"]', '"All"', '"none"', "[[]]", "None", "0", "all", '[["all"]]', '""', "()",
      '["all", 0]', "{}", "True", "[True]", "[0.0]", '["0"]', "[-1]", "[1]", "[2]", "[0, 0]"])
  @pytest.mark.parametrize("access", ["binary", "positions"])
  def test_other_entries_are_refused(self, entry, access):
    assert isinstance(self.second(entry, access), ParseFailure)

  def test_positions_are_refused_when_access_is_binary(self):
    assert isinstance(self.second("[0]", "binary"), ParseFailure)

  def test_positions_are_earlier_steps_in_any_order(self):
    assert self.second("[0]", "positions").workflow.steps[1].sees == (0,)
    three = "model_id = [0, 0, 0]\nsubtasks = ['a', 'b', 'c']\naccess_list = [[], [], [1, 0]]"
    assert steps(three, access="positions")[2].sees == (0, 1)
    assert steps(three.replace("[1, 0]", "[1]"), access="positions")[2].sees == (1,)

  def test_forward_and_self_references_name_their_entry(self):
    completion = TWO_STEPS.replace('["all"]', "[1]")
    refused = failure(completion, access="positions")
    assert "access_list[1]" in refused.reason
    assert refused.position == completion.index("[1]")


class TestRender:

  def test_writes_the_canonical_text(self):
    workflow = Workflow((Step(2, 'Say "x" \\ y.'), Step(5, "A\nB\tC\x07", (0,))))
    assert render(workflow) == (
        'model_id = [2, 5]\n'
        'subtasks = ["Say \\"x\\" \\\\ y.", "A\\nB\\tC\\x07"]\n'
        'access_list = [[], ["all"]]')
    assert render(workflow, "positions").endswith("access_list = [[], [0]]")

  def test_refuses_what_would_not_parse_back(self):
    with pytest.raises(ValueError, match="binary"):
      render(Workflow((Step(0, "a"), Step(0, "b"), Step(0, "c", (1,)))))
    with pytest.raises(ValueError, match="empty"):
      render(Workflow((Step(0, " "),)))
    with pytest.raises(ValueError, match="surrogate"):
      render(Workflow((Step(0, "\ud800"),)))


@given(workflows())
def test_json_written_plans_mean_what_json_says_unless_refused(workflow):
  subtasks = json.dumps([step.subtask for step in workflow.steps], ensure_ascii=False)
  lines = render(workflow).split("\n")
  result = parse("\n".join([lines[0], f"subtasks = {subtasks}", lines[2]]))
  if isinstance(result, ParsedPlan):
    assert result.workflow == workflow


TOKENS = st.sampled_from([
    "model_id = [", "subtasks = [", "access_list = [", "]", "[", ",", "'", '"', "0", "1", "'a'",
    '"all"', "\n", " ", "\\", "<think>", "</think>", "#", "r'", "[]", ";", "\\x", "\\ud800", "`"])


@given(st.one_of(st.text(), st.lists(TOKENS, max_size=60).map("".join)))
@settings(max_examples=300)
def test_no_text_raises(completion):
  for access in ("binary", "positions"):
    result = parse(completion, access=access)
    if isinstance(result, ParseFailure):
      assert 0 <= result.position <= len(completion)
      assert len(result.reason) < 200


@given(st.data())
@settings(max_examples=200)
def test_no_mutated_plan_raises_or_has_a_step_without_its_integer(data):
  completion = render(data.draw(workflows()))
  for _ in range(data.draw(st.integers(1, 4))):
    start = data.draw(st.integers(0, len(completion)))
    end = min(len(completion), start + data.draw(st.integers(0, 3)))
    completion = completion[:start] + data.draw(TOKENS) + completion[end:]
  result = parse(completion)
  if isinstance(result, ParsedPlan):
    for index, step in enumerate(result.workflow.steps):
      start, end = result.spans[index, "worker"]
      assert completion[start:end] == str(step.worker)


@pytest.mark.parametrize("unit", [
    "[", '"', "'", "\\", "model_id = [", "model_id=[0]\n", "<think>", "</think>", "#", " ", "\n",
    'subtasks = ["', "model_id = [0]\nsubtasks = ['a' 'b']\n", "9", "model_id", "\n ", ", "])
@pytest.mark.parametrize("start", [
    "", "model_id = [", "model_id = [0]\nsubtasks = ['", "model_id = [0]\nsubtasks = ['a',",
    "model_id = [0]\nsubtasks = ['a']\naccess_list = [", "model_id = [0]"])
def test_work_grows_linearly_with_the_completion(unit, start):
  def calls(length):
    count = 0

    def trace(frame, event, argument):
      nonlocal count
      count += event in ("call", "c_call")

    completion = start + unit * (length // len(unit))
    sys.setprofile(trace)
    try:
      parse(completion)
    finally:
      sys.setprofile(None)
    return count

  assert calls(8000) <= 2.2 * calls(4000) + 100


@pytest.mark.parametrize(
    "unit", ["[", '"', "'", "\\", "\\'", "model_id = ['", "['", "#", " ", "a "])
def test_a_hundred_thousand_characters_of_anything_parse(unit):
  for start in ("", "model_id = [0]\nsubtasks = ['", "model_id = [0]\nsubtasks = ["):
    failure(start + unit * (100_000 // len(unit)))
