import asyncio
from collections import defaultdict

import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workflows.executor import RunGroup
from conductor_jax.workflows.grading import PlannedRun, run_and_grade
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import Step, Workflow

PLAN = Workflow((Step(0, "Solve it."),))


def run_of(outcome: str, answer: str | None) -> Transcript:
  return Transcript(
      PLAN, [CallRecord("a", {}, answer or "", Usage(), 0.0, 1, outcome)], answer, Usage())


class ScriptedExecutor:
  """Answers each question with its transcript; the question "hang" never comes back."""

  def __init__(self, transcripts: dict[str, Transcript]):
    self.transcripts = transcripts
    self.cancelled = 0
    self.begun: list[tuple[str, int]] = []  # question and seed, in the order they came
    self.groups: dict[str, set[RunGroup]] = defaultdict(set)
    self.previous: dict[int, tuple[str, str] | None] = {}  # by seed

  async def run(
      self, workflow: Workflow, question: str, *, seed: int, group: RunGroup | None = None,
      previous: tuple[str, str] | None = None, original: Transcript | None = None
  ) -> Transcript:
    self.begun.append((question, seed))
    self.previous[seed] = previous
    self.groups[question].add(group)
    if question == "hang":
      try:
        await asyncio.Event().wait()
      except asyncio.CancelledError:
        self.cancelled += 1
        raise
    return self.transcripts[question]


def task(question: str, reference: str = "4", kind: str = "arithmetic") -> Task:
  return Task(question, question, reference, kind)


async def grades(executor: ScriptedExecutor, *tasks: Task) -> list[Grade | None]:
  async with Graders() as graders:
    return [grade for _, grade in await run_and_grade(
        executor, graders, [PlannedRun(t, PLAN, 0) for t in tasks])]


async def test_answers_are_graded_in_order():
  executor = ScriptedExecutor({"a": run_of("answered", "4"), "b": run_of("truncated", "5")})
  first, second = await grades(executor, task("b"), task("a"))
  assert (first.correct, second.correct) == (False, True)


async def test_the_deepest_plans_begin_first_and_results_keep_their_order():
  chain = [Workflow(tuple(Step(0, "Go on.", tuple(range(i))) for i in range(depth)))
           for depth in (1, 2, 3)]
  wide = Workflow((*(Step(0, "Solve it.") for _ in range(4)), Step(0, "Join.", (0, 1, 2, 3))))
  executor = ScriptedExecutor({name: run_of("answered", str(i)) for i, name in enumerate("abcd")})
  plans = (chain[0], chain[2], wide, chain[1])
  async with Graders() as graders:
    results = await run_and_grade(
        executor, graders, [PlannedRun(task(name), plan, seed) for seed, (name, plan) in
                            enumerate(zip("abcd", plans, strict=True))])
  assert [plan.depth for plan in plans] == [1, 3, 2, 2]
  assert executor.begun == [("b", 1), ("c", 2), ("d", 3), ("a", 0)]
  assert [transcript.answer for transcript, _ in results] == ["0", "1", "2", "3"]


async def test_runs_on_the_same_question_are_one_group():
  executor = ScriptedExecutor({name: run_of("answered", "4") for name in "ab"})
  await grades(executor, task("a"), task("b"), task("a"), task("a"))
  assert [len(executor.groups[name]) for name in "ab"] == [1, 1]
  assert not executor.groups["a"] & executor.groups["b"]
  assert all(isinstance(group, RunGroup) for name in "ab" for group in executor.groups[name])


async def test_a_run_is_given_the_last_step_of_its_own_round_before():
  executor = ScriptedExecutor({"a": run_of("answered", "4")})
  before = ("Solve it.", "3")
  async with Graders() as graders:
    await run_and_grade(executor, graders, [
        PlannedRun(task("a"), PLAN, 7, before), PlannedRun(task("a"), PLAN, 8)])
  assert executor.previous == {7: before, 8: None}


async def test_no_answer_after_a_refusal_is_graded_as_wrong():
  (grade,) = await grades(ScriptedExecutor({"a": run_of("refused", None)}), task("a"))
  assert grade == Grade(False, None, "No answer: the last step was refused.")


async def test_an_unavailable_endpoint_leaves_no_grade():
  assert await grades(ScriptedExecutor({"a": run_of("unavailable", None)}), task("a")) == [None]


async def test_a_budget_without_room_leaves_no_grade():
  assert await grades(ScriptedExecutor({"a": run_of("over_budget", None)}), task("a")) == [None]


async def test_a_grader_that_fails_leaves_no_grade_and_is_logged(caplog):
  executor = ScriptedExecutor({"a": run_of("answered", "4")})
  assert await grades(executor, task("a", reference="")) == [None]
  assert "no verdict on task a: the reference is empty" in caplog.text


async def test_another_fault_propagates_and_cancels_the_runs_under_way():
  executor = ScriptedExecutor({"a": run_of("answered", "4")})
  with pytest.raises(UserError, match="no grader for the kind 'riddle'"):
    await grades(executor, task("hang"), task("a", kind="riddle"), task("hang"))
  assert executor.cancelled == 2
