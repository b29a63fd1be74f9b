import json

import pytest

from conductor_jax.evaluation.item import Item, Key, question_hash, record
from conductor_jax.strategies.strategy import Attempt
from conductor_jax.tasks.task import Grade, GradedTest, Task
from conductor_jax.workers.call import Usage
from conductor_jax.workflows.transcript import Transcript
from conductor_jax.workflows.workflow import ParseFailure, Step, Workflow
from tests.evaluation.attempts import RIGHT, UNREAD, WRONG, attempt, call, in_rounds, kept

TASK = Task("gsm8k/1", "How many?", "a secret reference", "gsm8k")
PLAN = Workflow((Step(1, "Try."), Step(0, "Check.", (0,))))
CALLS = (call(1, usage=Usage(100, 20, 0.5), latency=2.0),
         call(0, usage=Usage(50, 5, 0.25), latency=3.0))


def written(each: Attempt, **changes) -> dict:
  made = record(each, **{"strategy": "s", "variant": "v", "repeat": 2, "seed": 9, "seconds": 7.5,
                         **changes})
  assert json.dumps(made, allow_nan=False)
  return made


def test_a_record_tells_who_answered_what_how_and_at_what_price():
  transcript = Transcript(PLAN, CALLS, "It is 4.", CALLS[0].usage + CALLS[1].usage)
  grade = Grade(True, "4", "The same number.", (GradedTest(True, "passed", 0.1, 9),))
  made = written(Attempt(TASK, PLAN, transcript, grade, "model_id = [1, 0]", (0, 1, 4)))
  assert made == {
      "strategy": "s", "variant": "v", "benchmark": "gsm8k", "task": "gsm8k/1",
      "question": question_hash(TASK), "repeat": 2, "seed": 9, "offered": [0, 1, 4],
      "rejected": False,
      "grade": {
          "correct": True, "extracted": "4", "reason": "The same number.",
          "tests": [{"passed": True, "reason": "passed", "cpu_seconds": 0.1, "peak_bytes": 9}]},
      "answer": "It is 4.",
      "plan": [{"worker": 1, "subtask": "Try.", "sees": (), "sees_previous": False},
               {"worker": 0, "subtask": "Check.", "sees": (0,), "sees_previous": False}],
      "parse_failure": None, "completion": "model_id = [1, 0]",
      "calls": [
          {"worker": f"worker-{worker}", "outcome": "answered", "attempts": 1, "latency": latency,
           "source": "endpoint", "fallback": None, "possibly_billed": 0, "error": None,
           "prompt_tokens": read, "completion_tokens": wrote, "cost": cost, "cached_tokens": 0,
           "reasoning_tokens": 0, "possible_cost": 0.0, "estimated": False}
          for worker, latency, read, wrote, cost in (
              (1, 2.0, 100, 20, 0.5), (0, 3.0, 50, 5, 0.25))],
      "earlier": [], "seconds": 7.5}
  assert "secret" not in json.dumps(made)


def test_an_item_is_read_from_its_record():
  transcript = Transcript(PLAN, CALLS, "It is 4.", CALLS[0].usage + CALLS[1].usage)
  made = written(Attempt(TASK, PLAN, transcript, Grade(False, "4", "")))
  assert Item.read(json.loads(json.dumps(made))) == Item(
      key=Key("s", "gsm8k", "gsm8k/1", 2), variant="v", question=question_hash(TASK),
      plans=(PLAN,), rights=(False,), right=False, fault=None, extracted=True, tokens=175,
      cost=0.75, latency=5.0)


def rounds_of(*rounds: Attempt) -> tuple[dict, Item]:
  made = written(in_rounds(*rounds))
  return made, Item.read(json.loads(json.dumps(made)))


