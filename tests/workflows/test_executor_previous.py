"""The answer of the round before: who sees it, where it stands, and what is shared beside it."""

import asyncio

import pytest

from conductor_jax.workflows.executor import Executor, RunGroup
from tests.workers.endpoint import completion, reply
from tests.workflows.four_workers import QUESTION, plan, run

PREVIOUS = ("Add up.", "It was 12.")
# The second and the fourth step see it, the first and the third do not.
STEPS = ((0, "Do A."), (1, "Do B.", (0,), True), (2, "Do C.", (0, 1)), (3, "Do D.", (), True))
FIRST = f"Question:\n{QUESTION}\n\n"


async def test_it_reaches_only_the_steps_that_see_it_before_all_others_as_messages(workers):
  await run(workers, *STEPS, previous=PREVIOUS)
  assert workers.contents("w0") == [("user", f"{FIRST}Subtask:\nDo A.")]
  assert workers.contents("w1") == [
      ("user", f"{FIRST}Subtask:\nAdd up."), ("assistant", "It was 12."),
      ("user", "Subtask:\nDo A."), ("assistant", "answer of w0"), ("user", "Subtask:\nDo B.")]
  assert workers.contents("w2") == [
      ("user", f"{FIRST}Subtask:\nDo A."), ("assistant", "answer of w0"),
      ("user", "Subtask:\nDo B."), ("assistant", "answer of w1"), ("user", "Subtask:\nDo C.")]
  assert workers.contents("w3") == [
      ("user", f"{FIRST}Subtask:\nAdd up."), ("assistant", "It was 12."),
      ("user", "Subtask:\nDo D.")]


async def test_it_reaches_only_the_steps_that_see_it_before_all_others_inlined(workers):
  await run(workers, *STEPS, previous=PREVIOUS, context="inlined")
  assert workers.contents("w0") == [("user", f"{FIRST}Your subtask:\nDo A.")]
  assert workers.contents("w1") == [(
      "user", f"{FIRST}Subtask:\nAdd up.\n\nResponse:\nIt was 12.\n\n"
      "Subtask:\nDo A.\n\nResponse:\nanswer of w0\n\nYour subtask:\nDo B.")]
  assert workers.contents("w2") == [(
      "user", f"{FIRST}Subtask:\nDo A.\n\nResponse:\nanswer of w0\n\n"
      "Subtask:\nDo B.\n\nResponse:\nanswer of w1\n\nYour subtask:\nDo C.")]
  assert workers.contents("w3") == [(
      "user", f"{FIRST}Subtask:\nAdd up.\n\nResponse:\nIt was 12.\n\nYour subtask:\nDo D.")]


async def test_without_a_round_before_a_step_that_would_see_it_sees_nothing_more(workers):
  await run(workers, (0, "Do A.", (), True))
  assert workers.contents("w0") == [("user", f"{FIRST}Subtask:\nDo A.")]


@pytest.mark.parametrize("answer", ["", " \n"])
async def test_a_round_before_that_brought_no_answer_is_shown_as_empty(workers, answer):
  await run(workers, (0, "Do A.", (), True), previous=("Add up.", answer))
  assert workers.contents("w0")[1] == ("assistant", "(empty)")


async def test_a_step_that_sees_it_waits_for_nobody(workers):
  together = asyncio.Barrier(2)

  async def meet(request):
    await together.wait()  # would hang if the two did not overlap
    return await reply(completion("met"))(request)

  workers.behaviours = {"w0": meet, "w1": meet}
  await run(workers, (0, "Do A."), (1, "Do B.", (), True), previous=PREVIOUS)
  assert workers.most_in_flight == 2


async def test_in_a_small_window_it_is_the_first_to_lose_its_beginning(workers):
  window = dict(worker={"context_length": 200, "sampling": {"max_tokens": 50}})
  workers.behaviours["w0"] = reply(completion("b" * 60))
  async with workers.open(**window) as client:
    await run(workers, (0, "Do A."), (1, "Do B.", (0,), True), client=client,
              previous=("Add up.", "a" * 300))
  _, (_, previous), _, (_, seen), _ = workers.contents("w1")
  mark, rest = previous.split("\n")
  assert mark == f"[{300 - len(rest)} characters left out]" and rest == "a" * len(rest)
  assert 0 < len(rest) < 200 and seen == "b" * 60


async def test_a_first_step_that_sees_it_is_not_shared_between_runs_of_a_group(workers):
  executor = Executor(workers.client, context="messages", share_identical_calls=True)
  group = RunGroup()

  async def runs(*steps):
    return await asyncio.gather(*(
        executor.run(plan(*steps), QUESTION, seed=seed, group=group,
                     previous=("Add up.", f"It was {seed}.")) for seed in range(3)))

  transcripts = await runs((0, "Do A.", (), True))
  assert [each.calls[0].source for each in transcripts] == ["endpoint"] * 3
  shown = {turns[1] for turns in workers.conversations("w0")}
  assert shown == {("assistant", f"It was {seed}.") for seed in range(3)}
  # One that does not see it is, and does not take the answer of one that does.
  transcripts = await runs((0, "Do A."))
  assert [each.calls[0].source for each in transcripts] == ["endpoint", "group", "group"]
  assert len(workers.conversations("w0")) == 4
