from collections import Counter

import pytest

from conductor_jax.errors import UserError
from conductor_jax.tasks.benchmark import lettered
from conductor_jax.tasks.sources import load_tasks
from conductor_jax.tasks.splits import normalised, question_texts, split_tasks, without
from conductor_jax.tasks.task import Task


def task(number, kind="gsm8k", question=None, **metadata):
  return Task(f"{kind}/{number}", question or f"What is {kind} {number}?", "1", kind, metadata)


def choice(number, stem, *options):
  return task(number, "mmlu", lettered(stem, options), choices=list(options))


def many(**counts):
  return [task(i, kind) for kind, count in counts.items() for i in range(count)]


@pytest.mark.parametrize(("one", "other"), [
    ("What is 2 + 3?", "  what is\n2+3 "),
    ("Compute $\\dfrac{1}{2}\\, x$.", "compute \\(\\frac{1}{2} x\\)"),
    (r"Let $f\left(x\right)=x^{2}$", "Let $f(x) = x^2$"),
    ("He said “go”; she said ‘no’.", 'He said "go", she said \'no\''),
    ("It cost $1,200.", "it cost 1200"),
    ("a well-known 3–4 result", "A well known 3-4 result"),
    ("x ≤ 2 ﬁnal", "x ≤ 2 final"),
    (r"7 \quad 8~9", "7 8 9"),
])
def test_what_publications_differ_in_makes_no_difference(one, other):
  assert normalised(one) == normalised(other)


@pytest.mark.parametrize(("one", "other"), [
    ("2 + 3", "2 - 3"), ("3.5", "35"), ("1 23", "12 3"), ("1,2", "12"), ("(x+1)^2", "x+1^2"),
    ("x_1", "x1"), ("a < b", "a > b"), ("5!", "5"), ("10%", "10"), ("x-1", "x 1"), ("né", "ne"),
    ("x ≤ 2", "x ≥ 2"), (r"x \leq 2", r"x \geq 2"),
])
def test_what_changes_a_question_makes_a_difference(one, other):
  assert normalised(one) != normalised(other)


def test_a_choice_question_is_compared_with_and_without_its_options():
  first = choice(1, "Which is a prime?", "4", "7")
  assert question_texts(first) == ("which is a prime a 4 b 7", "which is a prime")
  reordered = choice(2, "Which is a prime?", "7", "4")
  elsewhere = task(3, "rlpr", "which is a PRIME")
  assert without([reordered, elsewhere, task(4)], [first]) == [task(4)]
  assert without([first], [elsewhere]) == []


def test_no_question_is_in_both_parts_however_it_is_written():
  tasks = [task(i, question=f"What is {i % 9}+{i % 9}{'?' * (i // 9 % 2)}") for i in range(36)]
  split = split_tasks(tasks, train=100, heldout=5, balanced=False, evaluated=())
  assert [t.question for t in split.heldout] == [f"What is {i}+{i}" for i in range(5)]
  assert [t.question for t in split.train] == [f"What is {i}+{i}" for i in range(5, 9)]
  assert split.notes == ()


def test_what_is_evaluated_on_elsewhere_is_not_trained_on_and_counted():
  tasks = [*many(gsm8k=8), choice(1, "Which is even?", "3", "4"), choice(2, "Why?", "x", "y")]
  evaluated = [task(1, "svamp", "what is GSM8K 5"), task(2, "aqua", "Which is even")]
  split = split_tasks(tasks, train=100, heldout=2, balanced=False, evaluated=evaluated)
  assert [t.id for t in split.heldout] == ["gsm8k/0", "gsm8k/1"]
  assert [t.id for t in split.train] == [f"gsm8k/{i}" for i in (2, 3, 4, 6, 7)] + ["mmlu/2"]
  assert split.notes == ("left out of training, for they are evaluated on too: 2 questions",)


def test_a_held_out_choice_question_is_not_trained_on_with_other_options():
  tasks = [choice(1, "Which is even?", "3", "4"), choice(2, "Which is even?", "5", "6"),
           choice(3, "Why?", "x", "y")]
  split = split_tasks(tasks, train=9, heldout=1, balanced=False, evaluated=())
  assert [t.id for t in split.train] == ["mmlu/3"]
  assert split.notes == ("left out of training, for they are evaluated on too: 1 questions",)


def test_the_papers_mix_has_240_of_each_and_100_held_out():
  tasks = many(mmlu=700, math500=500, rlpr=400, livecodebench=400)
  split = split_tasks(tasks, train=960, heldout=400, balanced=True, evaluated=())
  assert set(Counter(t.kind for t in split.train).values()) == {240}
  assert set(Counter(t.kind for t in split.heldout).values()) == {100}
  assert len(split.train) == 960 and split.notes == ()


@pytest.mark.parametrize("heldout", [10, 100, 400])
def test_math500_is_cut_into_100_to_hold_out_and_300_to_train_on(heldout):
  tasks = many(math500=500)
  split = split_tasks(tasks, train=1000, heldout=heldout, balanced=True, evaluated=())
  assert split.heldout == tasks[:min(heldout, 100)]
  assert split.train == tasks[100:400]


def test_what_does_not_divide_goes_to_the_first_benchmarks():
  split = split_tasks(many(a=9, b=9, c=9), train=11, heldout=4, balanced=True, evaluated=())
  assert Counter(t.kind for t in split.train) == {"a": 4, "b": 4, "c": 3}
  assert Counter(t.kind for t in split.heldout) == {"a": 2, "b": 1, "c": 1}


def test_too_few_rows_are_all_taken_and_told():
  split = split_tasks(many(a=90, b=8), train=40, heldout=10, balanced=True, evaluated=())
  assert Counter(t.kind for t in split.train) == {"a": 20, "b": 3}
  assert split.notes == ("b has 3 training and 5 held-out tasks, 20 and 5 were wanted",)


@pytest.mark.parametrize(("balanced", "told"), [
    (False, "evaluation.tasks=20 leaves nothing to train on of the 12 questions: lower it"),
    (True, "evaluation.tasks=20 leaves nothing to train on of the 3 questions of b: lower it"),
])
def test_nothing_to_train_on_is_refused(balanced, told):
  with pytest.raises(UserError, match=told):
    split_tasks(many(a=9 if not balanced else 90, b=3), train=9, heldout=20, balanced=balanced,
                evaluated=())


def test_real_benchmarks_share_few_questions_and_none_is_in_both_parts(benchmarks):
  tasks = load_tasks(benchmarks, ["mmlu", "gsm8k", "math500"], "test")
  evaluated = load_tasks(benchmarks, ["aqua", "svamp", "aime25", "multiarith"], "test")
  split = split_tasks(tasks, train=20_000, heldout=300, balanced=False, evaluated=evaluated)
  asked = {text for part in (split.heldout, evaluated) for t in part for text in question_texts(t)}
  assert all(asked.isdisjoint(question_texts(t)) for t in split.train)
  questions = [normalised(t.question) for t in (*split.train, *split.heldout)]
  assert len(set(questions)) == len(questions)
  # Of 15,861 rows 111 repeat another one.
  left_out = 15_861 - 111 - len(questions)
  assert split.notes == (
      f"left out of training, for they are evaluated on too: {left_out} questions",)
