import gzip
import json
import sys

import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks.sources import load_tasks
from conductor_jax.tasks.task import Task
from tests.tasks.hub_rows import ROWS, SPLITS, write

GSM8K = [ROWS["gsm8k"],
         {"question": "Ann gives away 3 of 5 pens. How many are left?",
          "answer": "5 - 3 = 2\n#### 2"}]
MMLU, MATH500 = [ROWS["mmlu"]], [ROWS["math500"]]


def refusal(path, *arguments):
  with pytest.raises(UserError) as error:
    load_tasks(str(path), *arguments)
  message = str(error.value)
  assert "\n" not in message
  return message


def test_gsm8k_rows_become_tasks(tmp_path):
  write(tmp_path / "gsm8k", "test.jsonl", GSM8K)
  assert load_tasks(str(tmp_path), ["gsm8k"], "test") == [
      Task("gsm8k/test/0", GSM8K[0]["question"], "1200", "gsm8k", {"solution": GSM8K[0]["answer"]}),
      Task("gsm8k/test/1", GSM8K[1]["question"], "2", "gsm8k", {"solution": GSM8K[1]["answer"]})]


def test_mmlu_questions_carry_lettered_options(tmp_path):
  write(tmp_path / "mmlu", "dev.jsonl", MMLU)
  assert load_tasks(str(tmp_path), ["mmlu"], "dev") == [
      Task("mmlu/dev/0", "Which is a prime?\n\nA. 4\nB. 6\nC. 7\nD. 9", "C", "mmlu",
           {"subject": "number_theory", "choices": ["4", "6", "7", "9"]})]


def test_multiarith_is_one_file_whatever_the_split(tmp_path):
  rows = [{"input": "Ann has 3 pens and buys 4. How many has she?", "target": 7}]
  write(tmp_path / "multiarith", "multiarith.jsonl", rows)
  write(tmp_path / "gsm8k", "train.jsonl", GSM8K)
  assert load_tasks(str(tmp_path), ["multiarith", "gsm8k"], "train")[0] == Task(
      "multiarith/multiarith/0", rows[0]["input"], "7", "multiarith")


def test_math500_keeps_its_own_id(tmp_path):
  write(tmp_path / "math500", "test.jsonl", MATH500)
  assert load_tasks(str(tmp_path), ["math500"], "test") == [
      Task("math500/test/algebra/1.json", "Find $x$ if $2x = 1$.", r"\frac{1}{2}", "math500",
           {"subject": "Algebra", "level": 1, "solution": MATH500[0]["solution"]})]


@pytest.mark.parametrize(
    "name", ["test.jsonl", "test.jsonl.gz", "test.json", "test.json.gz", "test.parquet"])
def test_all_file_forms_give_the_same_tasks(tmp_path, name):
  if name.endswith(".parquet"):
    pytest.importorskip("pyarrow", reason="Parquet needs the extra hub")
  write(tmp_path / "gsm8k", name, GSM8K)
  assert [task.reference for task in load_tasks(str(tmp_path), ["gsm8k"], "test")] == ["1200", "2"]


def test_tasks_come_in_the_order_of_the_benchmarks_given(tmp_path):
  write(tmp_path / "gsm8k", "test.jsonl", GSM8K)
  write(tmp_path / "mmlu", "test.jsonl", MMLU)
  kinds = [task.kind for task in load_tasks(str(tmp_path), ["mmlu", "gsm8k"], "test")]
  assert kinds == ["mmlu", "gsm8k", "gsm8k"]


def test_blank_lines_are_skipped_and_counted(tmp_path):
  write(tmp_path / "gsm8k", "test.jsonl", GSM8K)
  file = tmp_path / "gsm8k" / "test.jsonl"
  file.write_text("\n\r\n" + file.read_text() + "\n{}\n")
  assert f"{file}, line 6: column 'question' is missing" in refusal(tmp_path, ["gsm8k"], "test")


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path):
  row = {"question": "a\u2028b", "answer": "#### 1"}
  (tmp_path / "gsm8k").mkdir()
  (tmp_path / "gsm8k" / "test.jsonl").write_text(json.dumps(row, ensure_ascii=False), "utf-8")
  assert load_tasks(str(tmp_path), ["gsm8k"], "test")[0].question == "a\u2028b"


