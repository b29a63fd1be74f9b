"""Rows of benchmarks whose answer is a number, a letter, an expression or a few words."""

import json
import os

import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks.sources import benchmark_table, load_tasks
from tests.tasks.hub_rows import CHAT, ROWS, SPLITS, write


def load(folder, name, rows, **options):
  write(folder / name, f"{SPLITS.get(name, 'test')}.jsonl", rows)
  said = []
  tasks = load_tasks(str(folder), [name], "test", table=benchmark_table(**options), say=said.append)
  return tasks, said


def one(folder, name, **change):
  return load(folder, name, [{**ROWS[name], **change}])[0][0]


def refusal(folder, name, **change):
  with pytest.raises(UserError) as fault:
    one(folder, name, **change)
  message = str(fault.value)
  assert "\n" not in message and ", line 1: " in message
  return message


def test_multiarith_reads_the_hubs_columns_and_those_of_qwens_evaluation(tmp_path):
  question = ROWS["multiarith"]["question"]
  for folder, row in (("hub", ROWS["multiarith"]), ("qwen", {"input": question, "target": 7})):
    task, = load(tmp_path / folder, "multiarith", [row])[0]
    assert (task.question, task.reference) == (question, "7")


@pytest.mark.parametrize(("answer", "reference"), [
    (145.0, "145"), ("145.0", "145"), ("1,450", "1450"), (3, "3"), (0.5, "0.5"), ("-2.50", "-2.5")])
def test_numbers_are_read_in_all_ways_that_data_sets_write_them(tmp_path, answer, reference):
  assert one(tmp_path, "svamp", Answer=answer).reference == reference


@pytest.mark.parametrize("answer", ["many", "", "1e400000000", "NaN", "1_0", "٣"])
def test_an_answer_that_is_no_number_is_refused(tmp_path, answer):
  assert "column 'Answer' must hold a number" in refusal(tmp_path, "svamp", Answer=answer)


def test_svamp_joins_body_and_question_and_keeps_its_id(tmp_path):
  task = one(tmp_path, "svamp")
  assert task.question == "Ann had 9 pens. She lost 4. How many are left?"
  assert task.id == "svamp/chal-1"


def test_aqua_options_stand_on_lettered_lines(tmp_path):
  task = one(tmp_path, "aqua")
  assert task.question == "What is half of 9?\n\nA. 4\nB. 4.5\nC. 5\nD. 9\nE. 18"
  assert task.reference == "B"
  assert task.metadata == {"choices": ["4", "4.5", "5", "9", "18"], "solution": "9 / 2 = 4.5"}


@pytest.mark.parametrize(("change", "told"), [
    ({"correct": "F"}, "column 'correct' must be the letter of one of the 5 options, got 'F'"),
    ({"correct": ""}, "column 'correct' must be the letter"),
    ({"correct": "C", "options": ["A)1", "B)2"]}, "one of the 2 options"),
    ({"options": ["A)1", "C)2"]}, "must hold options such as 'B)12', got 'C)2'"),
    ({"options": ["A)1"]}, "must hold 2 to 5 options, got 1"),
    ({"options": [f"{letter})1" for letter in "ABCDEF"]}, "must hold 2 to 5 options, got 6"),
])
def test_a_bad_aqua_row_is_named_with_its_column(tmp_path, change, told):
  assert told in refusal(tmp_path, "aqua", **change)


@pytest.mark.parametrize(("answer", "reference"), [("003", "3"), ("0", "0"), (999, "999")])
def test_aime_answers_are_whole_numbers_up_to_999(tmp_path, answer, reference):
  assert one(tmp_path, "aime25", answer=answer).reference == reference


@pytest.mark.parametrize("answer", ["1000", "-1", "7.5", "", "x"])
def test_an_aime_answer_that_cannot_be_is_refused(tmp_path, answer):
  assert "column 'answer' must be a whole number from 0 to 999" in refusal(
      tmp_path, "aime25", answer=answer)


