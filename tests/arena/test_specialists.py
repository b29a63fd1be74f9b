"""What the arena's workers can do, alone and together, as measured on their answers."""

from collections import Counter

import pytest

from conductor_jax.arena.plans import SUBTASKS
from conductor_jax.arena.specialists import SPECIALISTS, answerers, arena_pool, respond, shuffled
from conductor_jax.arena.world import SKILLS, World, understand
from conductor_jax.tasks.graders.text import grade
from conductor_jax.workflows.context import inlined_context, message_context

SEED = 0
WORLD = World(SEED)
PLAIN = "Answer the question."
BY_NAME = {specialist.name: specialist for specialist in SPECIALISTS}
ARCHIVIST = BY_NAME["archivist-medium"]
GENERALIST = BY_NAME["generalist-large"]
EXPERTS = {
    "arithmetic": BY_NAME["abacus-large"],
    "words": BY_NAME["scribe-medium"],
    "sorting": BY_NAME["clerk-medium"],
    "almanac": ARCHIVIST,
}
TASKS = WORLD.tasks("test", 480)
TWO_HOP = [task for task in TASKS if task.kind == "two-hop"]


def solves(task, steps, *, opened=True, seed=0) -> bool:
  """Whether the last of the steps (specialist, subtask), each shown all before it, is right."""
  seen = []
  for index, (specialist, subtask) in enumerate(steps):
    messages = message_context(task.question, seen if opened else [], subtask)
    seen.append((subtask, respond(WORLD, specialist, messages, seed + index)))
  return grade(task.reference, seen[-1][1]).correct


def share(tasks, steps, **options) -> float:
  return sum(solves(task, steps, **options) for task in tasks) / len(tasks)


@pytest.fixture(scope="module")
def alone():
  """Share of the tasks of every kind that each worker solves with one plain call, over 8 seeds."""
  return {
      specialist.name: {
          kind: sum(share([task for task in TASKS if task.kind == kind], [(specialist, PLAIN)],
                          seed=seed) for seed in range(8)) / 8
          for kind in (*SKILLS, "two-hop")}
      for specialist in SPECIALISTS}


def test_at_least_five_workers_of_three_capacities_cost_more_the_larger_they_are():
  assert len(SPECIALISTS) >= 5
  prices = {}
  for specialist in SPECIALISTS:
    prices.setdefault(specialist.capacity, []).append(specialist.price_out)
  assert set(prices) == {"small", "medium", "large"}
  assert max(prices["small"]) < min(prices["medium"])
  assert max(prices["medium"]) < min(prices["large"])
  assert GENERALIST.price_out == max(s.price_out for s in SPECIALISTS)


def test_ids_are_shuffled_by_the_seed():
  orders = Counter(tuple(s.name for s in shuffled(seed)) for seed in range(50))
  assert len(orders) > 45
  assert shuffled(3) == shuffled(3)
  names = sorted(BY_NAME)
  assert all(sorted(order) == names for order in orders)
  # Each place has held each worker.
  assert all({order[place] for order in orders} == set(names) for place in range(len(names)))


def test_the_pool_offers_the_workers_in_shuffled_order_with_their_prices():
  pool = arena_pool("http://127.0.0.1:1/v1", SEED)
  assert [(spec.name, spec.model, spec.price_in, spec.price_out) for spec in pool.workers] == [
      (s.name, s.name, s.price_in, s.price_out) for s in shuffled(SEED)]


@pytest.mark.parametrize("skill", SKILLS)
@pytest.mark.parametrize("specialist", SPECIALISTS, ids=lambda s: s.name)
def test_success_is_as_frequent_as_the_skill_says(specialist, skill):
  tasks = [task for task in TASKS if task.kind == skill]
  if skill == "almanac":
    known = {"none": set(), "old": WORLD.old_towns, "current": set(WORLD.almanac)}[
        specialist.almanac]
    assert not any(solves(task, [(specialist, PLAIN)]) for task in tasks
                   if understand(task.question).town not in known)
    tasks = [task for task in tasks if understand(task.question).town in known]
  if not tasks:
    return
  seeds = range(10)
  right = sum(share(tasks, [(specialist, PLAIN)], seed=seed) for seed in seeds) / len(seeds)
  probability = specialist.skills[skill]
  deviation = (probability * (1 - probability) / (len(tasks) * len(seeds))) ** 0.5
  assert abs(right - probability) <= 3 * deviation


def test_the_generalist_is_the_best_single_worker_and_mediocre_at_everything(alone):
  overall = {
      name: sum(by_kind[kind] * sum(task.kind == kind for task in TASKS) for kind in by_kind)
      / len(TASKS)
      for name, by_kind in alone.items()}
  assert max(overall, key=overall.get) == GENERALIST.name
  runner_up = sorted(overall.values())[-2]
  assert overall[GENERALIST.name] > runner_up + 0.1
  for kind in SKILLS:
    assert 0.40 <= alone[GENERALIST.name][kind] <= 0.60