def test_a_missing_directory_folder_or_file_is_named(tmp_path):
  assert f"no benchmark directory '{tmp_path / 'x'}'" in refusal(tmp_path / "x", ["gsm8k"], "test")
  assert f"no folder {tmp_path / 'gsm8k'}" in refusal(tmp_path, ["gsm8k"], "test")
  write(tmp_path / "gsm8k", "train.jsonl", GSM8K)
  message = refusal(tmp_path, ["gsm8k"], "test")
  assert "no file for the split 'test'" in message
  assert "there are train.jsonl" in message


def test_an_unknown_or_repeated_benchmark_is_refused(tmp_path):
  assert "unknown benchmark 'gsm9k': choose from gsm8k" in refusal(tmp_path, ["gsm9k"], "test")
  assert "named twice" in refusal(tmp_path, ["gsm8k", "gsm8k"], "test")


@pytest.mark.parametrize("name, content, place", [
    ("test.jsonl", b'{"question": "a", "answer": "#### 1"}\n{"question": \n', "line 2: not JSON"),
    ("test.jsonl", b"[" * 100_000, "line 1: not JSON"),
    ("test.jsonl", b'{"question": "a", "answer": "#### 1"}\n"\xff"\n', "line 2: not UTF-8"),
    ("test.jsonl", b'{"question": "a"}', "line 1: column 'answer' is missing"),
    ("test.jsonl", b'{"question": "a", "answer": 4}', "line 1: column 'answer' must be text"),
    ("test.jsonl", b'{"question": "a", "answer": "4"}', "line 1: column 'answer' must end with"),
    ("test.jsonl", b'{"question": "a", "answer": "####"}', "line 1: column 'answer' must end with"),
    ("test.jsonl", b'{"question": "a", "answer": "#### x"}', "column 'answer' must hold a number"),
    ("test.jsonl", b'{"question": " ", "answer": "#### 1"}', "line 1: the question is empty"),
    ("test.jsonl", b"[1]", "line 1: a row must be a JSON object, got list"),
    ("test.jsonl", b"", " is empty"),
    ("test.jsonl", b"\n\n", " is empty"),
    ("test.json", b"", " is empty"),
    ("test.json", b"[]", " is empty"),
    ("test.json", b'[{"question": "a"},\n}]', "line 2: not JSON"),
    ("test.json", b'{"question": "a"}', "must be one JSON array"),
    ("test.json", b'[{"question": "a", "answer": "#### 1"}, {}]', "row 2: column 'question'"),
    ("test.jsonl.gz", b"plain", "not a whole gzip file"),
    ("test.jsonl.gz", gzip.compress(b"x" * 9000, mtime=0)[:20], "not a whole gzip file"),
])
def test_a_bad_gsm8k_file_is_named_with_the_place(tmp_path, name, content, place):
  (tmp_path / "gsm8k").mkdir()
  (tmp_path / "gsm8k" / name).write_bytes(content)
  message = refusal(tmp_path, ["gsm8k"], "test")
  assert str(tmp_path / "gsm8k" / name) in message
  assert place in message


@pytest.mark.parametrize("change, part", [
    ({"answer": 4}, "position of one of the 4 choices, got 4"),
    ({"answer": -1}, "position of one of the 4 choices, got -1"),
    ({"answer": True}, "column 'answer' must be a whole number, got True"),
    ({"answer": "C"}, "column 'answer' must be a whole number, got 'C'"),
    ({"choices": "4679"}, "column 'choices' must be a list of texts"),
    ({"choices": [4, 6, 7, 9]}, "column 'choices' must be a list of texts"),
])
def test_a_bad_mmlu_row_is_named_with_its_column(tmp_path, change, part):
  write(tmp_path / "mmlu", "test.jsonl", [MMLU[0], {**MMLU[0], **change}])
  message = refusal(tmp_path, ["mmlu"], "test")
  assert "line 2: " in message
  assert part in message


