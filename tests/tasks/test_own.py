import json
from pathlib import Path

import pytest

import conductor_jax
from conductor_jax.config_checks import check_config
from conductor_jax.errors import UserError
from conductor_jax.tasks.code_tests import FunctionTests, read_tests
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.own import own_benchmarks
from conductor_jax.tasks.sources import benchmark_table, load_hub_tasks, load_tasks
from experiments.components import load_splits
from tests.tasks.hub_rows import write


def load(folder, rows, **fields):
  write(folder / "mine", "test.jsonl", rows)
  table = benchmark_table(own=[{"name": "mine", **fields}])
  return load_tasks(str(folder), ["mine"], "test", table=table)


def test_columns_of_any_name_become_question_answer_and_metadata(tmp_path):
  row = {"riddle": "What gets wetter as it dries?", "solution": "a towel", "number": 7, "age": None}
  task, = load(tmp_path, [row], question="riddle", answer="solution", id="number", grader="text")
  assert (task.id, task.kind) == ("mine/7", "mine")
  assert (task.question, task.reference) == ("What gets wetter as it dries?", "a towel")
  assert task.metadata == {"number": 7, "age": None, "grader": "text"}


@pytest.mark.parametrize(("grader", "answer", "reference"), [
    ("number", "1,200.0", "1200"), ("number", 0.5, "0.5"), ("integer", 12, "12"),
    ("math", r"\frac{1}{2}", r"\frac{1}{2}"), ("short_answer", "newton", "newton"),
    ("text", 3, "3"), ("choice", "B", "B")])
def test_answers_are_read_as_their_grader_needs_them(tmp_path, grader, answer, reference):
  task, = load(tmp_path, [{"question": "?", "answer": answer}], grader=grader)
  assert task.reference == reference


@pytest.mark.parametrize("answer", [1, "B"])
def test_options_stand_below_the_question_and_the_answer_is_a_letter_or_a_place(tmp_path, answer):
  row = {"question": "Which is even?", "options": ["3", "4"], "answer": answer}
  task, = load(tmp_path, [row], choices="options", grader="choice")
  assert (task.question, task.reference) == ("Which is even?\n\nA. 3\nB. 4", "B")
  assert task.metadata["choices"] == ["3", "4"]


def test_tests_of_a_program_are_an_object_or_its_text(tmp_path):
  tests = {"function": "twice", "arguments": [[2]], "outputs": [4]}
  rows = [{"question": "a", "answer": tests}, {"question": "b", "answer": json.dumps(tests)}]
  for task in load(tmp_path, rows, grader="code"):
    assert read_tests(task.reference) == FunctionTests("twice", ([2],), (4,))


@pytest.mark.parametrize(("grader", "answer", "told"), [
    ("number", "many", "column 'answer' must hold a number"),
    ("integer", 1.5, "column 'answer' must be a whole number"),
    ("choice", "F", "letter or the position of an option"),
    ("choice", 5, "the position of one of the 2 choices, got 5"),
    ("choice", "", "letter or the position of an option"),
    ("code", {"inputs": [], "outputs": []}, "column 'answer': there are no tests"),
    ("code", "print()", "column 'answer': the tests are not JSON"),
    ("text", None, "column 'answer' must be text or a number, got None"),
    ("text", True, "column 'answer' must be text or a number, got True"),
    ("text", " ", "the right answer is empty"),
])
def test_an_answer_that_its_grader_cannot_read_is_refused_with_the_row(
    tmp_path, grader, answer, told):
  row = {"question": "?", "answer": answer, "options": ["x", "y"]}
  with pytest.raises(UserError) as fault:
    load(tmp_path, [row], grader=grader, choices="options")
  assert str(fault.value).startswith(f"{tmp_path / 'mine' / 'test.jsonl'}, line 1: ")
  assert told in str(fault.value)


@pytest.mark.parametrize(("described", "told"), [
    ("riddles", "benchmark 0: 'riddles' must be a mapping of fields such as name and grader"),
    ({"name": "a"}, "benchmark 'a': grader is missing: add it"),
    ({"grader": "text"}, "benchmark 0: name is missing: add it"),
    ({"name": "a", "grader": "judge"}, "grader='judge' must be one of "),
    ({"name": "a", "grader": "text", "anwser": "x"}, "anwser='x' must go, for there are only"),
    ({"name": "a", "grader": "text", "id": 3}, "benchmark 'a': id=3 must be text"),
    ({"name": "gsm8k", "grader": "text"}, "benchmark 'gsm8k': the name is taken"),
])
def test_a_description_that_cannot_be_is_refused_in_one_line(described, told):
  with pytest.raises(UserError) as fault:
    benchmark_table(own=[described])
  assert told in str(fault.value) and "\n" not in str(fault.value)


def test_two_of_one_name_are_refused():
  with pytest.raises(UserError, match="benchmark 'a': there are two of this name"):
    own_benchmarks([{"name": "a", "grader": "text"}] * 2)


def test_one_that_is_not_on_the_hub_is_refused_there():
  table = benchmark_table(own=[{"name": "mine", "grader": "text"}])
  with pytest.raises(UserError, match="benchmark 'mine' has no data set on the hub"):
    load_hub_tasks(["mine"], "test", table=table)


def test_a_data_set_and_its_only_split_can_be_named():
  benchmark = own_benchmarks([{"name": "a", "grader": "text", "dataset": "me/riddles",
                               "config": "hard", "split": "all"}])["a"]
  assert (benchmark.hub.dataset, benchmark.hub.config, benchmark.split) == (
      "me/riddles", "hard", "all")


def readme_blocks() -> list[str]:
  """The indented blocks of README's section on benchmarks of one's own."""
  text = (Path(conductor_jax.__file__).parents[1] / "README.md").read_text()
  section = text.partition("### Benchmarks of your own\n")[2].partition("\n#")[0]
  blocks, lines = [], []
  for line in (*section.splitlines(), "end"):
    if line.startswith("    ") or (lines and not line):
      lines.append(line[4:])
    elif lines:
      blocks.append("\n".join(lines).strip() + "\n")
      lines = []
  return blocks


async def test_the_example_of_the_readme_does_what_it_says(tmp_path):
  rows, source = readme_blocks()[:2]
  assert len((rows + source).splitlines()) <= 30
  (tmp_path / "riddles").mkdir()
  (tmp_path / "riddles" / "test.jsonl").write_text(rows)
  written: dict = {}
  exec(compile(source, "configs/riddles.py", "exec"), written)
  config = written["get_config"]()
  config.tasks.path = str(tmp_path)
  config.evaluation.tasks = 1
  check_config(config)
  splits = load_splits(config)
  assert len(splits.train) + len(splits.heldout) == len(rows.splitlines())
  async with Graders() as graders:
    for task in (*splits.train, *splits.heldout):
      assert task.kind == "riddles"
      assert (await graders.grade(task, f"The answer is: {task.reference}")).correct
      assert not (await graders.grade(task, "The answer is: nothing")).correct
