import asyncio

import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks.graders import Graders
from conductor_jax.tasks.task import Grade, Task
from conductor_jax.workers.call import CallRecord, Usage
from conductor_jax.workflows.grading import run_and_grade
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

  async def run(self, workflow: Workflow, question: str, *, seed: int) -> Transcript:
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
        executor, graders, [(t, PLAN, 0) for t in tasks])]


async def test_answers_are_graded_in_order():
  executor = ScriptedExecutor({"a": run_of("answered", "4"), "b": run_of("truncated", "5")})
  first, second = await grades(executor, task("b"), task("a"))
  assert (first.correct, second.correct) == (False, True)


async def test_no_answer_after_a_refusal_is_graded_as_wrong():
  (grade,) = await grades(ScriptedExecutor({"a": run_of("refused", None)}), task("a"))
  assert grade == Grade(False, None, "No answer: the last step was refused.")


async def test_an_unavailable_endpoint_leaves_no_grade():
  assert await grades(ScriptedExecutor({"a": run_of("unavailable", None)}), task("a")) == [None]


async def test_a_grader_that_fails_leaves_no_grade_and_is_logged(caplog):
  executor = ScriptedExecutor({"a": run_of("answered", "4")})
  assert await grades(executor, task("a", reference="")) == [None]
  assert "no verdict on task a: the reference is empty" in caplog.text


async def test_another_fault_propagates_and_cancels_the_runs_under_way():
  executor = ScriptedExecutor({"a": run_of("answered", "4")})
  with pytest.raises(UserError, match="no grader for the kind 'riddle'"):
    await grades(executor, task("hang"), task("a", kind="riddle"), task("hang"))
  assert executor.cancelled == 2
