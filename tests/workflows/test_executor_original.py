"""Runs that differ from another one in a step: what is unchanged is not asked again."""

import pytest

from conductor_jax.workers.call import Usage
from conductor_jax.workflows.executor import Executor
from tests.workers.endpoint import completion, reply
from tests.workflows.four_workers import QUESTION, plan, run

BASE = ((0, "Do A."), (1, "Do B."), (2, "Do C.", (0, 1)), (3, "Do D.", (2,)))


async def again(workers, original, *steps, seed=0):
  """The transcript of another plan, and which models were asked for it."""
  before = workers.hits
  transcript = await Executor(workers.client, context="messages").run(
      plan(*steps), QUESTION, seed=seed, original=original)
  return transcript, sorted(body["model"] for body in workers.bodies[before:])


@pytest.mark.parametrize(("changed", "step", "asked"), [
    # The answers of these workers do not depend on what they see: what follows is unchanged too.
    (0, (1, "Do A."), ["w1", "w2"]),
    (0, (0, "Do another A."), ["w0", "w2"]),
    (2, (2, "Do C.", (0,)), ["w2"]),
    (3, (3, "Do D."), ["w3"]),
    (3, (0, "Do D.", (2,)), ["w0"]),
])
async def test_a_changed_step_is_asked_again_and_who_sees_another_answer_or_subtask(
    workers, changed, step, asked):
  original = await run(workers, *BASE)
  steps = [*BASE[:changed], step, *BASE[changed + 1:]]
  transcript, models = await again(workers, original, *steps)
  assert models == asked
  for index, call in enumerate(transcript.calls):
    if call.source == "original":
      assert call.attempts == 0 and call.response == original.calls[index].response
      assert call.usage == original.calls[index].usage and steps[index] == BASE[index]
  assert sum(call.source == "original" for call in transcript.calls) == 4 - len(asked)


async def test_the_same_plan_is_not_asked_at_all_under_any_seed(workers):
  original = await run(workers, *BASE)
  transcript, models = await again(workers, original, *BASE, seed=9)
  assert models == [] and transcript.answer == original.answer
  assert transcript.usage == original.usage


async def test_a_plan_has_the_usage_of_all_its_calls(workers):
  original = await run(workers, *BASE)
  transcript, models = await again(workers, original, *BASE[:3], (3, "Do E.", (2,)))
  assert models == ["w3"]
  assert transcript.usage == sum((call.usage for call in transcript.calls), Usage())
  assert transcript.usage.tokens == original.usage.tokens == 4 * 1500


async def test_another_answer_spreads_to_who_sees_it_and_no_further(workers):
  original = await run(workers, *BASE)
  workers.behaviours["w1"] = reply(completion("something else"))
  transcript, models = await again(
      workers, original, (0, "Do A."), (1, "Do B now."), (2, "Do C.", (0, 1)), (3, "Do D.", (2,)))
  # Worker 2 answers as before, so its answer is no news to the last step.
  assert models == ["w1", "w2"]
  assert [call.source for call in transcript.calls] == [
      "original", "endpoint", "endpoint", "original"]


async def test_what_was_skipped_is_skipped_again_unless_what_it_saw_has_an_answer(workers):
  workers.behaviours["w0"] = reply({"error": {"message": "no"}}, 400)
  steps = ((0, "Do A."), (1, "Do B.", (0,)))
  original = await run(workers, *steps)
  assert [call.outcome for call in original.calls] == ["refused", "skipped"]
  transcript, models = await again(workers, original, *steps)
  assert models == [] and transcript.answer is None
  transcript, models = await again(workers, original, (2, "Do A."), steps[1])
  assert models == ["w1", "w2"] and transcript.answer == "answer of w1"
