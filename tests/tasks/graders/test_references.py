"""The references of real benchmarks are right by themselves, and wrong for one another."""

import asyncio
import itertools

import pytest

from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.sources import load_tasks


@pytest.fixture(scope="module")
def grades():
  """A function of (task, answer) pairs: their verdicts."""
  graders = Graders()

  async def grade(pairs):
    return await asyncio.gather(*(graders.grade(task, answer) for task, answer in pairs))

  yield grade
  graders.close()


@pytest.fixture
def count_correct(grades):
  async def count(pairs):
    return sum(verdict.correct for verdict in await grades(pairs))

  return count


@pytest.mark.parametrize("form", [
    "{}", r"\boxed{{{}}}", "So the answer is ${}$.", "<answer>{}</answer>",
    "Therefore, the answer is {}.",
    "Thus\n\n\\[\n{}\n\\]"])
async def test_all_500_references_of_math500_are_right_in_every_form(benchmarks, grades, form):
  tasks = load_tasks(benchmarks, ["math500"], "test")
  verdicts = await grades((task, form.format(task.reference)) for task in tasks)
  assert [verdict for verdict in verdicts if not verdict.correct] == []
  assert len(verdicts) == 500


async def test_all_500_solutions_of_math500_are_right(benchmarks, count_correct):
  tasks = load_tasks(benchmarks, ["math500"], "test")
  assert await count_correct((task, task.metadata["solution"]) for task in tasks) == 500


async def test_references_of_math500_are_wrong_for_other_questions(benchmarks, grades):
  tasks = load_tasks(benchmarks, ["math500"], "test")
  pairs = [(a, b) for shift in (1, 7, 31) for a, b in zip(tasks, tasks[shift:], strict=False)
           if a.reference != b.reference]
  verdicts = await grades((a, rf"\boxed{{{b.reference}}}") for a, b in pairs)
  same = {(a.reference, b.reference) for (a, b), verdict in zip(pairs, verdicts, strict=True)
          if verdict.correct}
  # One asks for x where another answers "x=5".
  assert same == {("5", "x=5")}
  assert len(pairs) > 1400


@pytest.mark.parametrize("change", [
    "{} + 1", "-({})", r"{}\text{{ million}}", "{}, 4711", "{}x", "7{}", r"\text{{not }}{}",
    r"{} \text{{ or }} 4711", r"{}\sqrt(7)", r"{}\mathrm{{e}}", "4711 = {}", r"\ge {}"])
async def test_references_of_math500_are_wrong_once_changed(benchmarks, grades, change):
  # 0x is 0.
  tasks = [task for task in load_tasks(benchmarks, ["math500"], "test")
           if task.reference != "0" and not task.reference.endswith("= 0")]
  verdicts = await grades((task, rf"\boxed{{{change.format(task.reference)}}}") for task in tasks)
  assert [verdict for verdict in verdicts if verdict.correct] == []
  assert len(verdicts) > 450


async def test_all_1319_references_and_solutions_of_gsm8k_are_right(benchmarks, count_correct):
  tasks = load_tasks(benchmarks, ["gsm8k"], "test")
  assert await count_correct((task, task.metadata["solution"]) for task in tasks) == 1319
  with_commas = [(task, f"They pay ${float(task.reference):,.2f}.") for task in tasks]
  assert await count_correct(with_commas) == 1319
  boxed = [(task, rf"\boxed{{{task.reference}}}") for task in tasks]
  assert await count_correct(boxed) == 1319
  assert await count_correct((task, rf"\boxed{{{task.reference}1}}") for task in tasks) == 0


@pytest.mark.parametrize("name, split, count", [
    ("svamp", "test", 1000), ("multiarith", "test", 600), ("aime25", "test", 30)])
async def test_all_numbers_are_right_and_their_neighbours_wrong(
    benchmarks, count_correct, name, split, count):
  tasks = load_tasks(benchmarks, [name], split)
  assert len(tasks) == count
  for form in ("{}", "The answer is {}.", r"\boxed{{{}}}", "<answer>{}</answer>"):
    assert await count_correct((task, form.format(task.reference)) for task in tasks) == count
  assert await count_correct((task, f"The answer is {task.reference}7.") for task in tasks) == 0


@pytest.mark.parametrize("name, split, count", [
    ("mmlu", "test", 14042), ("aqua", "test", 254), ("aqua", "validation", 254)])
async def test_all_letters_are_right_and_their_neighbours_wrong(
    benchmarks, count_correct, name, split, count):
  tasks = load_tasks(benchmarks, [name], split)
  assert len(tasks) == count
  forms = itertools.cycle(("{}", "The answer is {}.", r"\boxed{{\text{{{}}}}}", "**Answer: {}**"))
  pairs = list(zip(tasks, forms, strict=False))
  assert await count_correct((task, form.format(task.reference)) for task, form in pairs) == count
  assert await count_correct(
      (task, form.format("BCDEA"["ABCDE".index(task.reference)])) for task, form in pairs) == 0