def test_a_record_holds_every_round_and_tokens_cost_and_latency_are_sums_over_them():
  first = Attempt(TASK, PLAN, Transcript(PLAN, CALLS, "It is 5.", Usage()), WRONG, "first", (0, 1))
  again = Workflow((Step(0, "Try anew."), Step(1, "Mend it.", (), True)))
  calls = (call(0, usage=Usage(10, 1, 0.125), latency=1.0),
           call(1, usage=Usage(20, 2, 0.5), latency=1.5))
  second = Attempt(TASK, again, Transcript(again, calls, "It is 4.", Usage()), RIGHT, "second",
                   (0, 1))
  made, item = rounds_of(first, second, kept(second))
  assert made["offered"] == [0, 1] and made["plan"] == [] and made["calls"] == []
  assert (made["grade"]["correct"], made["answer"]) == (True, "It is 4.")
  assert [(each["completion"], each["answer"], each["grade"]["correct"], len(each["calls"]))
          for each in made["earlier"]] == [
      ("first", "It is 5.", False, 2), ("second", "It is 4.", True, 2)]
  assert [step["sees_previous"] for step in made["earlier"][1]["plan"]] == [False, True]
  assert item.plans == (PLAN, again, Workflow(())) and item.workflows == [PLAN, again]
  assert (item.rights, item.right) == ((False, True, True), True)
  # Read and written, 175 + 33; 0.75 + 0.625 dollars; two after each other, then two at once.
  assert (item.tokens, item.cost, item.latency) == (208, 1.375, 6.5)


def test_a_later_plan_that_does_not_parse_leaves_the_verdict_on_the_answer_that_there_is():
  first = attempt("a", (0,), RIGHT, tokens=30, cost=0.5)
  unparsed = Attempt(first.task, ParseFailure("no lists", 3), kept(first).transcript, RIGHT, "Hm.")
  made, item = rounds_of(first, unparsed)
  assert (made["rejected"], made["plan"], made["answer"]) == (False, None, "4")
  assert made["parse_failure"] == {"reason": "no lists", "position": 3}
  assert item.plans == (first.plan, None) and item.workflows == [first.plan]
  assert (item.rights, item.tokens, item.cost, item.latency) == ((True, True), 30, 0.5, 1.0)


def test_a_later_round_without_a_verdict_leaves_the_whole_item_without_one():
  first, plan = attempt("a", (0,), RIGHT, tokens=30), Workflow((Step(2, "Try."),))
  down = Attempt(first.task, plan, Transcript(
      plan, (call(2, "unavailable", error="HTTP 503"),), None, Usage()), None)
  _, item = rounds_of(first, down)
  assert (item.rights, item.right, item.fault) == ((True, None), None, "worker-2: HTTP 503")


def test_a_plan_that_did_not_parse_is_wrong_and_says_why():
  made = written(Attempt(TASK, ParseFailure("no lists", 3), None, None, "Hm."))
  assert (made["parse_failure"], made["plan"], made["completion"]) == (
      {"reason": "no lists", "position": 3}, None, "Hm.")
  item = Item.read(made)
  assert (item.right, item.plans, item.workflows, item.latency, item.extracted) == (
      False, (None,), [], None, None)


@pytest.mark.parametrize(("outcome", "fault"), [
    ("unavailable", "worker-2: HTTP 503"), ("answered", "its grader failed")])
def test_an_item_without_a_verdict_says_whose_fault_it_is(outcome, fault):
  plan = Workflow((Step(2, "Try."),))
  calls = (call(2, outcome, error="HTTP 503" if outcome == "unavailable" else None),)
  item = Item.read(written(Attempt(TASK, plan, Transcript(plan, calls, None, Usage()), None)))
  assert (item.right, item.fault) == (None, fault)


def test_an_answer_without_a_final_answer_in_it_is_told_apart_from_a_wrong_one():
  read, unread = (Item.read(written(attempt("a", (0,), grade))) for grade in (RIGHT, UNREAD))
  assert (read.extracted, unread.extracted, unread.right) == (True, False, False)


def test_half_a_surrogate_pair_can_be_written():
  plan = Workflow((Step(0, "Cut \ud83d"),))
  each = Attempt(TASK, plan, Transcript(plan, CALLS[:1], "\ud83d", Usage()), RIGHT)
  assert Item.read(json.loads(json.dumps(written(each)).encode())).plans == (plan,)


def test_the_hash_is_of_the_question_alone():
  assert question_hash(TASK) == question_hash(Task("other", "How many?", "", "mmlu"))
  assert question_hash(TASK) != question_hash(Task("gsm8k/1", "How many", "", "gsm8k"))
  assert len(question_hash(Task("a", "half \ud83d", "", "k"))) == 16