def test_an_id_that_comes_twice_is_refused(tmp_path):
  write(tmp_path / "math500", "test.jsonl", MATH500 * 2)
  message = refusal(tmp_path, ["math500"], "test")
  assert "line 2: the id 'test/algebra/1.json' is that of line 1" in message


def test_an_id_that_comes_twice_is_refused_across_files_too(tmp_path):
  write(tmp_path, "a.jsonl", MATH500)
  write(tmp_path, "b.jsonl", MATH500)
  files = [("math500", "a.jsonl"), ("math500", "b.jsonl")]
  with pytest.raises(UserError) as fault:
    load_tasks(str(tmp_path), ["math500"], "test", files=files)
  assert str(fault.value).startswith(
      f"{tmp_path / 'b.jsonl'}, line 1: the id 'test/algebra/1.json' is that of line 1 of "
      f"{tmp_path / 'a.jsonl'};")


@pytest.mark.parametrize("name", ROWS)
def test_every_benchmark_reads_the_columns_of_the_hub(tmp_path, name):
  write(tmp_path / name, f"{SPLITS.get(name, 'test')}.jsonl", [ROWS[name]])
  task, = load_tasks(str(tmp_path), [name], "test")
  assert task.kind == name and task.id.startswith(f"{name}/")
  json.dumps(dict(task.metadata))


# What a benchmark can do without, for it only goes into the metadata or is another's column.
SPARE = {"ID", "Equation", "Type", "question_concat", "contest_id", "canonical_solution",
         "doc_struct", "q_idx", "score"}


@pytest.mark.parametrize(("name", "column"), [
    (name, column) for name, row in ROWS.items() for column in row
    if column not in SPARE or (name, column) == ("humaneval", "canonical_solution")])
def test_a_missing_column_is_named_with_file_and_row(tmp_path, name, column):
  file = f"{SPLITS.get(name, 'test')}.jsonl"
  broken = {key: value for key, value in ROWS[name].items() if key != column}
  write(tmp_path / name, file, [broken])
  message = refusal(tmp_path, [name], "test")
  assert message.startswith(f"{tmp_path / name / file}, line 1: column {column!r} is missing; ")


@pytest.mark.parametrize("name", [name for name in ROWS if name != "livecodebench"])
def test_rows_come_out_of_parquet_as_out_of_json(tmp_path, name):
  pytest.importorskip("pyarrow", reason="Parquet needs the extra hub")
  split = SPLITS.get(name, "test")
  write(tmp_path / "json" / name, f"{split}.jsonl", [ROWS[name]])
  write(tmp_path / "parquet" / name, f"{split}.parquet", [ROWS[name]])
  assert (load_tasks(str(tmp_path / "parquet"), [name], "test")
          == load_tasks(str(tmp_path / "json"), [name], "test"))


def test_a_copy_of_the_hubs_folders_is_read_whole(tmp_path):
  pytest.importorskip("pyarrow", reason="Parquet needs the extra hub")
  write(tmp_path / "gsm8k" / "main", "test-00000-of-00002.parquet", GSM8K[:1])
  write(tmp_path / "bigcodebench" / "data", "v0.1.4-00000-of-00001.parquet",
        [ROWS["bigcodebench"]])
  message = refusal(tmp_path, ["gsm8k"], "test")
  assert "main: 1 of the 2 files test-*.parquet are there" in message
  write(tmp_path / "gsm8k" / "main", "test-00001-of-00002.parquet", GSM8K[1:])
  tasks = load_tasks(str(tmp_path), ["gsm8k", "bigcodebench"], "test")
  assert [task.reference for task in tasks[:2]] == ["1200", "2"]
  assert tasks[2].id == "bigcodebench/BigCodeBench/7"


