import pytest

from conductor_jax.evaluation.item import Item, Key, record
from conductor_jax.evaluation.metrics import latencies, question_scores, summarise
from tests.evaluation.attempts import RIGHT, UNREAD, WRONG, attempt


def item(task, grade, repeat=0, kind="a", workers=(0,), **fields):
  each = attempt(kind, workers, grade, **fields)
  read = Item.read(record(each, strategy="s", variant="", repeat=repeat, seed=0, seconds=1.0))
  return Item(**{**vars(read), "key": Key("s", kind, task, repeat)})


def test_each_question_counts_once_however_often_it_was_answered():
  items = [item("one", grade, repeat) for repeat, grade in enumerate([RIGHT, RIGHT, WRONG, WRONG])]
  items += [item("two", RIGHT)]
  assert question_scores(items) == {("a", "one"): 0.5, ("a", "two"): 1.0}
  numbers = summarise(items, workers=1)
  assert (numbers["accuracy"], numbers["tasks"], numbers["items"]) == (0.75, 2, 5)


def test_questions_of_two_benchmarks_with_one_id_are_two():
  assert len(question_scores([item("one", RIGHT), item("one", WRONG, kind="b")])) == 2


def test_a_rejected_answer_leaves_its_question_the_others():
  items = [item("one", RIGHT), item("one", None, 1), item("two", None), item("three", WRONG)]
  assert question_scores(items) == {("a", "one"): 1.0, ("a", "three"): 0.0}
  numbers = summarise(items, workers=1)
  assert (numbers["accuracy"], numbers["rejected"]) == (0.5, 2)


def test_pass_at_k_is_over_the_questions_with_as_many_verdicts():
  items = [item("one", grade, r) for r, grade in enumerate([RIGHT, WRONG, WRONG, WRONG])]
  items += [item("two", grade, r) for r, grade in enumerate([RIGHT, RIGHT, WRONG, None])]
  # One: 1 of 4 right; two: 2 of 3.
  assert summarise(items, workers=1)["pass_at_k"] == pytest.approx({
      "1": (1 / 4 + 2 / 3) / 2, "2": ((1 - 3 / 6) + 1) / 2, "4": 1.0})


def test_k_goes_up_to_the_number_of_answers_by_doubling():
  items = [item("one", RIGHT, repeat) for repeat in range(6)]
  assert list(summarise(items, workers=1)["pass_at_k"]) == ["1", "2", "4", "6"]
  assert summarise(items[:1], workers=1)["pass_at_k"] == {}


def test_answers_that_hold_no_final_answer_are_counted_among_those_judged():
  items = [item("one", UNREAD), item("two", WRONG), item("three", RIGHT), item("four", RIGHT),
           item("five", None), item("six", None, workers=())]
  assert summarise(items, workers=1)["unparsed_answers"] == 1 / 4


def test_latency_is_over_what_was_asked_and_has_a_verdict():
  slow = [item(f"t{i}", RIGHT) for i in range(20)]
  slow = [Item(**{**vars(each), "latency": float(i)}) for i, each in enumerate(slow)]
  others = [item("rejected", None), item("unparsed", None, workers=())]
  found = latencies([*slow, *others])
  assert found == {"latency_median": 9.5, "latency_p95": pytest.approx(18.05)}
  assert latencies(others) == {"latency_median": None, "latency_p95": None}
