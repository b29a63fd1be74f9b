"""Evaluations as a user starts them, on workers whose every request is counted."""

import json
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from conductor_jax.errors import OutOfBudget, UserError
from conductor_jax.evaluation.item import question_hash
from experiments.components import load_splits
from experiments.evaluate import evaluate
from tests.experiments.counted_workers import (
    WORKERS,
    Asked,
    answer,
    call,
    config_file,
    config_of,
    served,
)
from tests.workers.endpoint import hang, reply


@pytest.fixture
def endpoint():
  with served(Asked()) as endpoint:
    yield endpoint


def run_here(config: ConfigDict, workdir: Path, *strategies: str, **options) -> None:
  """One session in this process."""
  evaluate(config, workdir, strategies=strategies, **options)


def records(workdir: Path) -> list[dict]:
  path = workdir / "items.jsonl"
  return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def results(workdir: Path) -> dict:
  return json.loads((workdir / "results.json").read_text())


def keys(workdir: Path) -> Counter:
  return Counter((r["strategy"], r["benchmark"], r["task"], r["repeat"]) for r in records(workdir))


class Held:
  """Answers the first requests, and lets the others wait until it is opened."""

  def __init__(self, first: int):
    self.first, self.open, self.answered = first, False, []

  def __call__(self, body, before):
    if self.open or before < self.first:
      self.answered.append(call(body))
      return answer()
    return hang


@pytest.fixture
def start(program, tmp_path):
  """Starts an evaluation of 24 random plans in a process that could not start JAX."""
  def start(endpoint):
    return program.start(
        tmp_path / "run", "--strategies=random_plan", "--repeats=2", module="experiments.evaluate",
        config=str(config_file(tmp_path, endpoint, **SLOW)), platforms="none_such")
  return start


SLOW = {"evaluation__concurrent": 6}


def wait_until(process, condition):
  while not condition():
    assert process.poll() is None, process.communicate()
    time.sleep(0.01)


def test_a_killed_evaluation_asks_nothing_again_that_was_answered(start, tmp_path, capsys):
  held, workdir = Held(24), tmp_path / "run"
  with served(Asked(held)) as endpoint:
    process = start(endpoint)
    # All that is begun waits, and what is answered has long been taken.
    wait_until(process, lambda: endpoint.in_flight >= 6 and len(held.answered) == 24)
    time.sleep(0.5)
    process.kill()
    process.communicate()
    answered, hung = list(held.answered), endpoint.hits - 24
    done = len(keys(workdir))
    assert done > 0 and sum(len(each["calls"]) for each in records(workdir)) < 24  # some half done
    # The kill tore the last line.
    path = workdir / "items.jsonl"
    path.write_bytes(path.read_bytes()[:-30])

    held.open = True
    run_here(config_of(endpoint, **SLOW), workdir, "random_plan", repeats=2)
  out = capsys.readouterr().out
  assert "dropped the last " in out
  assert f"24 answers of 1 strategies to 12 tasks, {24 - done + 1} of them to be asked for" in out
  assert keys(workdir) == dict.fromkeys(keys(workdir), 1) and len(keys(workdir)) == 24
  counts = endpoint.counts
  assert {request: counts[request] for request in answered} == dict.fromkeys(answered, 1)
  assert endpoint.hits == len(counts) + hung
  assert sum(len(each["calls"]) for each in records(workdir)) == len(counts)
  assert results(workdir)["notes"] == []


def test_a_terminated_evaluation_finishes_what_is_under_way_and_goes_on_later(start, tmp_path):
  workdir = tmp_path / "run"
  with served(Asked(lambda body, before: answer(seconds=0.1))) as endpoint:
    process = start(endpoint)
    wait_until(process, lambda: len(records(workdir)) >= 2)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    stopped = len(records(workdir))
    assert process.returncode == 143 and stopped < 24
    assert err.splitlines()[-1] == (
        f"stopped after {stopped} of 24 answers: run the same command to go on")
    # Nothing was given up.
    assert endpoint.hits == sum(len(each["calls"]) for each in records(workdir))
    assert results(workdir)["notes"] == [
        f"{24 - stopped} of 24 answers are missing: the evaluation was stopped."]
    run_here(config_of(endpoint, **SLOW), workdir, "random_plan", repeats=2)
  assert set(endpoint.counts.values()) == {1} and len(keys(workdir)) == 24


def test_more_strategies_benchmarks_repeats_and_tasks_are_added_to_what_there_is(
    endpoint, tmp_path):
  config = config_of(endpoint)
  run_here(config, tmp_path, "solver", benchmarks=("words",), most=1)
  assert endpoint.hits == 1 == len(keys(tmp_path))
  run_here(config, tmp_path, "solver", "helper", benchmarks=("words", "sorting"), most=1)
  assert Counter(body["model"] for body in endpoint.bodies) == {"solver": 2, "helper": 2}
  run_here(config, tmp_path, "solver", benchmarks=("words",), most=2, repeats=3)
  assert Counter(body["model"] for body in endpoint.bodies) == {"solver": 7, "helper": 2}
  assert set(endpoint.counts.values()) == set(keys(tmp_path).values()) == {1}
  found = results(tmp_path)
  assert (found["strategies"], found["benchmarks"]) == (["solver", "helper"], ["words", "sorting"])
  cell = found["by_benchmark"]["words"]["strategies"]["solver"]
  assert (cell["tasks"], cell["items"]) == (2, 6) and list(cell["pass_at_k"]) == ["1", "2", "3"]
  # A repeat is another sample.
  seeds = {r["repeat"]: r["seed"] for r in records(tmp_path)}
  assert seeds[0] == 0 and len(set(seeds.values())) == 3


