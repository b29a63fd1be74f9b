import gzip
import json

import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks.sources import BENCHMARKS, load_tasks
from conductor_jax.tasks.task import Task

GSM8K = [
    {"question": "Two bags hold 600 nuts each. How many in all?",
     "answer": "2 * 600 = <<2*600=1200>>1200\n#### 1,200"},
    {"question": "Ann gives away 3 of 5 pens. How many are left?", "answer": "5 - 3 = 2\n#### 2"},
]
MMLU = [{"question": "Which is a prime?", "subject": "number_theory",
         "choices": ["4", "6", "7", "9"], "answer": 2}]
MATH500 = [{"problem": "Find $x$ if $2x = 1$.", "solution": r"Halve: $\boxed{\frac{1}{2}}$.",
            "answer": r"\frac{1}{2}", "subject": "Algebra", "level": 1,
            "unique_id": "test/algebra/1.json"}]


def write(folder, name, rows):
  """Writes rows in the form that the name's suffixes say."""
  text = (json.dumps(rows) if ".jsonl" not in name
          else "".join(json.dumps(row) + "\n" for row in rows))
  data = text.encode()
  folder.mkdir(exist_ok=True)
  (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


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


@pytest.mark.parametrize("name", ["test.jsonl", "test.jsonl.gz", "test.json", "test.json.gz"])
def test_all_four_file_forms_give_the_same_tasks(tmp_path, name):
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
    ("test.jsonl", b"[1]", "line 1: a row must be a JSON object, got list"),
    ("test.jsonl", b"", " is empty"),
    ("test.jsonl", b"\n\n", " is empty"),
    ("test.json", b"", " is empty"),
    ("test.json", b"[]", " is empty"),
    ("test.json", b'[{"question": "a"},\n}]', "line 2: not JSON"),
    ("test.json", b'{"question": "a"}', "must be one JSON array"),
    ("test.json", b'[{"question": "a", "answer": "#### 1"}, {}]', "row 2: column 'question'"),
    ("test.jsonl.gz", b"plain", "not a whole gzip file"),
    ("test.jsonl.gz", gzip.compress(b"x" * 9000)[:20], "not a whole gzip file"),
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


def test_whole_benchmarks_load_with_distinct_ids(benchmarks):
  tasks = load_tasks(benchmarks, list(BENCHMARKS), "test")
  counts = {name: sum(task.kind == name for task in tasks) for name in BENCHMARKS}
  assert counts == {"gsm8k": 1319, "mmlu": 14042, "math500": 500, "multiarith": 600}
  assert len({task.id for task in tasks}) == len(tasks)
  json.dumps([dict(task.metadata) for task in tasks])
