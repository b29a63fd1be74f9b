import sys
from types import SimpleNamespace

import pytest

from conductor_jax.config import default_config
from conductor_jax.errors import UserError
from conductor_jax.tasks.configured import configured_tasks
from tests.tasks.hub_rows import CHAT, ROWS, livecodebench, write


def options(**values):
  tasks = default_config().tasks
  tasks.update(values)
  return tasks


def test_every_option_reaches_the_benchmark_that_it_is_of(tmp_path):
  for name in ("test", "test2"):
    write(tmp_path / "livecodebench", f"{name}.jsonl", [livecodebench(question_id=name)])
  write(tmp_path / "bigcodebench", "v0.1.4.jsonl", [ROWS["bigcodebench"]])
  write(tmp_path / "gpqa", "train.jsonl", [ROWS["gpqa"]])
  write(tmp_path / "mmlu", "dev.jsonl", [ROWS["mmlu"]])
  write(tmp_path / "gsm8k", "mine.jsonl", [ROWS["gsm8k"]])
  write(tmp_path / "riddles", "dev.jsonl", [{"question": "Why?", "answer": "so"}])

  def load(name, **values):
    return configured_tasks(options(source="files", path=str(tmp_path), **values), [name])

  assert [t.id for t in load("livecodebench")] == ["livecodebench/test"]
  assert [t.id for t in load("livecodebench", livecodebench_release="v2")] == [
      "livecodebench/test2"]
  assert load("bigcodebench")[0].question == ROWS["bigcodebench"]["instruct_prompt"]
  completed, = load("bigcodebench", bigcodebench_prompt="complete")
  assert completed.question.startswith("Complete this Python program.")
  orders = {tuple(load("gpqa", gpqa_seed=seed)[0].metadata["choices"]) for seed in range(8)}
  assert len(orders) > 4
  assert [t.id for t in load("mmlu", split="dev")] == ["mmlu/dev/0"]
  assert [t.id for t in load("gsm8k", files=(("gsm8k", "gsm8k/mine.jsonl"),))] == ["gsm8k/mine/0"]
  own = ({"name": "riddles", "grader": "text"},)
  assert [t.reference for t in load("riddles", own=own, split="dev")] == ["so"]


def test_the_hub_is_asked_for_the_data_set_split_and_revision(monkeypatch):
  asked = []

  def load_dataset(*arguments, **named):
    asked.append((*arguments, named))
    return [ROWS["rlpr" if "RLPR" in arguments[0] else "mmlu"]]

  monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
  tasks = configured_tasks(
      options(source="hub", split="validation", revisions=(("mmlu", "abc"),)), ["mmlu", "rlpr"])
  assert [task.id for task in tasks] == ["mmlu/validation/0", "rlpr/train/0"]
  assert asked == [
      ("cais/mmlu", "all", {"split": "validation", "revision": "abc"}),
      ("openbmb/RLPR-Train-Dataset", None, {"split": "train", "revision": None})]


def test_a_benchmark_says_which_rows_it_leaves_out(tmp_path):
  long = {**ROWS["rlpr"], "prompt": CHAT, "reward_model": {"ground_truth": "x" * 31}}
  write(tmp_path / "rlpr", "rlpr_train.jsonl", [ROWS["rlpr"], long])
  said = []
  configured_tasks(options(source="files", path=str(tmp_path)), ["rlpr"], say=said.append)
  assert said == [
      "rlpr: 1 of 2 rows left out, only those with answers of 30 characters at most are used"]


def test_files_without_a_path_are_refused():
  with pytest.raises(UserError, match="^--config.tasks.path= must name the folder of"):
    configured_tasks(options(source="files"), ["gsm8k"])
