"""The examples that come with the project, and those of a file."""

import json

import pytest

from conductor_jax.arena.world import understand
from conductor_jax.errors import UserError
from conductor_jax.workflows.few_shot import OUTSIDE, read_examples
from conductor_jax.workflows.format import Example
from conductor_jax.workflows.lists import ListFormat, parse_lists
from conductor_jax.workflows.workflow import PLAIN_SUBTASK, ParsedPlan, Step, Workflow
from tests.workflows.golden_prompts import PREFILL

FORMATS = [ListFormat(access=access, subtasks=subtasks)
           for access in ("binary", "positions", "none") for subtasks in (True, False)]
LINE = {"question": "Why?", "models": 3, "thought": "Two steps.", "steps": [
    {"worker": 2, "subtask": "Explain it.", "sees": []},
    {"worker": 0, "subtask": "Check it.", "sees": [0]}]}


class TestOutside:

  def test_there_are_five_of_one_to_three_steps(self):
    assert [len(example.workflow.steps) for example in OUTSIDE] == [3, 1, 2, 2, 3]
    assert len({example.question for example in OUTSIDE}) == 5

  @pytest.mark.parametrize("format", FORMATS, ids=str)
  def test_every_one_parses_back_in_every_format_behind_a_prefill(self, format):
    for example in OUTSIDE:
      completion = format.written(example)
      assert completion.startswith(f"{example.thought}\nmodel_id = [")
      for text in (completion, PREFILL + completion):
        parsed = parse_lists(text, format, workers=example.models)
        assert isinstance(parsed, ParsedPlan) and parsed.workflow == format.fitted(example)

  def test_where_there_is_room_for_all_of_it_nothing_is_changed(self):
    for example in OUTSIDE:
      for access in ("binary", "positions"):
        assert ListFormat(access=access).fitted(example) == example.workflow

  def test_none_is_a_question_of_the_arena(self):
    assert [understand(example.question) for example in OUTSIDE] == [None] * 5

  def test_between_them_they_ask_models_of_every_number_on_offer(self):
    assert {step.worker for example in OUTSIDE for step in example.workflow.steps} == set(range(5))


class TestFitted:
  THREE = Workflow((Step(0, "a"), Step(1, "b", (0,)), Step(2, "c", (1,))))

  def test_without_subtasks_the_plain_one_takes_their_place(self):
    fitted = ListFormat(5, "positions", False).fitted(Example("Q", range(3), "T", self.THREE))
    assert fitted == Workflow((
        Step(0, PLAIN_SUBTASK), Step(1, PLAIN_SUBTASK, (0,)), Step(2, PLAIN_SUBTASK, (1,))))

  def test_without_access_lists_no_step_sees_another_nor_the_answer_before(self):
    opened = Workflow((Step(0, "a", (), True), Step(1, "b", (0,), True)))
    for previous in (None, "4"):
      fitted = ListFormat(access="none").fitted(Example("Q", range(3), "T", opened, previous))
      assert fitted == Workflow((Step(0, "a"), Step(1, "b")))

  def test_a_step_that_sees_some_of_the_earlier_ones_does_not_fit_binary_access(self):
    with pytest.raises(ValueError, match=(
        r"^under binary access step 2 sees all earlier steps or none, and not \[1\]$")):
      ListFormat().fitted(Example("Q", range(3), "T", self.THREE))

  def test_in_a_later_round_binary_access_to_all_steps_opens_the_answer_before_too(self):
    two = Workflow((Step(0, "a"), Step(1, "b", (0,))))
    example = Example("Q", range(3), "T", two, "4")
    assert [step.sees_previous for step in ListFormat().fitted(example).steps] == [False, True]
    assert ListFormat(access="positions").fitted(example) == two
    assert ListFormat().written(example).endswith('access_list = [[], ["all"]]')
    assert ListFormat(access="positions").written(example).endswith("access_list = [[], [0]]")


class TestFile:

  def read(self, tmp_path, *lines):
    path = tmp_path / "own.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n"
                            for line in lines))
    return read_examples(path)

  def test_each_line_is_an_example(self, tmp_path):
    one = {**LINE, "question": "How?", "models": 1,
           "steps": [{"worker": 0, "subtask": "Do it.", "sees": []}]}
    assert self.read(tmp_path, LINE, one) == [
        Example("Why?", range(3), "Two steps.",
                Workflow((Step(2, "Explain it."), Step(0, "Check it.", (0,))))),
        Example("How?", range(1), "Two steps.", Workflow((Step(0, "Do it."),)))]

  def test_a_missing_file_is_named_in_one_line(self, tmp_path):
    path = tmp_path / "none.jsonl"
    with pytest.raises(UserError) as fault:
      read_examples(path)
    message = str(fault.value)
    assert message.startswith(f"{path} with the examples of the prompt cannot be read: ")
    assert "No such file" in message and "\n" not in message

  def test_a_folder_and_bytes_that_are_no_text_are_named_likewise(self, tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for path in (tmp_path, tmp_path / "bytes"):
      with pytest.raises(UserError) as fault:
        read_examples(path)
      message = str(fault.value)
      assert message.startswith(f"{path} with the examples") and "\n" not in message

  @pytest.mark.parametrize(("line", "reason"), [
      ("{", "JSONDecodeError"),
      ("", "JSONDecodeError"),
      ("[1]", "TypeError"),
      ({**LINE, "models": "many"}, "ValueError: invalid literal"),
      ({key: value for key, value in LINE.items() if key != "thought"}, "KeyError: 'thought'"),
      ({**LINE, "models": 2}, "ValueError: worker 2 is none of its 2 models"),
      ({**LINE, "steps": [{"worker": -1, "subtask": "a", "sees": []}]},
       "ValueError: worker -1 is none of its 3 models"),
      ({**LINE, "steps": []}, "ValueError: it has no steps"),
      ({**LINE, "steps": [{"worker": 0, "subtask": "a", "sees": [0]}]},
       "ValueError: step 0 may see distinct earlier steps only, got (0,)"),
      ({**LINE, "steps": [{"worker": 0, "subtask": "a"}]}, "KeyError: 'sees'"),
      ({**LINE, "steps": [{"worker": 0, "subtask": " ", "sees": []}]},
       "ValueError: a subtask is empty"),
      ({**LINE, "models": float("inf")}, "OverflowError"),
  ])
  def test_a_line_that_is_no_example_is_named_with_its_number_in_one_line(
      self, tmp_path, line, reason):
    with pytest.raises(UserError) as fault:
      self.read(tmp_path, LINE, line, LINE)
    message = str(fault.value)
    assert message.startswith(f"{tmp_path / 'own.jsonl'}, line 2 is no example: {reason}")
    assert message.endswith("; conductor_jax/workflows/few_shot.py shows one")
    assert "\n" not in message
