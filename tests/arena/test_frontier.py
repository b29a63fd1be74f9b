"""The simulated pool, on rows of our own and through a real server process."""

import asyncio
import json
import random

import aiohttp
import pytest

from conductor_jax.arena import frontier
from conductor_jax.arena.server_process import ServerProcess
from conductor_jax.errors import UserError
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.sources import load_tasks
from conductor_jax.tasks.task import Task
from conductor_jax.workflows.context import inlined_context, message_context

BENCHMARKS = ["gsm8k", "mmlu", "math500"]
MODELS = ["gemini-2.5-pro", "claude-sonnet-4", "gpt-5", "qwen3-32b", "gemma-3-27b",
          "qwen3-32b-reasoning", "deepseek-r1-distill-qwen-32b"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
  root = tmp_path_factory.mktemp("benchmarks")
  rows = {
      "gsm8k": [{"question": f"A box holds {n} pens. How many pens do three boxes hold?",
                 "answer": f"3 * {n} = {3 * n}\n#### {3 * n}"} for n in range(2, 42)],
      "mmlu": [{"question": f"Which of these is {n} + 1?", "subject": "sums", "answer": n % 4,
                "choices": [str(n + 1 + i - n % 4) for i in range(4)]} for n in range(10, 50)],
      "math500": [{"problem": f"Simplify $\\frac{{{2 * n}}}{{{2 * n + 2}}}$.", "solution": "Halve.",
                   "answer": rf"\frac{{{n}}}{{{n + 1}}}", "subject": "Algebra", "level": 1,
                   "unique_id": f"test/algebra/{n}.json"} for n in range(1, 41)],
  }
  for name, table in rows.items():
    (root / name).mkdir()
    (root / name / "test.jsonl").write_text("\n".join(map(json.dumps, table)))
  return str(root)


@pytest.fixture(scope="module")
def tasks(path):
  return load_tasks(path, BENCHMARKS, "test")


@pytest.fixture(scope="module")
def answerers(path):
  return frontier.answerers(path, BENCHMARKS, "test")


def ask(question, subtask="Solve it."):
  return message_context(question, [], subtask)


def stated(task, answer):
  return frontier._FORMS[task.kind].read(answer)


def test_the_workers_are_the_papers_seven_in_order(answerers):
  assert list(answerers) == MODELS
  assert [spec.model for spec in frontier.frontier_pool("http://127.0.0.1:1/v1").workers] == MODELS


def test_the_published_figures_are_marked_and_all_others_are_assumptions():
  published = {(worker.model, kind): figure.value for worker in frontier.WORKERS
               for kind, figure in worker.accuracy.items() if figure.source == "published"}
  assert published == {("gpt-5", "mmlu"): 93.5, ("gpt-5", "math500"): 99.0}
  prices = [f for worker in frontier.WORKERS for f in (worker.price_in, worker.price_out)]
  assert {figure.source for figure in prices} == {"assumed"}


def test_the_pool_carries_endpoint_prices_and_the_papers_call_parameters():
  pool = frontier.frontier_pool("http://127.0.0.1:9/v1")
  gpt5, gemma = pool.workers[2], pool.workers[4]
  assert gpt5.base_url == "http://127.0.0.1:9/v1"
  assert (gpt5.price_in, gpt5.price_out) == (1.25, 10.0)
  assert gpt5.sampling == {"temperature": 1.0, "max_tokens": 4096}
  assert gemma.sampling == {"temperature": 0.2, "max_tokens": 4096}
  assert all(spec.api_key_env is None for spec in pool.workers)


@pytest.mark.parametrize("context", [message_context, inlined_context])
def test_the_question_is_found_in_both_styles_of_context(answerers, tasks, context):
  for task in tasks:
    messages = context(task.question, [("Think.", "Hm.")], "Solve it.")
    assert stated(task, answerers["gpt-5"](messages, 0)) is not None


def test_the_question_is_found_at_the_start_of_the_turn_and_behind_a_system_prompt(
    answerers, tasks):
  plain = answerers["gpt-5"]([{"role": "user", "content": tasks[0].question}], 3)
  assert plain.endswith("#### " + stated(tasks[0], plain))
  behind = [{"role": "system", "content": "Be brief."}, *ask(tasks[0].question)]
  assert answerers["gpt-5"](behind, 3) == plain


@pytest.mark.parametrize("messages", [
    [{"role": "user", "content": "Which way is north?"}],
    [{"role": "user", "content": ""}],
    [{"role": "system", "content": "A box holds 2 pens. How many pens do three boxes hold?"}],
])
def test_an_unknown_question_is_not_answered(answerers, messages):
  assert answerers["gpt-5"](messages, 0) == "I don't know."


def test_of_questions_that_start_alike_the_longest_that_fits_counts():
  questions = frontier._Questions([
      Task(text, text, "1", "gsm8k") for text in ("Add", "Add 1", "Add 1 and 2", "Add 3", "B")])
  found = {text: questions.find(text) for text in ("Add 1 and 4", "Add 1 and 2?", "Add 2", "Ad",
                                                   "x\nB\nAdd")}
  assert {text: hit and hit[0].id for text, hit in found.items()} == {
      "Add 1 and 4": "Add 1", "Add 1 and 2?": "Add 1 and 2", "Add 2": "Add", "Ad": None,
      "x\nB\nAdd": "B"}
  assert found["x\nB\nAdd"][1] == 3


def test_an_answer_depends_on_model_question_and_seed_only(path, answerers, tasks):
  again = frontier.answerers(path, BENCHMARKS, "test")
  for task in tasks[::7]:
    first = answerers["gemma-3-27b"](ask(task.question), 11)
    assert again["gemma-3-27b"](ask(task.question, "Another subtask."), 11) == first
  seeds = {answerers["gemma-3-27b"](ask(tasks[40].question), seed) for seed in range(60)}
  assert len(seeds) > 1


def test_the_luck_of_a_call_is_the_same_on_every_machine(answerers, tasks):
  letters = "".join(stated(tasks[40], answerers["gemma-3-27b"](ask(tasks[40].question), seed))
                    for seed in range(12))
  assert tasks[40].reference == "C"
  assert letters == "CCCCCAACCCCC"


@pytest.mark.parametrize("model", ["gpt-5", "gemma-3-27b"])
def test_the_share_of_right_answers_is_the_tables(answerers, tasks, model):
  worker = frontier.WORKERS[MODELS.index(model)]
  for kind in BENCHMARKS:
    sample = [(task, seed) for task in tasks if task.kind == kind for seed in range(50)]
    right = sum(stated(task, answerers[model](ask(task.question), seed)) == task.reference
                for task, seed in sample)
    # 2000 draws: the standard error is at most 1 point.
    assert 100 * right / len(sample) == pytest.approx(worker.accuracy[kind].value, abs=3)


async def test_right_answers_grade_right_and_spoiled_ones_wrong(tasks):
  async with Graders() as graders:
    for task in tasks[::3]:
      form = frontier._FORMS[task.kind]
      assert (await graders.grade(task, form.write(task.reference))).correct
      for seed in range(3):
        spoiled = form.spoil(task, random.Random(seed))
        assert not (await graders.grade(task, form.write(spoiled))).correct


@pytest.mark.parametrize("context", [message_context, inlined_context])
def test_an_earlier_answer_is_taken_over_as_often_as_stated(answerers, tasks, context):
  task = tasks[0]
  alone = [stated(task, answerers["gemma-3-27b"](ask(task.question), s)) for s in range(3000)]
  shown = context(task.question, [("Solve it.", "Hm.\n\n#### 777")], "Check it.")
  checked = [stated(task, answerers["gemma-3-27b"](shown, s)) for s in range(3000)]
  for was_right, figure in ((True, frontier.ADOPTS_IF_RIGHT), (False, frontier.ADOPTS_IF_WRONG)):
    own = [now for before, now in zip(alone, checked, strict=True)
           if (before == task.reference) is was_right]
    assert own.count("777") / len(own) == pytest.approx(figure.value, abs=0.1)
  assert all(now in (before, "777") for before, now in zip(alone, checked, strict=True))


def test_an_unmarked_earlier_answer_changes_nothing(answerers, tasks):
  shown = message_context(tasks[0].question, [("Think.", "It may be 777.")], "Solve it.")
  for seed in range(20):
    assert answerers["gpt-5"](shown, seed) == answerers["gpt-5"](ask(tasks[0].question), seed)


def test_answers_have_the_length_of_the_table(answerers, tasks):
  for worker in frontier.WORKERS:
    answer = answerers[worker.model](ask(tasks[0].question), 0)
    assert len(answer.split()) == worker.words.value + 2


def test_a_benchmark_without_accuracies_is_refused(path):
  with pytest.raises(UserError, match="no accuracies for 'aime25': choose from gsm8k"):
    frontier.answerers(path, ["aime25"], "test")


async def test_the_pool_answers_through_a_server_process(path, tasks, answerers):
  arguments = {"path": path, "benchmarks": BENCHMARKS, "split": "test"}
  with ServerProcess("conductor_jax.arena.frontier:answerers", arguments) as server:
    pool = frontier.frontier_pool(server.base_url)
    async with aiohttp.ClientSession() as session:

      async def call(spec, task):
        body = {"model": spec.model, "messages": ask(task.question), "seed": 4, **spec.sampling}
        async with session.post(f"{spec.base_url}/chat/completions", json=body) as response:
          return (await response.json())["choices"][0]["message"]["content"]

      calls = [(spec, task) for spec in pool.workers for task in tasks[::20]]
      answers = await asyncio.gather(*(call(spec, task) for spec, task in calls))
  assert answers == [answerers[spec.model](ask(task.question), 4) for spec, task in calls]


async def test_on_real_benchmarks_gpt5_scores_its_table_and_no_spoiled_answer_is_right(
    benchmarks):
  tasks = load_tasks(benchmarks, BENCHMARKS, "test")
  answer = frontier.answerers(benchmarks, BENCHMARKS, "test")["gpt-5"]
  # Every fifth task of each benchmark and at most 300, to stay within seconds.
  tasks = [task for kind in BENCHMARKS for task in [t for t in tasks if t.kind == kind][::5][:300]]
  async with Graders() as graders:
    verdicts = await asyncio.gather(*(
        graders.grade(task, answer(ask(task.question), 1)) for task in tasks))
    spoiled = await asyncio.gather(*(
        graders.grade(task, frontier._FORMS[task.kind].write(
            frontier._FORMS[task.kind].spoil(task, random.Random(i))))
        for i, task in enumerate(tasks)))
  for kind, expected in (("gsm8k", 97.0), ("mmlu", 93.5), ("math500", 99.0)):
    right = [v.correct for task, v in zip(tasks, verdicts, strict=True) if task.kind == kind]
    assert 100 * sum(right) / len(right) == pytest.approx(expected, abs=4)
  assert sum(verdict.correct for verdict in spoiled) == 0
