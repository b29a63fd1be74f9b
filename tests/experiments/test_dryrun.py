"""The dry run, as a user starts it: real loading, grading and training on rows of benchmarks."""

import gzip
import json
import os
from pathlib import Path

import pytest

from tests.experiments.small_run import SMALL

ROWS = {
    "gsm8k": lambda i: {"question": f"Tom has {i} pens and buys {i + 2} more. How many has he?",
                        "answer": f"{i} + {i + 2} = {2 * i + 2}\n#### {2 * i + 2}"},
    "mmlu": lambda i: {"question": f"Which number comes after {i}?", "subject": "counting",
                       "choices": [str(i + k) for k in (3, 1, 2, 0)], "answer": 1},
    "math500": lambda i: {
        "problem": rf"Compute $\frac{{{i}}}{{7}}$.", "solution": "",
        "answer": rf"\frac{{{i}}}{{7}}", "subject": "Algebra", "level": 1,
        "unique_id": f"test/{i}"},
}


def write_rows(folder: Path) -> Path:
  for name, row in ROWS.items():
    (folder / name).mkdir(parents=True)
    rows = [json.dumps(row(i)) for i in range(8, 38)]
    (folder / name / "test.jsonl").write_text("\n".join(rows) + "\n")
  return folder


DRY = ("--config.sft.steps=10", "--config.evaluation.tasks=12", "--config.tasks.balanced=True")


@pytest.mark.integration
def test_the_dry_run_walks_the_road_on_benchmark_rows(program, tmp_path):
  # Real ones where there are any.
  path = os.environ.get("CONDUCTOR_BENCHMARKS") or write_rows(tmp_path / "rows")
  workdir = tmp_path / "run"
  done = program.run(
      workdir, *SMALL[:5], *DRY, f"--config.tasks.path={path}", config="configs/dryrun.py")
  assert done.returncode == 0, done.stderr
  # What there is too little of is told at the start.
  assert "tasks: math500 has" in done.stdout
  summary = json.loads((workdir / "summary.json").read_text())
  assert summary["iterations"] == 3
  best = summary["heldout"]["best_single_worker"]
  assert best["accuracy"] > 0.6 and set(best["accuracy_by_kind"]) <= set(ROWS)
  # Balanced, the first and the last four questions have all three benchmarks.
  for iteration in (0, 2):
    with gzip.open(workdir / "rollouts" / f"{iteration:06}.jsonl.gz") as file:
      assert {json.loads(line)["task"]["kind"] for line in file} == set(ROWS)


def test_a_faulty_task_file_is_named_with_line_and_column(program, tmp_path):
  rows = write_rows(tmp_path / "rows")
  path = rows / "gsm8k" / "test.jsonl"
  lines = path.read_text().splitlines()
  lines[4] = json.dumps({"question": "Why?"})
  path.write_text("\n".join(lines))
  done = program.run(
      tmp_path / "run", f"--config.tasks.path={rows}", config="configs/dryrun.py")
  assert done.returncode == 2
  line = done.stderr.strip().splitlines()[-1]
  assert line.startswith("error: ") and "line 5" in line and "'answer'" in line
  assert not (tmp_path / "run").exists()