def test_authors_names_of_files_are_found_and_several_are_refused(tmp_path):
  write(tmp_path / "svamp", "SVAMP.json", [ROWS["svamp"]])
  write(tmp_path / "humaneval", "HumanEval.jsonl.gz", [ROWS["humaneval"]])
  write(tmp_path / "bigcodebench", "BigCodeBench-v0.1.0_hf.jsonl.gz", [ROWS["bigcodebench"]])
  names = ["svamp", "humaneval", "bigcodebench"]
  assert [task.kind for task in load_tasks(str(tmp_path), names, "test")] == names
  write(tmp_path / "bigcodebench", "BigCodeBench-v0.1.1.jsonl.gz", [ROWS["bigcodebench"]])
  message = refusal(tmp_path, ["bigcodebench"], "test")
  assert ("there are BigCodeBench-v0.1.0_hf.jsonl.gz, BigCodeBench-v0.1.1.jsonl.gz; name the one"
          in message)


def test_a_file_that_is_named_is_read_in_place_of_the_usual_one(tmp_path):
  write(tmp_path / "gsm8k", "test.jsonl", GSM8K)
  write(tmp_path / "elsewhere", "mine.jsonl", GSM8K[1:])
  files = [("gsm8k", "elsewhere/mine.jsonl")]
  task, = load_tasks(str(tmp_path), ["gsm8k"], "test", files=files)
  assert (task.id, task.reference) == ("gsm8k/mine/0", "2")
  for file, told in (("none.jsonl", "there is no such file"), ("mine.csv", "must end with one of")):
    with pytest.raises(UserError, match=told):
      load_tasks(str(tmp_path), ["gsm8k"], "test", files=[("gsm8k", file)])


def test_a_split_that_is_a_path_or_a_pattern_is_refused(tmp_path):
  (tmp_path / "gsm8k").mkdir()
  for split in ("/etc/passwd", "../test", "*"):
    assert "must be a file's name without its suffixes" in refusal(tmp_path, ["gsm8k"], split)


def test_parquet_that_is_no_parquet_is_refused(tmp_path):
  pytest.importorskip("pyarrow", reason="Parquet needs the extra hub")
  (tmp_path / "gsm8k").mkdir()
  (tmp_path / "gsm8k" / "test.parquet").write_bytes(b"PAR1 and no more")
  assert "not a whole Parquet file" in refusal(tmp_path, ["gsm8k"], "test")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
  (tmp_path / "gsm8k").mkdir()
  (tmp_path / "gsm8k" / "test.parquet").touch()
  monkeypatch.setitem(sys.modules, "pyarrow", None)
  assert 'needs pyarrow, which comes with pip install -e ".[hub]"' in refusal(
      tmp_path, ["gsm8k"], "test")


# Of the files that CONDUCTOR_BENCHMARKS may hold.
COUNTS = {"gsm8k": 1319, "mmlu": 14042, "math500": 500, "multiarith": 600, "svamp": 1000,
          "aqua": 254, "aime25": 30, "humaneval": 164, "bigcodebench": 1140}


def test_whole_benchmarks_load_with_distinct_ids(benchmarks):
  tasks = load_tasks(benchmarks, list(COUNTS), "test")
  assert {name: sum(task.kind == name for task in tasks) for name in COUNTS} == COUNTS
  assert len({task.id for task in tasks}) == len(tasks)
  json.dumps([dict(task.metadata) for task in tasks])


def test_other_splits_of_whole_benchmarks_load(benchmarks):
  for name, split, rows in (("gsm8k", "train", 7473), ("mmlu", "dev", 285),
                            ("mmlu", "validation_prerelease", 1542), ("aqua", "validation", 254)):
    assert len(load_tasks(benchmarks, [name], split)) == rows