@pytest.mark.parametrize("skill", SKILLS)
def test_for_every_skill_there_is_an_expert_far_above_the_generalist(alone, skill):
  assert alone[EXPERTS[skill].name][skill] > 0.9 > 0.3 + alone[GENERALIST.name][skill]


def test_no_single_worker_solves_a_two_hop_task_in_one_call(alone):
  assert all(by_kind["two-hop"] == 0 for by_kind in alone.values())
  for specialist in SPECIALISTS:
    for subtasks in SUBTASKS.values():
      assert share(TWO_HOP, [(specialist, subtasks[0])]) == 0


@pytest.mark.parametrize("specialist", SPECIALISTS, ids=lambda s: s.name)
def test_two_calls_of_one_worker_solve_no_two_hop_task(specialist):
  assert sum(share(TWO_HOP, [(specialist, PLAIN)] * 2, seed=10 * seed) for seed in range(5)) == 0


@pytest.mark.parametrize("subtask", [None, PLAIN])
def test_two_experts_with_open_access_solve_two_hop_tasks(subtask):
  right = 0
  for task in TWO_HOP:
    first, second = understand(task.question).skills
    right += solves(task, [(EXPERTS[skill], subtask or SUBTASKS[skill][0])
                           for skill in (first, second)])
  # 0.98 · 0.97 in the mean.
  assert right / len(TWO_HOP) > 0.9


def test_closed_access_solves_no_two_hop_task_whoever_works():
  for task in TWO_HOP[::4]:
    skills = understand(task.question).skills
    for first in SPECIALISTS:
      for second in SPECIALISTS:
        for named in (True, False):
          steps = [(worker, SUBTASKS[skill][0] if named else PLAIN)
                   for worker, skill in zip((first, second), skills, strict=True)]
          assert not solves(task, steps, opened=False)


def test_only_the_archivist_knows_recent_towns():
  recent = [town for town in WORLD.almanac if town not in WORLD.old_towns]
  for specialist in SPECIALISTS:
    told = Counter(
        respond(WORLD, specialist,
                message_context(f"What is the river of {town}?", [], PLAIN), seed=0)
        != f"I have no record of {town}." for town in recent)
    assert told == {specialist is ARCHIVIST: len(recent)}


def test_without_the_archivist_no_pair_solves_a_two_hop_task():
  others = [specialist for specialist in SPECIALISTS if specialist is not ARCHIVIST]
  for task in TWO_HOP[::4]:
    for first in others:
      for second in SPECIALISTS:
        assert not solves(task, [(first, PLAIN), (second, PLAIN)])


def test_an_answer_depends_on_the_messages_and_the_seed_alone():
  def answers(seed):
    return [respond(WORLD, specialist, message_context(task.question, [], PLAIN), seed)
            for specialist in SPECIALISTS for task in TASKS[:50]]

  first = answers(1)
  assert answers(1) == first
  assert answers(2) != first
  served = answerers(SEED)
  assert [served[specialist.name](message_context(task.question, [], PLAIN), 1)
          for specialist in SPECIALISTS for task in TASKS[:50]] == first


def test_both_styles_of_context_bring_the_same_answers():
  for task in TWO_HOP[:30]:
    expert = EXPERTS[understand(task.question).skills[1]]
    lookup = respond(WORLD, ARCHIVIST, inlined_context(task.question, [], PLAIN), 0)
    assert lookup == respond(WORLD, ARCHIVIST, message_context(task.question, [], PLAIN), 0)
    seen = [(PLAIN, lookup)]
    assert respond(WORLD, expert, inlined_context(task.question, seen, PLAIN), 1) == respond(
        WORLD, expert, message_context(task.question, seen, PLAIN), 1)


@pytest.mark.parametrize("question, subtask, answer", [
    ("What is love?", PLAIN, "I do not understand the question."),
    ("What is 17 plus 25?", "Spell it as asked.", "That is not what the question is about."),
    ("What is the river of Nowhere?", PLAIN, "I have no record of Nowhere."),
    ("Spell the river of Nowhere backwards.", "Spell it as asked.",
     "I do not know the river of Nowhere."),
])
def test_what_cannot_be_answered_is_said_so(question, subtask, answer):
  assert respond(WORLD, ARCHIVIST, message_context(question, [], subtask), 0) == answer


def test_a_word_shown_as_the_number_to_work_with_is_refused():
  town = next(iter(WORLD.almanac))
  messages = message_context(
      f"Add 5 to the number of wells of {town}.",
      [("Look it up in the almanac.", "My answer is <answer>twelve</answer>.")], PLAIN)
  assert respond(WORLD, EXPERTS["arithmetic"], messages, 0) == "I cannot work with 'twelve'."
