import pytest

from conductor_jax.evaluation.item import Item, Key, record
from conductor_jax.evaluation.metrics import latencies, question_scores, summarise
from tests.evaluation.attempts import RIGHT, UNREAD, WRONG, attempt, in_rounds, kept


def item(task, grade, repeat=0, kind="a", workers=(0,), **fields):
  return item_of(attempt(kind, workers, grade, **fields), task, repeat)


def item_of(each, task, repeat=0):
  kind = each.task.kind
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


def in_one_and_more_rounds():
  """Six items of five questions in up to three rounds; one is rejected in its second round."""
  right, wrong = (attempt("a", (0, 1), grade, tokens=10, cost=0.25) for grade in (RIGHT, WRONG))
  unparsed = attempt("a", (), None)
  return [
      item_of(in_rounds(wrong, right, kept(right)), "mended"),
      item_of(in_rounds(wrong, wrong, wrong), "mended", 1),
      item_of(in_rounds(right, kept(right)), "kept"),
      item_of(in_rounds(right, wrong), "spoilt"),
      item_of(unparsed, "unparsed"),
      item_of(in_rounds(right, attempt("a", (2,), None)), "rejected")]


def test_accuracy_by_round_is_that_of_the_answers_after_so_many():
  numbers = summarise(in_one_and_more_rounds(), workers=3)
  # Of four questions, one with two answers: 0 + 1 + 1 + 0, 1/2 + 1 + 0 + 0, and so it stays.
  assert numbers["accuracy_by_round"] == {"1": 2 / 4, "2": 1.5 / 4, "3": 1.5 / 4}
  assert numbers["accuracy"] == 1.5 / 4


def test_another_plan_is_asked_for_after_a_share_of_the_first_answers_of_each_verdict():
  numbers = summarise(in_one_and_more_rounds(), workers=3)
  # Two first answers are right, of which one was kept; three are wrong, one for it did not parse.
  assert numbers["another_plan"] == {"right": 1 / 2, "wrong": 2 / 3}


def test_plans_of_all_rounds_count_and_a_task_costs_what_all_its_rounds_do():
  numbers = summarise(in_one_and_more_rounds(), workers=3)
  # 3 + 3 + 2 + 2 + 1 + 2 plans, of which one did not parse and two are empty.
  assert numbers["parse_rate"] == 12 / 13
  # Nine with two steps and a rejected one with one.
  assert numbers["steps_per_plan"] == 19 / 10
  assert numbers["worker_shares"] == [9 / 19, 9 / 19, 1 / 19]
  # Five items with a verdict, in eight plans that were run: 2 + 3 + 1 + 2.
  assert numbers["tokens_per_task"] == 80 / 5 and numbers["cost_per_task"] == 2.0 / 5
  assert numbers["correct_given_parsed"] == 2 / 4


def test_where_no_item_has_a_second_round_nothing_is_said_of_rounds():
  numbers = summarise([item("one", RIGHT), item("two", None)], workers=1)
  assert numbers["accuracy_by_round"] == numbers["another_plan"] == {}
