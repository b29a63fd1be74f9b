import base64
import io
import json
import os
import pickle
import zlib

import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks import livecodebench as module
from conductor_jax.tasks.code_tests import FunctionTests, StdinTests, read_tests
from conductor_jax.tasks.livecodebench import release_files
from conductor_jax.tasks.sources import benchmark_table, load_tasks
from tests.tasks.hub_rows import case, functional, livecodebench, packed, write


def load(folder, *rows):
  write(folder / "livecodebench", "test.jsonl", list(rows))
  return load_tasks(str(folder), ["livecodebench"], "test")


def refusal(folder, row):
  with pytest.raises(UserError) as fault:
    load(folder, row)
  message = str(fault.value)
  assert "\n" not in message
  start = f"{folder / 'livecodebench' / 'test.jsonl'}, line 1: column"
  assert message.startswith(start)
  return message


def squeezed(data: bytes) -> str:
  return base64.b64encode(zlib.compress(data)).decode()


def test_public_and_private_tests_of_a_program_become_one_list(tmp_path):
  task, = load(tmp_path, livecodebench())
  assert task.id == "livecodebench/twice"
  assert read_tests(task.reference) == StdinTests(("2\n", "5\n"), ("4\n", "10\n"))
  assert task.question == (
      "Double a number.\n\nWrite a Python program that reads its input from standard input and "
      "prints the answer to standard output.")
  assert task.metadata["contest_date"] == "2023-08-21T00:00:00"


def test_a_functions_input_is_one_json_value_a_line(tmp_path):
  task, = load(tmp_path, functional())
  assert read_tests(task.reference) == FunctionTests(
      "join", ([["a", "b"], "-"], [[], "\n"]), ("a-b", ""))
  assert task.question == (
      "Join texts.\n\nWrite the answer in Python, beginning with this code:\n\n```python\n"
      "class Solution:\n    def join(self, parts, between):\n```")
  assert task.metadata["starter_code"].startswith("class Solution:")


def test_a_function_without_starter_code_is_named(tmp_path):
  task, = load(tmp_path, functional(starter_code=""))
  assert task.question == "Join texts.\n\nWrite the Python function `join`."


def test_both_encodings_give_the_same_tests(tmp_path):
  cases = [case(f"{i}\n", f"{2 * i}\n", "stdin") for i in range(50)]
  plain, = load(tmp_path / "a", livecodebench(private_test_cases=json.dumps(cases)))
  for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
    text = squeezed(pickle.dumps(json.dumps(cases), protocol=protocol))
    assert load(tmp_path / "b", livecodebench(private_test_cases=text)) == [plain]


def test_pickles_that_do_more_than_hold_a_text_are_refused_unread(tmp_path):
  class Malicious:
    def __reduce__(self):
      return os.mkdir, (str(tmp_path / "made"),)

  for value, operation in (
      (Malicious(), "STACK_GLOBAL"), ([1], "EMPTY_LIST"), (b"[]", "SHORT_BINBYTES")):
    row = livecodebench(private_test_cases=squeezed(pickle.dumps(value)))
    message = refusal(tmp_path, row)
    assert "column 'private_test_cases' must pack one text" in message and operation in message
  assert not (tmp_path / "made").exists()


def test_the_index_of_a_memo_reserves_no_memory(tmp_path):
  # The C unpickler would allocate 32 GiB for this one.
  text = pickle.dumps("[]", protocol=2)
  hostile = text.replace(b"q\x00.", b"r\xff\xff\xff\xff.")
  assert hostile != text
  row = livecodebench(private_test_cases=squeezed(hostile))
  task, = load(tmp_path, row)
  assert read_tests(task.reference) == StdinTests(("2\n",), ("4\n",))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
  monkeypatch.setattr(module, "_LIMIT", 10_000)
  fits = packed([case("1" * 9_000, "2", "stdin")])
  assert len(load(tmp_path, livecodebench(private_test_cases=fits))) == 1
  bomb = packed([case("1" * 11_000, "2", "stdin")])
  assert len(bomb) < 300
  assert "unpacks to more than" in refusal(tmp_path, livecodebench(private_test_cases=bomb))


GOOD = packed([case("1\n", "2\n", "stdin")])


@pytest.mark.parametrize(("change", "column", "told"), [
    ({"private_test_cases": ""}, "private_test_cases", "is empty"),
    ({"public_test_cases": " "}, "public_test_cases", "is empty"),
    ({"private_test_cases": "?"}, "private_test_cases", "must hold JSON, or base64 of zlib"),
    ({"private_test_cases": "eJyV"}, "private_test_cases", "cut off"),
    ({"private_test_cases": GOOD[:-8]}, "private_test_cases", "cut off"),
    ({"private_test_cases": "AAAA" + GOOD}, "private_test_cases", "must hold JSON, or base64"),
    ({"private_test_cases": squeezed(b"[]")}, "private_test_cases", "opcode b'[' unknown"),
    ({"private_test_cases": squeezed(pickle.dumps("[")[:-1])}, "private_test_cases", "STOP"),
    ({"private_test_cases": squeezed(pickle.dumps("tests"))}, "private_test_cases", "JSON (Expect"),
    ({"private_test_cases": "[{"}, "private_test_cases", "must hold JSON (Expecting property"),
    ({"private_test_cases": '{"input": ""}'}, "private_test_cases", "a list of tests, got dict"),
    ({"private_test_cases": '["1"]'}, "private_test_cases", "texts input, output and testtype"),
    ({"private_test_cases": '[{"input": 1, "output": "1", "testtype": "stdin"}]'},
     "private_test_cases", "texts input, output and testtype"),
    ({"public_test_cases": "eJyV"}, "public_test_cases", "must hold JSON (Expecting value"),
    ({"public_test_cases": "[]", "private_test_cases": "[]"}, "private_test_cases", "no test"),
    ({"public_test_cases": "[]", "private_test_cases": packed([])}, "private_test_cases",
     "no test"),
    ({"private_test_cases": None}, "private_test_cases", "must be text, got None"),
    ({"metadata": "[]"}, "metadata", "must hold an object, got '[]'"),
    ({"metadata": "func"}, "metadata", "must hold JSON"),
])
def test_tests_that_cannot_be_had_are_refused_with_their_column(tmp_path, change, column, told):
  message = refusal(tmp_path, livecodebench(**change))
  assert f"column '{column}'" in message and told in message


