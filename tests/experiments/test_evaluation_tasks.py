import json

import pytest

from conductor_jax.arena.world import KINDS
from conductor_jax.errors import UserError
from configs import dryrun, quickstart
from experiments.components import load_splits, open_workers, worker_names
from experiments.evaluation_tasks import benchmark_names, evaluation_tasks, with_benchmarks
from experiments.strategies import strategy_names
from experiments.workdir import claim

WORKERS = ["solver", "helper"]


def write(folder, benchmark, questions):
  rows = {
      "gsm8k": lambda q: {"question": q, "answer": "#### 3"},
      "multiarith": lambda q: {"input": q, "target": 3}}
  (folder / benchmark).mkdir(parents=True, exist_ok=True)
  name = "test" if benchmark == "gsm8k" else benchmark
  (folder / benchmark / f"{name}.jsonl").write_text(
      "".join(json.dumps(rows[benchmark](question)) + "\n" for question in questions))
  return folder


def config_of(folder, *benchmarks, train=10, heldout=5):
  config = dryrun.get_config()
  config.tasks.update(path=str(folder), benchmarks=benchmarks, train=train)
  config.evaluation.tasks = heldout
  return config


def questions(tasks):
  return {task.question for task in tasks}


@pytest.fixture
def folder(tmp_path):
  write(tmp_path, "gsm8k", [f"What is {i} and {i}?" for i in range(40)])
  return write(tmp_path, "multiarith", [f"What is {i} and {i}?" for i in range(30, 60)])


def test_a_strategy_is_meant_by_its_name_and_a_worker_by_its_own_or_as_a_single_one():
  assert strategy_names(["random_plan", "helper", "single:solver", "helper"], WORKERS) == [
      "random_plan", "helper", "solver"]
  assert strategy_names(["helper", "all_workers"], WORKERS) == ["helper", "solver"]


@pytest.mark.parametrize("name", ["single:random_plan", "Random_plan", "solver ", ""])
def test_any_other_name_is_refused_with_those_there_are(name):
  with pytest.raises(UserError, match=(
      f"^--strategies: there is no strategy '{name}': choose from conductor, "
      "conductor_without_access, best_single_worker, "
      "random_plan, all_workers, solver, helper$")):
    strategy_names([name], WORKERS)


def test_a_worker_that_is_called_as_a_strategy_is_refused():
  with pytest.raises(UserError, match="a worker is called 'random_plan', as a strategy is: rename"):
    strategy_names(["solver"], ["solver", "random_plan"])


@pytest.mark.parametrize("config", [quickstart.get_config(), dryrun.get_config()])
def test_workers_have_their_names_before_any_of_them_is_started(config, tmp_path):
  if config.tasks.source == "files":
    config = config_of(write(tmp_path, "gsm8k", ["Why?"]), "gsm8k")
  names = worker_names(config)
  with open_workers(config, tmp_path, say=print) as workers:
    assert names == [worker.name for worker in workers.executor.pool.workers] and len(names) == 7


def test_workers_of_a_language_model_have_the_names_of_the_config():
  config = quickstart.get_config()
  config.pool.update(source="vllm", vllm=dict(workers=(("calm", 0.2), ("wild", 1.0))))
  assert worker_names(config) == ["calm", "wild"]


def test_the_benchmarks_are_the_configs_unless_others_are_asked_for(folder):
  config = config_of(folder, "gsm8k")
  config.tasks.evaluated = ("aime25",)
  assert benchmark_names(config, []) == ["gsm8k", "aime25"]
  assert benchmark_names(config, ["multiarith", "gsm8k", "multiarith"]) == ["multiarith", "gsm8k"]
  assert benchmark_names(quickstart.get_config(), []) == list(KINDS)
  with pytest.raises(UserError, match="there is no benchmark 'gsm9k': choose from .*gsm8k, .*mmlu"):
    benchmark_names(config, ["gsm9k"])


def test_what_is_trained_on_is_not_asked_and_all_else_is(folder):
  config = config_of(folder, "gsm8k")
  asked = evaluation_tasks(config, ["gsm8k"], 0, None)
  train = load_splits(config).train
  assert len(train) == 10 and asked.training == train
  assert len(asked.tasks) == 30 and not questions(asked.tasks) & questions(train)
  assert questions(load_splits(config).heldout) < questions(asked.tasks)
  assert asked.notes[-1] == (
      "gsm8k: 10 of 40 questions are not asked, for they are trained on")


def test_a_benchmark_that_is_not_trained_on_is_asked_in_full_but_for_questions_it_shares(folder):
  config = config_of(folder, "gsm8k", train=30)
  train = questions(load_splits(config).train)
  shared = train & {f"What is {i} and {i}?" for i in range(30, 40)}
  asked = evaluation_tasks(config, ["multiarith"], 0, None)
  assert 0 < len(shared) and len(asked.tasks) == 30 - len(shared)
  assert not questions(asked.tasks) & train


def test_fewer_tasks_are_the_first_of_more(folder):
  config = config_of(folder, "gsm8k")
  few, more = (evaluation_tasks(config, ["gsm8k", "multiarith"], most, None).tasks
               for most in (4, 9))
  for kind in ("gsm8k", "multiarith"):
    one, other = ([task.id for task in tasks if task.kind == kind] for tasks in (few, more))
    assert len(one) == 4 and len(other) == 9 and other[:4] == one


def test_what_another_run_was_trained_on_is_not_asked_either(folder, tmp_path):
  trained = config_of(folder, "gsm8k", train=12, heldout=3)
  claim(tmp_path / "run", trained)
  config = config_of(folder, "gsm8k", train=4, heldout=20)
  asked = questions(evaluation_tasks(config, ["gsm8k"], 0, tmp_path / "run").tasks)
  both = questions(load_splits(trained).train) | questions(load_splits(config).train)
  assert len(both) > 12 and not asked & both and len(asked) == 40 - len(both)
  # A run of the same config is trained on what its config says.
  claim(tmp_path / "same", config)
  again = evaluation_tasks(config, ["gsm8k"], 0, tmp_path / "same").tasks
  assert again == evaluation_tasks(config, ["gsm8k"], 0, None).tasks


def test_a_benchmark_that_is_trained_on_to_its_last_question_is_refused(folder):
  config = config_of(folder, "gsm8k", train=40, heldout=1)
  write(folder, "multiarith", [task.question for task in load_splits(config).train])
  with pytest.raises(UserError, match=(
      "^--benchmarks: multiarith has no task that is not trained on, of 39: lower "
      "--config.tasks.train, or leave it out$")):
    evaluation_tasks(config, ["multiarith"], 0, None)


def test_the_arenas_tasks_are_those_held_out():
  config = quickstart.get_config()
  config.tasks.train, config.evaluation.tasks = 30, 30
  asked = evaluation_tasks(config, ["two-hop", "words"], 3, None)
  assert [task.kind for task in asked.tasks] == ["two-hop"] * 3 + ["words"] * 3
  assert questions(asked.tasks) < questions(load_splits(config).heldout) and not asked.notes


def test_simulated_workers_know_the_benchmarks_that_are_asked_beside_the_configs(folder):
  config = config_of(folder, "gsm8k")
  assert with_benchmarks(config, ["mmlu", "gsm8k"]).tasks.benchmarks == ("gsm8k", "mmlu")
  assert config.tasks.benchmarks == ("gsm8k",)
