"""The hub, which a server on the loopback interface stands in for."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks.sources import load_hub_tasks, load_tasks
from tests.tasks.hub_rows import ROWS, livecodebench, write
from tests.tasks.hub_server import COMMIT, hub_server

needs_datasets = pytest.mark.skipif(
    find_spec("datasets") is None, reason="the package datasets is not installed (extra hub)")

CARD = """---
configs:
- config_name: {config}
  data_files:
  - split: {split}
    path: "{path}"
---
"""

# Loads what its argument says, in a process of its own: where the hub is, the client reads once.
PROGRAM = """
import json, sys
from dataclasses import asdict
from conductor_jax.errors import UserError
from conductor_jax.tasks.sources import benchmark_table, load_hub_tasks
for names, revisions in json.loads(sys.argv[1]):
  try:
    tasks = load_hub_tasks(names, "test", revisions=revisions,
                           table=benchmark_table(livecodebench_release="release_v2"))
    print(json.dumps([asdict(task) for task in tasks]))
  except UserError as fault:
    print(json.dumps(str(fault)))
"""


def load(home, asked, **environment):
  """What each of the loads gave: its tasks, or the message of its error."""
  done = subprocess.run(
      [sys.executable, "-c", PROGRAM, json.dumps(asked)],
      capture_output=True, text=True, check=True,
      env={**os.environ, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", **environment})
  return [json.loads(line) for line in done.stdout.splitlines()]


def publish(folder, dataset, rows, *, config, split, file):
  """Writes a data set as the hub has it."""
  root = folder.joinpath(*dataset.split("/"))
  write(root / os.path.dirname(file), os.path.basename(file), rows)
  (root / "README.md").write_text(CARD.format(config=config, split=split, path=file))


@needs_datasets
def test_data_sets_come_from_the_hub_at_the_revision_that_is_asked_for(tmp_path):
  sets, local = tmp_path / "sets", tmp_path / "local"
  publish(sets, "openai/gsm8k", [ROWS["gsm8k"]] * 2, config="main", split="test",
          file="main/test-00000-of-00001.parquet")
  publish(sets, "cais/mmlu", [{**ROWS["mmlu"], "answer": 4}], config="all", split="test",
          file="all/test-00000-of-00001.parquet")
  publish(sets, "openbmb/RLPR-Train-Dataset", [ROWS["rlpr"]], config="default", split="train",
          file="rlpr_train.parquet")
  for number, name in enumerate(("test.jsonl", "test2.jsonl")):
    row = livecodebench(question_id=f"q{number}")
    write(sets / "livecodebench" / "code_generation_lite", name, [row])
    write(local / "livecodebench", name, [row])
  (sets / "livecodebench" / "code_generation_lite" / "code_generation_lite.py").write_text("1 / 0")
  write(local / "gsm8k", "test.jsonl", [ROWS["gsm8k"]] * 2)
  write(local / "rlpr", "train.jsonl", [ROWS["rlpr"]])
  with hub_server(sets) as (url, requests):
    questions, code, faulty, absent = load(tmp_path / "home", [
        [["gsm8k", "rlpr"], [["gsm8k", "v7"]]], [["livecodebench"], [["livecodebench", "v8"]]],
        [["mmlu"], []], [["aqua"], []]], HF_ENDPOINT=url)
  expected = [vars(task) for task in load_tasks(str(local), ["gsm8k", "rlpr"], "test")]
  assert questions == expected
  assert [task["id"] for task in code] == ["livecodebench/q0", "livecodebench/q1"]
  assert faulty.startswith("cais/mmlu (all, test), row 1: column 'answer' must be the position")
  assert absent.startswith("deepmind/aqua_rat (raw): cannot get the split 'test' from the Hugging")
  assert "\n" not in absent
  # The revision is resolved once, and the files are those of its commit.
  assert "HEAD /datasets/openai/gsm8k/resolve/v7/README.md" in requests
  assert f"GET /datasets/openai/gsm8k/resolve/{COMMIT}/main/test-00000-of-00001.parquet" in requests
  assert "GET /datasets/livecodebench/code_generation_lite/resolve/v8/test2.jsonl" in requests
  assert "HEAD /datasets/openbmb/RLPR-Train-Dataset/resolve/main/README.md" in requests


@needs_datasets
def test_without_the_hub_one_line_says_so(tmp_path):
  table, file = load(tmp_path, [[["gsm8k"], []], [["livecodebench"], []]], HF_HUB_OFFLINE="1")
  assert table.startswith("openai/gsm8k (main): cannot get the split 'test' from the Hugging Face")
  assert file.startswith("livecodebench/code_generation_lite: cannot get test.jsonl from the")
  for message in (table, file):
    assert "\n" not in message and "read files with --config.tasks.source=files" in message


@pytest.mark.parametrize(("name", "package"), [
    ("gsm8k", "datasets"), ("livecodebench", "huggingface_hub")])
def test_without_the_package_the_error_says_what_to_install(monkeypatch, name, package):
  monkeypatch.setitem(sys.modules, package, None)
  with pytest.raises(UserError, match=r'needs the package datasets: pip install -e "\.\[hub\]"'):
    load_hub_tasks([name], "test")


def test_names_are_checked_before_anything_is_fetched(monkeypatch):
  monkeypatch.setitem(sys.modules, "datasets", None)
  with pytest.raises(UserError, match="unknown benchmark 'gsm9k': choose from gsm8k"):
    load_hub_tasks(["gsm8k", "gsm9k"], "test")
  with pytest.raises(UserError, match="unknown benchmark 'x'"):
    load_hub_tasks(["gsm8k"], "test", revisions=[("x", "v1")])
  with pytest.raises(UserError, match="named twice"):
    load_hub_tasks(["gsm8k", "gsm8k"], "test")
