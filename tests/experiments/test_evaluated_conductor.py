"""The policy of a training run, measured by the evaluation program."""

import json
import shutil
from pathlib import Path

import pytest

from conductor_jax.errors import UserError
from configs import quickstart
from experiments.evaluate import evaluate
from experiments.export import export
from tests.experiments.small_run import SMALL

pytestmark = pytest.mark.integration

# Warm-started until some plans parse.
OPTIONS = (*SMALL, "--config.sft.steps=70", "--config.sft.learning_rate=0.02",
           "--config.grpo.iterations=2")


@pytest.fixture(scope="module")
def run(program, tmp_path_factory) -> Path:
  workdir = tmp_path_factory.mktemp("runs") / "trained"
  done = program.run(workdir, *OPTIONS)
  assert done.returncode == 0, done.stderr
  return workdir


def config_of_evaluation():
  config = quickstart.get_config()  # of another shape than the run's policy
  config.evaluation.tasks, config.tasks.train = 12, 300
  config.grpo.prompts = 4
  return config


def measure(config, workdir, strategies=("conductor",), **options) -> list[dict]:
  evaluate(config, workdir, strategies=strategies, **options)
  return [json.loads(line) for line in (workdir / "items.jsonl").read_text().splitlines()]


def test_the_conductor_gives_the_answers_that_training_measured_at_its_end(run, tmp_path):
  records = measure(config_of_evaluation(), tmp_path, run=run)
  after = json.loads((run / "summary.json").read_text())["heldout"]["after_rl"]
  plans = [record["plan"] for record in records if record["plan"]]
  assert len(records) == 12 and 0 < len(plans)
  assert after["parse_rate"] == len(plans) / 12
  assert after["accuracy"] == sum(bool(r["grade"] and r["grade"]["correct"]) for r in records) / 12
  assert after["steps_per_plan"] == pytest.approx(sum(map(len, plans)) / len(plans))
  for record in records:
    assert record["variant"].startswith("grpo after step 2 of run ")
    assert record["completion"] and bool(record["plan"]) != bool(record["parse_failure"])


def test_exported_weights_give_the_same_answers_as_the_run_that_they_are_from(run, tmp_path):
  export(run, tmp_path / "policy", dtype="float32")
  config = config_of_evaluation()
  one = measure(config, tmp_path / "run", run=run)
  config.model.weights = str(tmp_path / "policy")
  other = measure(config, tmp_path / "weights")
  answers = [{r["task"]: (r["completion"], r["answer"]) for r in each} for each in (one, other)]
  assert answers[0] == answers[1]
  assert {record["variant"] for record in other} == {str(tmp_path / "policy")}


def test_answers_of_one_checkpoint_are_not_mixed_with_those_of_another(run, tmp_path):
  config = config_of_evaluation()
  measure(config, tmp_path / "evaluation", run=run, most=1)
  shutil.copytree(run, tmp_path / "earlier")
  shutil.rmtree(tmp_path / "earlier" / "checkpoints" / "grpo")
  with pytest.raises(UserError, match=(
      "^conductor was 'grpo after step 2 of run .*' in earlier sessions, and is 'sft after step "
      "70 of run .*': take another --workdir$")):
    measure(config, tmp_path / "evaluation", run=tmp_path / "earlier", most=2)


def test_a_run_without_a_checkpoint_cannot_be_evaluated(run, tmp_path):
  (tmp_path / "run").mkdir()
  shutil.copy(run / "config.json", tmp_path / "run")
  with pytest.raises(UserError, match="no checkpoint yet: evaluate when the run has written one"):
    measure(config_of_evaluation(), tmp_path / "evaluation", run=tmp_path / "run")
