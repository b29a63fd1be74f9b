import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks.code_tests import CheckTests, UnitTests, read_tests
from conductor_jax.tasks.sources import benchmark_table, load_tasks
from tests.tasks.hub_rows import ROWS, SPLITS, bigcodebench, write


def one(folder, name, row, **options):
  write(folder / name, f"{SPLITS.get(name, 'test')}.jsonl", [row])
  return load_tasks(str(folder), [name], "test", table=benchmark_table(**options))[0]


def refusal(folder, name, row):
  with pytest.raises(UserError) as fault:
    one(folder, name, row)
  assert ", line 1: " in str(fault.value)
  return str(fault.value)


def test_humaneval_rows_become_tests_that_check_a_function(tmp_path):
  row = ROWS["humaneval"]
  task = one(tmp_path, "humaneval", row)
  assert task.id == "humaneval/HumanEval/3"
  assert read_tests(task.reference) == CheckTests(row["prompt"], row["test"], "twice")
  assert task.question == (
      "Complete this Python program. Answer with the whole program, its imports included, in one "
      f"block of code.\n\n```python\n{row['prompt']}```")
  assert task.metadata == {"canonical_solution": "    return 2 * n\n"}


@pytest.mark.parametrize("name", ["bigcodebench", "bigcodebench-hard"])
def test_bigcodebench_rows_become_unit_tests(tmp_path, name):
  row = bigcodebench()
  task = one(tmp_path, name, row)
  assert (task.id, task.kind) == (f"{name}/BigCodeBench/7", name)
  assert read_tests(task.reference) == UnitTests(row["code_prompt"], row["test"], "task_func")
  assert task.question == row["instruct_prompt"]
  assert task.metadata["libs"] == ["random", "os.path"]
  assert task.metadata["canonical_solution"] == "    return 2 * n\n"


def test_bigcodebench_can_ask_to_complete_a_program(tmp_path):
  task = one(tmp_path, "bigcodebench", bigcodebench(), bigcodebench_prompt="complete")
  assert task.question.endswith('```python\ndef task_func(n):\n    """Double n."""\n```')


@pytest.mark.parametrize(("name", "change", "told"), [
    ("humaneval", {"test": ""}, "the tests must define check(candidate)"),
    ("humaneval", {"entry_point": "a.b"}, "the name of the function must be an identifier"),
    ("bigcodebench", {"test": "assert True"}, "the tests must define a unittest.TestCase"),
    ("bigcodebench", {"entry_point": ""}, "the name of the function must be an identifier"),
])
def test_tests_that_test_nothing_are_refused(tmp_path, name, change, told):
  message = refusal(tmp_path, name, {**ROWS[name], **change})
  assert f"columns 'test' and 'entry_point': {told}" in message


def test_libraries_that_are_no_list_are_refused(tmp_path):
  assert "column 'libs' must name packages" in refusal(
      tmp_path, "bigcodebench", bigcodebench(libs="random"))


def test_real_programs_have_their_names_and_libraries(benchmarks):
  tasks = load_tasks(benchmarks, ["humaneval", "bigcodebench"], "test")
  for task in tasks[:164]:
    tests = read_tests(task.reference)
    assert f"def {tests.entry_point}(" in tests.prompt
  libraries = {library for task in tasks[164:] for library in task.metadata["libs"]}
  assert {"random", "itertools", "numpy", "pandas"} <= libraries
  assert all(library.replace(".", "").isidentifier() for library in libraries)
  assert all(read_tests(task.reference).entry_point == "task_func" for task in tasks[164:])
