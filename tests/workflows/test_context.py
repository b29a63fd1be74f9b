import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_jax.workflows.context import (
    context_bytes,
    inlined_context,
    message_context,
    shorten,
)
from tests.workflows.four_workers import OPEN_PLAN, run

# What the mark of a shortened answer takes at most, in bytes: shorter answers stay as they are.
MARK = 48


async def test_messages_show_seen_steps_as_alternating_turns(workers):
  await run(workers, *OPEN_PLAN)
  assert workers.contents("w0") == [("user", "Question:\nHow much is it?\n\nSubtask:\nDo A.")]
  assert workers.contents("w2") == [
      ("user", "Question:\nHow much is it?\n\nSubtask:\nDo A."),
      ("assistant", "answer of w0"),
      ("user", "Subtask:\nDo B."),
      ("assistant", "answer of w1"),
      ("user", "Subtask:\nDo C.")]


async def test_inlined_shows_seen_steps_in_one_user_turn(workers):
  await run(workers, *OPEN_PLAN, context="inlined")
  assert workers.contents("w0") == [("user", "Question:\nHow much is it?\n\nYour subtask:\nDo A.")]
  assert workers.contents("w2") == [(
      "user",
      "Question:\nHow much is it?\n\n"
      "Subtask:\nDo A.\n\nResponse:\nanswer of w0\n\n"
      "Subtask:\nDo B.\n\nResponse:\nanswer of w1\n\n"
      "Your subtask:\nDo C.")]


@pytest.mark.parametrize("context", ["messages", "inlined"])
async def test_a_closed_access_list_shows_what_a_first_step_would_see(workers, context):
  await run(workers, (0, "Do A."), (1, "Do B.", (0,)), (2, "Do C."), context=context)
  alone = {"messages": message_context, "inlined": inlined_context}[context](
      "How much is it?", [], "Do C.")
  assert workers.contents("w2") == [(turn["role"], turn["content"]) for turn in alone]
  text = workers.contents("w2")[0][1]
  assert all(hidden not in text for hidden in ("Do A.", "Do B.", "answer of", "Response"))


@pytest.mark.parametrize("context", ["messages", "inlined"])
async def test_a_partial_access_list_shows_only_the_steps_it_names(workers, context):
  await run(workers, (0, "Do A."), (1, "Do B."), (2, "Do C.", (1,)), context=context)
  text = "\n".join(content for _, content in workers.contents("w2"))
  assert "answer of w1" in text and "Do B." in text
  assert "answer of w0" not in text and "Do A." not in text


@pytest.mark.parametrize("count", range(4))
def test_turns_alternate_and_begin_and_end_with_the_user(count):
  turns = message_context("Q", [(f"s{i}", f"a{i}") for i in range(count)], "own")
  assert [turn["role"] for turn in turns] == ["user", "assistant"] * count + ["user"]


@pytest.mark.parametrize("context", [message_context, inlined_context])
def test_an_empty_answer_is_shown_as_such(context):
  shown = "".join(turn["content"] for turn in context("Q", [("s", ""), ("t", " \n")], "own"))
  assert shown.count("(empty)") == 2


def test_the_length_of_a_conversation_is_that_of_its_text_in_utf_8():
  turns = message_context("é", [("四", "x")], "own")
  labels = len("Question:\n" "\n\n" "Subtask:\n" "Subtask:\n")
  assert context_bytes(turns) == labels + 2 + 3 + 1 + 3


def test_the_beginning_is_cut_and_the_characters_left_out_are_counted():
  answer = "a" * 500 + "b" * 500
  assert shorten([("s", answer)], 500 - MARK) == [
      ("s", "[500 characters left out]\n" + "b" * 500)]


def test_the_oldest_answers_are_shortened_first():
  seen = [("s0", "a" * 300), ("s1", "b" * 300), ("s2", "c" * 300)]
  whole = "[300 characters left out]\n"
  assert shorten(seen, 200) == [
      ("s0", "[248 characters left out]\n" + "a" * 52), *seen[1:]]
  assert shorten(seen, 300) == [
      ("s0", whole), ("s1", "[74 characters left out]\n" + "b" * 226), seen[2]]
  assert shorten(seen, 10_000) == [("s0", whole), ("s1", whole), ("s2", whole)]


@pytest.mark.parametrize("excess", [0, -5])
def test_nothing_is_left_out_if_it_fits(excess):
  seen = [("s0", "a" * 300), ("s1", "")]
  assert shorten(seen, excess) == seen


def test_an_answer_that_is_hardly_longer_than_the_mark_stays():
  assert shorten([("s", "a" * MARK)], 1000) == [("s", "a" * MARK)]
  assert shorten([("s", "a" * (MARK + 1))], 1000) == [("s", "[49 characters left out]\n")]


@pytest.mark.parametrize("character", ["é", "四", "🙂"])
def test_a_character_of_several_bytes_is_kept_or_left_out_whole(character):
  for excess in range(1, 9):
    ((_, shown),) = shorten([("s", character * 100)], excess)
    left_out, tail = parts(shown)
    assert tail == character * (100 - left_out)


def test_half_a_surrogate_pair_counts_as_one_character():
  ((_, shown),) = shorten([("s", "\ud800" * 200)], 100)
  assert shown == "[148 characters left out]\n" + "?" * 52


def parts(shown):
  """How many characters a shortened answer says are left out, and what is left."""
  mark = re.match(r"\[(\d+) characters left out\]\n", shown)
  return int(mark[1]), shown[mark.end():]


def size(text):
  return len(text.encode())


ANSWERS = st.one_of(
    st.text(max_size=200),
    st.builds(lambda text, times: text * times, st.text(max_size=9), st.integers(0, 200)))


@given(st.lists(st.tuples(st.text(max_size=9), ANSWERS), max_size=5), st.integers(-10, 4000))
def test_as_much_is_left_out_as_must_be_and_hardly_more(seen, excess):
  shortened = shorten(seen, excess)
  assert [subtask for subtask, _ in shortened] == [subtask for subtask, _ in seen]
  missing = 0
  for (_, answer), (_, shown) in zip(seen, shortened, strict=True):
    if missing >= excess or size(answer) <= MARK:
      assert shown == answer
    else:
      left_out, tail = parts(shown)
      assert 0 < left_out == len(answer) - len(tail) and answer.endswith(tail)
      assert size(shown) < size(answer)
      missing += size(answer) - size(shown)
  room = sum(max(size(answer) - MARK, 0) for _, answer in seen)
  assert missing >= min(excess, room)
  assert missing < max(excess, 0) + MARK
