"""Conversations that are longer than a worker's window."""

import re

import pytest

from conductor_jax.workers.journal import Journal
from tests.workers.endpoint import completion, reply
from tests.workflows.four_workers import QUESTION, run

# 1000 tokens, 200 of them for the answer: 1600 bytes are taken to fit.
WINDOW = {"context_length": 1000, "sampling": {"max_tokens": 200}}
ROOM = 1600
PLAN = ((0, "Do A."), (1, "Do B."), (2, "Do C.", (0, 1)))


def length(turns):
  return sum(len(content.encode()) for _, content in turns)


def window(size, status=400, message="This model's maximum context length is 512 tokens."):
  """A worker that refuses conversations of more bytes."""

  async def behave(request):
    messages = (await request.json())["messages"]
    if length([(turn["role"], turn["content"]) for turn in messages]) <= size:
      return await reply(completion("It fits."))(request)
    return await reply({"error": {"message": message}}, status)(request)

  return behave


def check_cut(shown, answer):
  """A shortened answer is marked with what is left out of the whole, and is its end."""
  mark = re.match(r"\[(\d+) characters left out\]\n", shown)
  tail = shown[mark.end():]
  assert answer.endswith(tail)
  assert int(mark[1]) + len(tail) == len(answer)


async def test_what_does_not_fit_into_a_workers_window_is_shortened_before_it_is_sent(workers):
  oldest, newest = "".join(map(str, range(1000))), "y" * 300
  workers.behaviours = {"w0": reply(completion(oldest)), "w1": reply(completion(newest)),
                        "w2": window(ROOM)}
  async with workers.open(worker=WINDOW) as client:
    transcript = await run(workers, *PLAN, client=client)
  turns = workers.contents("w2")
  assert ROOM - 48 < length(turns) <= ROOM
  check_cut(turns[1][1], oldest)
  assert turns[0] == ("user", f"Question:\n{QUESTION}\n\nSubtask:\nDo A.")
  assert turns[2:] == [("user", "Subtask:\nDo B."), ("assistant", newest),
                       ("user", "Subtask:\nDo C.")]
  assert (transcript.answer, transcript.calls[2].attempts) == ("It fits.", 1)
  # The record of what was answered is whole.
  assert transcript.calls[0].response == oldest


async def test_the_inlined_style_is_shortened_likewise(workers):
  oldest = "四" * 1000
  workers.behaviours = {"w0": reply(completion(oldest)), "w2": window(ROOM)}
  async with workers.open(worker=WINDOW) as client:
    await run(workers, *PLAN, client=client, context="inlined")
  ((_, text),) = workers.contents("w2")
  assert ROOM - 50 < length([("user", text)]) <= ROOM
  _, before, after = text.partition("Subtask:\nDo A.\n\nResponse:\n")
  shown, _, rest = after.partition("\n\nSubtask:\n")
  check_cut(shown, oldest)
  assert rest == "Do B.\n\nResponse:\nanswer of w1\n\nYour subtask:\nDo C."


@pytest.mark.parametrize("worker", [{}, WINDOW], ids=["no window known", "fits"])
async def test_what_fits_or_may_fit_is_sent_whole(workers, worker):
  oldest = "x" * (1300 if worker else 9000)
  workers.behaviours["w0"] = reply(completion(oldest))
  async with workers.open(worker=worker) as client:
    await run(workers, *PLAN, client=client)
  assert workers.contents("w2")[1] == ("assistant", oldest)


@pytest.mark.parametrize(("size", "halvings"), [(5000, 0), (3000, 1), (1300, 2), (600, 3)])
async def test_a_conversation_that_is_refused_as_too_long_is_halved_until_it_fits(
    workers, size, halvings):
  oldest = "".join(map(str, range(1000, 2000)))
  workers.behaviours = {"w0": reply(completion(oldest)), "w2": window(size)}
  transcript = await run(workers, *PLAN)
  sent = workers.conversations("w2")
  assert len(sent) == 1 + halvings
  for longer, shorter in zip(sent, sent[1:], strict=False):
    assert length(longer) / 2 - 48 < length(shorter) <= length(longer) / 2
  for turns in sent[1:]:
    check_cut(turns[1][1], oldest)
    assert turns[2:] == sent[0][2:]
  call = transcript.calls[2]
  assert (call.outcome, call.overflow, call.response) == ("answered", False, "It fits.")
  assert (call.attempts, call.possibly_billed) == (1 + halvings, 0)
  assert call.request["messages"] == workers.bodies[-1]["messages"]
  # Refusals are not billed.
  assert call.usage.cost == pytest.approx(0.007)
  assert (call.usage.possible_cost, transcript.usage.cost) == (0, pytest.approx(0.021))


async def test_after_three_halvings_it_is_refused(workers):
  workers.behaviours = {"w0": reply(completion("x" * 9000)), "w2": window(500)}
  transcript = await run(workers, *PLAN, (3, "Do D.", (2,)))
  assert len(workers.conversations("w2")) == 4
  call = transcript.calls[2]
  assert (call.outcome, call.overflow, call.attempts) == ("refused", True, 4)
  assert "maximum context length" in call.error
  assert transcript.calls[3].outcome == "skipped"
  assert not transcript.unavailable


@pytest.mark.parametrize("steps", [((2, "Do it."),), ((0, "Do A."), (2, "Do it.", (0,)))])
async def test_a_question_that_is_too_long_itself_is_refused_at_once(workers, steps):
  workers.behaviours["w2"] = window(0)
  transcript = await run(workers, *steps)
  assert len(workers.conversations("w2")) == 1
  assert (transcript.calls[-1].outcome, transcript.calls[-1].attempts) == ("refused", 1)


async def test_a_refusal_for_another_reason_is_not_asked_again(workers):
  workers.behaviours = {"w0": reply(completion("x" * 9000)),
                        "w2": window(500, message="The picture is too large.")}
  call = (await run(workers, *PLAN)).calls[2]
  assert (call.outcome, call.overflow, call.attempts) == ("refused", False, 1)
  assert len(workers.conversations("w2")) == 1


async def test_attempts_of_halved_conversations_add_up_with_those_that_failed(workers):
  script = iter([reply({}, 500), window(0), reply({}, 500), window(9000)])

  async def follow(request):
    return await next(script)(request)

  workers.behaviours = {"w0": reply(completion("x" * 9000)), "w2": follow}
  call = (await run(workers, *PLAN)).calls[2]
  assert (call.outcome, call.attempts, call.possibly_billed) == ("answered", 4, 2)


async def test_the_replay_of_a_halved_conversation_is_halved_likewise(workers, tmp_path):
  path = tmp_path / "journal.sqlite"
  workers.behaviours = {"w0": reply(completion("x" * 9000)), "w2": window(3000)}
  answers = []
  for mode in ("record", "record", "replay"):
    async with Journal(path, mode) as journal, workers.open(journal=journal) as client:
      answers.append((await run(workers, *PLAN, client=client)).answer)
  assert answers == ["It fits."] * 3
  assert workers.hits == 5