def test_gpqa_options_are_shuffled_by_seed_and_question_wherever_the_row_stands(tmp_path):
  rows = [{**ROWS["gpqa"], "Question": f"Which has {i} protons?"} for i in range(40)]
  tasks, _ = load(tmp_path / "a", "gpqa", rows)
  moved, _ = load(tmp_path / "b", "gpqa", rows[::-1])
  assert {t.question: t.reference for t in tasks} == {t.question: t.reference for t in moved}
  for task in tasks:
    options = task.metadata["choices"]
    assert sorted(options) == ["gold", "iron", "neon", "zinc"]
    assert options["ABCD".index(task.reference)] == "gold"
    assert task.question.endswith("\n\n" + "\n".join(
        f"{letter}. {option}" for letter, option in zip("ABCD", options, strict=True)))
  counts = [sum(task.reference == letter for task in tasks) for letter in "ABCD"]
  assert min(counts) >= 4
  other, _ = load(tmp_path / "c", "gpqa", rows, gpqa_seed=1)
  assert [t.reference for t in other] != [t.reference for t in tasks]


def test_the_order_of_gpqas_options_never_changes_between_versions(tmp_path):
  # Published scores depend on it.
  assert one(tmp_path, "gpqa").metadata["choices"] == ["iron", "neon", "zinc", "gold"]


def test_rlpr_asks_what_the_user_says_and_keeps_short_answers_only(tmp_path):
  def row(truth):
    return {**ROWS["rlpr"], "reward_model": {"ground_truth": truth}}

  tasks, said = load(tmp_path, "rlpr", [row("x" * 31), row("y" * 30), row("newton")])
  assert [(task.question, task.reference) for task in tasks] == [
      ("What is the unit of force?", "y" * 30), ("What is the unit of force?", "newton")]
  # A row's position is its id, also where rows before it are left out.
  assert [task.id for task in tasks] == ["rlpr/train/1", "rlpr/train/2"]
  assert tasks[0].metadata == {"ability": "Physics", "data_source": "own"}
  assert said == [
      "rlpr: 1 of 3 rows left out, only those with answers of 30 characters at most are used"]


@pytest.mark.parametrize(("change", "told"), [
    ({"prompt": "Why?"}, "column 'prompt' must be a list of messages with role and content"),
    ({"prompt": []}, "column 'prompt' must be a list of messages"),
    ({"prompt": [{"role": "user"}]}, "column 'prompt' must be a list of messages"),
    ({"prompt": CHAT[:1]}, "column 'prompt' must hold a message of the role 'user'"),
    ({"reward_model": "newton"}, "column 'reward_model' must be an object, got 'newton'"),
    ({"reward_model": {"style": "rule"}}, "must hold the text ground_truth, got None"),
    ({"reward_model": {"ground_truth": " "}}, "must hold the text ground_truth, got ' '"),
])
def test_a_bad_rlpr_row_is_named_with_its_column(tmp_path, change, told):
  assert told in refusal(tmp_path, "rlpr", **change)


def test_a_benchmark_of_which_no_row_is_used_is_refused(tmp_path):
  with pytest.raises(UserError, match="no row of 1 has answers of 30 characters at most"):
    one(tmp_path, "rlpr", reward_model={"ground_truth": "z" * 31})


def test_real_golds_with_thousands_are_plain_numbers(benchmarks):
  with_comma = 0
  for split in ("train", "test"):
    for task in load_tasks(benchmarks, ["gsm8k"], split):
      float(task.reference)
      with_comma += "," in task.metadata["solution"].rpartition("####")[2]
  assert with_comma == 93


def test_real_options_of_aqua_lose_nothing_but_their_letters(benchmarks):
  tasks = load_tasks(benchmarks, ["aqua"], "test")
  with open(os.path.join(benchmarks, "aqua", "test.jsonl")) as file:
    rows = [json.loads(line) for line in file]
  for task, row in zip(tasks, rows, strict=True):
    assert [option.partition(")")[2].strip() for option in row["options"]] == (
        task.metadata["choices"])
