import json
import re
from collections import Counter
from functools import partial

import pytest

from conductor_jax.config_checks import check_config
from conductor_jax.errors import UserError
from conductor_jax.workflows.workflow import Step, Workflow
from configs import conductor7b_paper, dryrun, quickstart
from experiments.components import load_splits, open_workers
from experiments.workdir import claim
from tests.tasks.hub_rows import ROWS, SPLITS, write


def file_config(path, heldout=5):
  config = dryrun.get_config()
  config.tasks.update(path=str(path), benchmarks=("gsm8k",))
  config.evaluation.tasks = heldout
  return config


def write_questions(folder, questions):
  (folder / "gsm8k").mkdir(parents=True)
  (folder / "gsm8k" / "test.jsonl").write_text("\n".join(
      json.dumps({"question": question, "answer": "#### 3"}) for question in questions))
  return folder


def test_a_question_that_occurs_twice_is_never_in_both_splits(tmp_path):
  path = write_questions(tmp_path, [f"What is {i % 9}?" for i in range(36)])
  splits = load_splits(file_config(path))
  assert len(splits.heldout) == 5
  assert not {t.question for t in splits.train} & {t.question for t in splits.heldout}
  assert load_splits(file_config(path)) == splits


def paper_rows(folder, name, count):
  """A benchmark of as many rows, each with a question of its own."""
  rows = [{**ROWS[name]} for _ in range(count)]
  for i, row in enumerate(rows):
    text = f"Question {i} of {name}?"
    if name == "rlpr":
      row["prompt"] = [{"role": "user", "content": text}]
      # Every tenth answer is too long.
      row["reward_model"] = {"ground_truth": "x" * (4 if i % 10 else 40)}
    elif name == "livecodebench":
      row.update(question_content=text, question_id=str(i))
    elif name == "math500":
      row.update(problem=text, unique_id=str(i))
    else:
      row["question"] = text
  write(folder / name, f"{SPLITS.get(name, 'test')}.jsonl", rows)


def test_the_papers_mix_is_balanced_seeded_and_says_what_is_missing(tmp_path):
  for name, count in (("mmlu", 400), ("math500", 500), ("rlpr", 400), ("livecodebench", 300)):
    paper_rows(tmp_path, name, count)
  config = conductor7b_paper.get_config()
  config.tasks.path = str(tmp_path)
  splits = load_splits(config)
  kinds = Counter(task.kind for task in splits.train)
  assert kinds == {"mmlu": 240, "math500": 240, "rlpr": 240, "livecodebench": 200}
  assert set(Counter(task.kind for task in splits.heldout).values()) == {100}
  assert splits.notes == (
      "rlpr: 40 of 400 rows left out, only those with answers of 30 characters at most are used",
      "livecodebench has 200 training and 100 held-out tasks, 240 and 100 were wanted")
  assert load_splits(config) == splits
  config.seed = 1
  assert load_splits(config).heldout != splits.heldout


def test_questions_of_benchmarks_that_are_evaluated_on_are_not_trained_on(tmp_path):
  path = write_questions(tmp_path, [f"What is {i}?" for i in range(20)])
  write(path / "svamp", "SVAMP.json", [
      {"Body": "what is", "Question": f"{i}", "Answer": 1.0} for i in range(20)])
  config = file_config(path)
  assert len(load_splits(config).train) == 15
  config.tasks.evaluated = ("svamp",)
  with pytest.raises(UserError, match="leaves nothing to train on of the 20 questions"):
    load_splits(config)
  write(path / "svamp", "SVAMP.json", [
      {"Body": "what is", "Question": f"{i}", "Answer": 1.0} for i in range(12)])
  splits = load_splits(config)
  asked = {f"What is {i}?" for i in range(12)}
  assert not asked & {task.question for task in splits.train}
  held = sum(task.question in asked for task in splits.heldout)
  assert splits.notes == (
      f"left out of training, for they are evaluated on too: {12 - held} questions",)


@pytest.mark.parametrize(("options", "told"), [
    (dict(livecodebench_release="release_v9"),
     "--config.tasks.livecodebench_release: no release 'release_v9'"),
    (dict(own=({"name": "a", "grader": "judge"},)), "--config.tasks.own: benchmark 'a': grader="),
    (dict(own=({"name": "mmlu", "grader": "text"},)), "--config.tasks.own: benchmark 'mmlu': the"),
    (dict(files=("gsm8k",)), "--config.tasks.files=.*: must be pairs of a benchmark and its file"),
    (dict(files=(("gsm9k", "a"),)), "must be pairs of a benchmark and its file, got .'gsm9k', 'a'"),
    (dict(files=(("gsm8k", "a.jsonl"),)), "frontier models know the files of the usual names only"),
    (dict(source="hub", revisions=(("gsm8k", 3),)), "pairs of a benchmark and its revision, got"),
    (dict(benchmarks=()), "must name a benchmark at least"),
])
def test_options_of_tasks_that_cannot_work_are_refused_before_anything_is_read(options, told):
  config = dryrun.get_config()
  config.tasks.update(options)
  with pytest.raises(UserError, match=told):
    check_config(config)


