"""Rows of our own making, in the columns that the benchmarks have on the hub."""

import base64
import gzip
import json
import pickle
import zlib
from pathlib import Path

CHAT = [{"role": "system", "content": "Answer inside tags."},
        {"role": "user", "content": "What is the unit of force?"}]


def packed(value) -> str:
  """LiveCodeBench's second encoding of tests."""
  return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(value)))).decode()


def case(given: str, wanted: str, kind: str) -> dict[str, str]:
  return {"input": given, "output": wanted, "testtype": kind}


def livecodebench(**change) -> dict[str, str]:
  """A row with stdin tests."""
  return {
      "question_title": "Twice", "question_content": "Double a number.", "platform": "own",
      "question_id": "twice", "contest_id": "1", "contest_date": "2023-08-21T00:00:00",
      "starter_code": "", "difficulty": "easy",
      "public_test_cases": json.dumps([case("2\n", "4\n", "stdin")]),
      "private_test_cases": json.dumps([case("5\n", "10\n", "stdin")]), "metadata": "{}", **change}


def functional(**change) -> dict[str, str]:
  """A row with tests of a function of two arguments."""
  return livecodebench(**{
      "question_title": "Join", "question_content": "Join texts.", "question_id": "join",
      "starter_code": "class Solution:\n    def join(self, parts, between):\n        ",
      "metadata": json.dumps({"func_name": "join"}),
      "public_test_cases": json.dumps([case('["a", "b"]\n"-"', '"a-b"', "functional")]),
      "private_test_cases": json.dumps([case('[]\n"\\n"', '""', "functional")]), **change})


def bigcodebench(**change) -> dict[str, str]:
  return {
      "task_id": "BigCodeBench/7", "complete_prompt": 'def task_func(n):\n    """Double n."""\n',
      "instruct_prompt": "Double n.\nYou should write code starting with:\n```\ndef task_func(n):\n"
                         "```",
      "canonical_solution": "    return 2 * n\n", "code_prompt": "def task_func(n):\n",
      "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_double(self):\n"
              "        self.assertEqual(task_func(2), 4)\n",
      "entry_point": "task_func", "doc_struct": "{}", "libs": "['random', 'os.path']", **change}


ROWS = {
    "gsm8k": {"question": "Two bags hold 600 nuts each. How many in all?",
              "answer": "2 * 600 = <<2*600=1200>>1200\n#### 1,200"},
    "mmlu": {"question": "Which is a prime?", "subject": "number_theory",
             "choices": ["4", "6", "7", "9"], "answer": 2},
    "math500": {"problem": "Find $x$ if $2x = 1$.", "solution": r"Halve: $\boxed{\frac{1}{2}}$.",
                "answer": r"\frac{1}{2}", "subject": "Algebra", "level": 1,
                "unique_id": "test/algebra/1.json"},
    "multiarith": {"question": "Ann has 3 pens and buys 4. How many has she?", "final_ans": "7"},
    "svamp": {"ID": "chal-1", "Body": "Ann had 9 pens.",
              "Question": "She lost 4. How many are left?", "Equation": "( 9.0 - 4.0 )",
              "Answer": "5.0", "Type": "Subtraction",
              "question_concat": "Ann had 9 pens. She lost 4. How many are left?"},
    "aqua": {"question": "What is half of 9?", "options": ["A)4", "B) 4.5", "C)5", "D)9", "E)18"],
             "rationale": "9 / 2 = 4.5", "correct": "B"},
    "aime25": {"problem": "Find the remainder of $10^3$ modulo $997$.", "answer": "003", "id": "0"},
    "gpqa": {"Question": "Which has the most protons?\n", "Correct Answer": "gold ",
             "Incorrect Answer 1": "iron", "Incorrect Answer 2": "neon",
             "Incorrect Answer 3": "zinc\n"},
    "rlpr": {"prompt": CHAT, "reward_model": {"ground_truth": "newton", "style": "rule"},
             "ability": "Physics", "data_source": "own", "extra_info": {"index": 0}},
    "humaneval": {"task_id": "HumanEval/3", "prompt": 'def twice(n):\n    """Double n."""\n',
                  "entry_point": "twice", "canonical_solution": "    return 2 * n\n",
                  "test": "def check(candidate):\n    assert candidate(2) == 4\n"},
    "bigcodebench": bigcodebench(),
    "bigcodebench-hard": bigcodebench(task_id="BigCodeBench/8", q_idx=3, score=0.5),
    "livecodebench": livecodebench(),
}

# The split that a benchmark's file is named for; "test" where nothing is said.
SPLITS = {"gpqa": "train", "rlpr": "train", "bigcodebench": "v0.1.4", "bigcodebench-hard": "v0.1.4"}


def write(folder: Path, name: str, rows: list) -> None:
  """Writes rows in the form that the name's suffixes say."""
  folder.mkdir(exist_ok=True, parents=True)
  if name.endswith(".parquet"):
    import pyarrow
    from pyarrow import parquet
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / name)
    return
  text = (json.dumps(rows) if ".jsonl" not in name
          else "".join(json.dumps(row) + "\n" for row in rows))
  data = text.encode()
  (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