@pytest.mark.parametrize(("change", "told"), [
    ({"metadata": "{}"}, "column 'metadata' must hold func_name"),
    ({"metadata": '{"func_name": "a b"}'}, "column 'metadata': the name of the function must be"),
    ({"metadata": '{"func_name": 3}'}, "column 'metadata': the name of the function must be"),
    ({"private_test_cases": json.dumps([case("[1", "2", "functional")])},
     "column 'private_test_cases' must hold JSON"),
    ({"private_test_cases": json.dumps([case("1", "two", "functional")])},
     "column 'private_test_cases' must hold JSON (Expecting value"),
    ({"private_test_cases": json.dumps([case("1" * 5000, "2", "functional")])},
     "column 'private_test_cases' must hold JSON (Exceeds the limit"),
])
def test_faulty_tests_of_functions_are_refused_with_their_column(tmp_path, change, told):
  assert told in refusal(tmp_path, functional(**change))


def test_programs_and_functions_are_not_mixed_and_other_forms_unknown(tmp_path):
  for kind in ("functional", "interactive"):
    row = livecodebench(private_test_cases=json.dumps([case("1", "2", kind)]))
    with pytest.raises(UserError, match=f"stdin or functional throughout, got .*{kind}"):
      load(tmp_path, row)


@pytest.mark.parametrize(("tag", "files"), [
    ("release_v1", ["test"]), ("release_v3", ["test", "test2", "test3"]), ("v1", ["test"]),
    ("v6", ["test6"]), ("v4_v5", ["test4", "test5"])])
def test_a_release_is_the_files_that_upstream_has_it_in(tag, files):
  assert list(release_files(tag)) == files


@pytest.mark.parametrize("tag", ["release_v0", "release_v7", "v5_v4", "release_v1_v2", "v", ""])
def test_a_release_that_does_not_exist_is_refused(tag):
  with pytest.raises(UserError, match="no release .* of LiveCodeBench: name one from release_v1"):
    release_files(tag)


def test_the_files_of_a_release_are_read_one_after_the_other(tmp_path):
  folder = tmp_path / "livecodebench"
  for name, question in (("test", "a"), ("test2", "b"), ("test3", "c")):
    write(folder, f"{name}.jsonl", [livecodebench(question_id=question)])

  def ids(tag):
    table = benchmark_table(livecodebench_release=tag)
    return [t.id for t in load_tasks(str(tmp_path), ["livecodebench"], "test", table=table)]

  assert ids("release_v2") == ["livecodebench/a", "livecodebench/b"]
  assert ids("v2_v3") == ["livecodebench/b", "livecodebench/c"]
  with pytest.raises(UserError, match="no file for the split 'test4'"):
    ids("release_v4")


FILES = {"exercism_functional": 75, "exercism_stdin": 75, "kattis_examples": 3}


def real(folder, *names):
  files = [("livecodebench", f"lcb_style/{name}.jsonl.gz") for name in names]
  if not os.path.isdir(os.path.join(folder, "lcb_style")):
    pytest.skip(f"{folder} has no folder lcb_style")
  return load_tasks(folder, ["livecodebench"], "test", files=files)


def test_real_rows_load_in_both_forms(benchmarks):
  tasks = real(benchmarks, *FILES)
  assert len(tasks) == len({task.id for task in tasks}) == sum(FILES.values())
  forms = [type(read_tests(task.reference)) for task in tasks]
  assert forms == [FunctionTests] * 75 + [StdinTests] * 78
  for task in tasks[:75]:
    tests = read_tests(task.reference)
    assert f"def {tests.function}(" in task.question


def test_real_rows_have_equal_tests_in_both_encodings(benchmarks):
  plain = {task.id: task for task in real(benchmarks, *FILES)}
  encoded = real(benchmarks, "encoded_private_sample")
  assert len(encoded) == 6
  assert [plain[task.id] for task in encoded] == encoded


def test_the_text_of_a_pickle_is_what_the_unpickler_reads():
  for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
    for text in ("", "[]", "é\n\U0001f600", "x" * 300, "y" * 70_000):
      data = pickle.dumps(text, protocol=protocol)
      assert pickle.load(io.BytesIO(data)) == text
      assert module._unpacked("c", squeezed(data)) == text