def test_too_few_rows_for_both_splits_are_refused(tmp_path):
  path = write_questions(tmp_path, ["What is 1?", "What is 2?"])
  with pytest.raises(UserError, match=r"--config.evaluation.tasks=5 leaves nothing to train on"):
    load_splits(file_config(path))


def test_files_without_a_path_are_refused():
  with pytest.raises(UserError, match="--config.tasks.path= must name the folder of the benchmark"):
    load_splits(dryrun.get_config())


def test_more_tasks_than_the_arena_has_are_refused():
  config = quickstart.get_config()
  config.tasks.train = 10_000
  with pytest.raises(UserError, match=r"--config.tasks.train=10000: .* distinct \w+ questions"):
    load_splits(config)


SOLVER = {"name": "solver", "base_url": "http://127.0.0.1:1/v1", "model": "m"}


def pool_config(source, **options):
  config = quickstart.get_config()
  config.pool.update(dict(source=source, **options))
  return config


@pytest.mark.parametrize(("config", "names"), [
    (pool_config("open", open=dict(urls=(("Qwen/Qwen3-32B", "http://127.0.0.1:1/v1"),))),
     ["qwen3-32b", "qwen3-32b-reasoning"]),
    (pool_config("listed", workers=({**SOLVER, "name": "other"}, SOLVER)), ["other", "solver"]),
], ids=["open", "listed"])
def test_the_executor_asks_the_workers_that_the_config_describes(tmp_path, config, names):
  with open_workers(config, tmp_path, say=print) as workers:
    assert [worker.name for worker in workers.executor.pool.workers] == names


def test_the_papers_pool_wants_its_vendors_keys(tmp_path, monkeypatch):
  for name in ("GEMINI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"):
    monkeypatch.delenv(name, raising=False)
  with pytest.raises(UserError, match="'gemini-2.5-pro' needs an API key: .* GEMINI_API_KEY$"):
    with open_workers(pool_config("paper"), tmp_path, say=print):
      pass


def ask(config, workdir, question="What is 2 + 3?", seed=0):
  """One call of the first worker, and what all calls of the work directory have cost."""
  with open_workers(config, workdir, say=print) as workers:
    plan = Workflow((Step(0, "Answer the question."),))
    transcript = workers.portal.call(
        partial(workers.executor.run, plan, question, seed=seed))
    return transcript.calls[0], workers.client.budget.spending()


def test_calls_are_journaled_in_the_work_directory_and_not_paid_again_after_an_interruption(
    tmp_path):
  config = quickstart.get_config()
  first, spent = ask(config, tmp_path)
  again, spent_again = ask(config, tmp_path)
  assert (first.source, again.source) == ("endpoint", "journal")
  assert again.response == first.response and again.usage == first.usage
  assert spent_again == spent and spent[first.worker].calls == 1
  assert [path.name for path in tmp_path.iterdir()] == ["journal.sqlite"]


def test_another_runs_journal_is_replayed_and_a_call_that_it_lacks_is_refused(tmp_path):
  config = quickstart.get_config()
  recorded, _ = ask(config, tmp_path)
  config.pool.journal.update(dict(mode="replay", path=str(tmp_path / "journal.sqlite")))
  replayed, _ = ask(config, tmp_path / "other")
  assert (replayed.source, replayed.response) == ("journal", recorded.response)
  with pytest.raises(UserError, match="holds no answer to a call that this run makes"):
    ask(config, tmp_path / "other", seed=1)
  assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(("budget", "told"), [
    (dict(calls=1), "the budget of the run, 1 calls"),
    (dict(dollars=1e-9), r"the budget of the run, \$1e-09"),
    (dict(tokens=10), "the budget of the run, 10 tokens"),
    (dict(workers=(("{worker}", "calls", 1),)), "the budget of worker '{worker}', 1 calls"),
])
def test_a_budget_of_the_config_holds_for_all_sessions_of_a_run(tmp_path, budget, told):
  config = quickstart.get_config()
  first, _ = ask(config, tmp_path)
  budget = naming(budget, first.worker)
  config.pool.budget.update(budget)
  record, _ = ask(config, tmp_path, seed=1)
  assert (record.outcome, record.attempts) == ("over_budget", 0)
  assert re.match(told.replace("{worker}", first.worker), record.error)


def naming(budget, worker):
  return {key: tuple((name.format(worker=worker), *limit) for name, *limit in value)
          if key == "workers" else value for key, value in budget.items()}


def test_a_budget_of_a_worker_that_is_not_there_is_refused(tmp_path):
  config = quickstart.get_config()
  config.pool.budget.workers = (("gpt-5", "dollars", 50.0),)
  with pytest.raises(UserError, match="there is no worker 'gpt-5', only .*abacus-large"):
    with open_workers(config, tmp_path, say=print):
      pass


def test_a_work_directory_with_listed_workers_is_known_again(tmp_path):
  workers = ({**SOLVER, "limits": {"concurrent": 8}, "sampling": {"max_tokens": 64}},)
  assert not claim(tmp_path, pool_config("listed", workers=workers))
  assert claim(tmp_path, pool_config("listed", workers=workers))
  dearer = ({**workers[0], "price_in": 1.0},)
  with pytest.raises(UserError, match="a run with pool.workers="):
    claim(tmp_path, pool_config("listed", workers=dearer))
