"""A run that collapses says so: where it is watched, in its records, and on its page."""

import json
import re
import signal

from tests.experiments.small_run import SMALL, recorded, wait_for

# After so short a warm start some plans never parse.
COLLAPSED = (
    *SMALL, "--config.report.collapse.iterations=2", "--config.report.collapse.parse_rate=1.0",
    "--config.report.collapse.failed_groups=1.0")
WARNING = re.compile(
    r"^collapse: few plans parse \(parse rate [0-9.]+ over the last 2 iterations, bound 1\): lower "
    r"optimizer\.learning_rate, or raise sft\.steps$", re.MULTILINE)


def test_a_collapse_is_told_once_counted_and_listed_also_by_a_run_that_is_resumed(
    program, tmp_path):
  process = program.start(tmp_path, *COLLAPSED)
  wait_for(process, tmp_path, "grpo", 3)
  process.send_signal(signal.SIGTERM)
  before, _ = process.communicate(timeout=120)
  assert recorded(tmp_path, "grpo") < 6
  done = program.run(tmp_path, *COLLAPSED)
  assert done.returncode == 0, done.stderr
  warning, = WARNING.findall(before)
  # After the line of the iteration that it is about.
  assert re.search(r"^ +2/6  reward .*\n" + re.escape(warning), before, re.MULTILINE)
  assert "collapse:" not in done.stdout
  lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
  counts = [line["collapsed"] for line in lines if line["phase"] == "grpo"]
  assert counts == [0, 1, 1, 1, 1, 1]
  assert not any("collapsed" in line for line in lines if line["phase"] == "sft")
  summary = json.loads((tmp_path / "summary.json").read_text())
  assert summary["warnings"] == [{"iteration": 2, "warning": warning}]
  assert f"<li>After iteration 2: {warning}</li>" in (tmp_path / "report.html").read_text()