def test_another_config_is_refused_and_a_directory_left_as_it_is(endpoint, tmp_path):
  run_here(config_of(endpoint), tmp_path, "solver", most=1)
  before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
  with pytest.raises(UserError, match="belongs to a run with workflow.max_steps=5, not 3"):
    run_here(config_of(endpoint, workflow__max_steps=3), tmp_path, "solver", most=1)
  assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_has_no_verdict_counts_for_nothing_and_is_asked_again(tmp_path):
  down = [True]

  def behave(body, before):
    if down[0] and body["model"] == "helper":
      return reply({}, 503)
    return answer()

  with served(Asked(behave)) as endpoint:
    config = config_of(endpoint)
    run_here(config, tmp_path, "solver", "helper", most=1)
    first = results(tmp_path)
    assert first["mean"]["strategies"]["helper"]["accuracy"] is None
    assert first["mean"]["strategies"]["helper"]["rejected"] == 5
    assert first["mean"]["strategies"]["solver"]["rejected"] == 0
    assert re.fullmatch("5 of 10 answers have no verdict and count for nothing, the last because "
                        "helper: .*503.*", first["notes"][0])
    down[0] = False
    run_here(config, tmp_path, "solver", "helper", most=1)
    second = results(tmp_path)
  assert second["notes"] == [] and second["mean"]["strategies"]["helper"]["rejected"] == 0
  assert Counter(body["model"] for body in endpoint.bodies) == {"solver": 5, "helper": 10}


def test_an_evaluation_that_reaches_nobody_is_an_error_in_one_line(tmp_path):
  with served(Asked(lambda body, before: reply({}, 503))) as endpoint:
    with pytest.raises(UserError, match=(
        "^none of 5 answers has a verdict, the last because solver: .*503.*: mend it, then run the "
        "same command to ask again$")):
      run_here(config_of(endpoint), tmp_path, "solver", most=1)
  assert results(tmp_path)["mean"]["strategies"]["solver"]["rejected"] == 5


def test_a_spent_budget_stops_it_and_a_higher_one_goes_on(endpoint, tmp_path):
  limited = config_of(endpoint, pool__budget__calls=7, evaluation__concurrent=2)
  with pytest.raises(OutOfBudget, match=(
      "^the budget of the run, 7 calls, has no room .*; spent so far: .* in .* calls.*: raise "
      "--config.pool.budget, then run the same command to go on from here$")):
    run_here(limited, tmp_path, "solver", "helper")
  assert endpoint.hits == 7 == sum(keys(tmp_path).values())
  assert "17 of 24 answers are missing" in results(tmp_path)["notes"][0]
  run_here(config_of(endpoint, evaluation__concurrent=2), tmp_path, "solver", "helper")
  assert endpoint.hits == 24 == len(keys(tmp_path)) and set(endpoint.counts.values()) == {1}


def test_the_best_single_worker_is_chosen_once_on_training_tasks_and_kept(tmp_path):
  down = [True]

  def behave(body, before):
    if body["model"] == "helper":
      return reply({}, 503) if down[0] else answer(right)
    return answer()

  config = config_of(Asked())
  right = f"<answer>{load_splits(config).train[0].reference}</answer>"  # the only right one
  with served(Asked(behave)) as endpoint:
    config = config_of(endpoint)
    run_here(config, tmp_path, "best_single_worker", most=1)
    assert {record["variant"] for record in records(tmp_path)} == {"solver"}
    assert endpoint.hits == 12 * len(WORKERS) + 5
    down[0] = False
    run_here(config, tmp_path, "best_single_worker", most=2)
    assert endpoint.hits == 12 * len(WORKERS) + 10
  assert {record["variant"] for record in records(tmp_path)} == {"solver"}
  evaluated = {record["question"] for record in records(tmp_path)}
  trained = {question_hash(task) for task in load_splits(config).train}
  assert len(evaluated) == 10 and not evaluated & trained


def test_a_record_holds_no_key(endpoint, tmp_path, monkeypatch):
  key = "sk-very-secret-0123456789-abcdefghijklmnop"
  monkeypatch.setenv("TEST_KEY", key)
  config = config_of(endpoint)
  config.pool.workers = tuple(
      {**worker, "api_key_env": "TEST_KEY"} for worker in config.pool.workers)
  endpoint.decide = lambda body, before: answer(f"The key is {key}.")
  run_here(config, tmp_path, "solver", most=1)
  assert endpoint.headers[0]["Authorization"] == f"Bearer {key}"
  for path in tmp_path.iterdir():
    assert b"very-secret" not in path.read_bytes(), path


@pytest.mark.parametrize(("options", "line"), [
    ({"strategies": ["solvr"]}, "--strategies: there is no strategy 'solvr': choose from "
     "conductor, conductor_without_access, best_single_worker, random_plan, all_workers, solver, "
     "helper, novice"),
    ({"strategies": []}, "--strategies names none: choose from conductor, "),
    ({"strategies": ["conductor"]}, "--strategies=conductor needs a policy: name a training run "),
    ({"strategies": ["solver"], "benchmarks": ["spelling"]}, "--benchmarks: there is no benchmark "
     "'spelling': choose from arithmetic, words, sorting, almanac, two-hop"),
    ({"strategies": ["solver"], "run": Path("nowhere")}, "--run=nowhere: there is no run in it"),
])
def test_a_wrong_name_is_one_line_and_nothing_is_made(tmp_path, options, line):
  names = options.pop("strategies")
  with pytest.raises(UserError) as raised:
    run_here(config_of(Asked()), tmp_path / "run", *names, **options)
  assert str(raised.value).startswith(line) and "\n" not in str(raised.value)
  assert not (tmp_path / "run").exists()


