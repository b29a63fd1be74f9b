"""The benchmark of exports, on the real model that it names."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process its peak memory")
def test_one_json_line_of_an_export_that_takes_no_more_memory_than_a_file_has(
    smollm2_file, tmp_path):
  result = subprocess.run(
      [sys.executable, "-m", "experiments.benchmarks.weight_sync", f"--folder={tmp_path}",
       "--repeats=1"],
      cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
  line = json.loads(result.stdout)
  # 134.5 million weights, the embedding once, and biases that Llama has not.
  assert line["megabytes"] == pytest.approx(269.1, abs=0.1)
  assert line["export_gb_per_second"] > 0 and line["share_of_plain_write"] > 0
  assert 0.01 < line["peak_extra_over_largest_shard"] <= 1.2
  assert os.listdir(tmp_path) == []
