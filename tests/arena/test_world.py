"""The almanac's questions, their answers, and what keeps the splits apart."""

import dataclasses
import inspect
import re
from collections import Counter

import pytest

from conductor_jax.arena.specialists import SPECIALISTS
from conductor_jax.arena.world import (
    LOOKUPS,
    NAME_FACTS,
    NUMBER_FACTS,
    OPERATIONS,
    SKILLS,
    WORDS,
    Question,
    World,
    understand,
)
from conductor_jax.workflows.prompts import PromptTemplate, Shot
from tests.workflows import golden_prompts


@pytest.fixture(scope="module")
def world():
  return World(0)


@pytest.fixture(scope="module")
def train(world):
  return world.tasks("train", 1200)


@pytest.fixture(scope="module")
def test(world):
  return world.tasks("test", 600)


def questions(tasks):
  return [understand(task.question) for task in tasks]


def answered(world, text):
  return world.answer(understand(text))


@pytest.mark.parametrize("text, answer", [
    ("What is 17 plus 25?", "42"),
    ("Add 25 to 17.", "42"),
    ("What is 12 times 11?", "132"),
    ("Multiply 12 by 11.", "132"),
    ('Spell "heron" backwards.', "noreh"),
    ('How does "heron" read from right to left?', "noreh"),
    ('What is left of "heron" without its vowels?', "hrn"),
    ('Write "eagle" without vowels.', "gl"),
    ('Put the letters of "heron" in alphabetical order.', "ehnor"),
    ('Arrange the letters of "banner" from a to z.', "abennr"),
    ('How many different letters occur in "banner"?', "5"),
    ('Count the distinct letters of "pepper".', "3"),
])
def test_answers_to_questions_about_a_given_argument_are_right(world, text, answer):
  assert answered(world, text) == answer


def test_answers_to_questions_about_a_fact_follow_from_the_almanac(world):
  town, facts = next(iter(world.almanac.items()))
  river, wells = facts["river"], int(facts["number of wells"])
  assert answered(world, f"What is the river of {town}?") == river
  assert answered(world, f"Tell me the number of wells of {town}.") == str(wells)
  assert answered(world, f"Spell the river of {town} backwards.") == "".join(reversed(river))
  assert answered(world, f"Add 25 to the number of wells of {town}.") == str(wells + 25)
  assert answered(world, f"Multiply the number of wells of {town} by 3.") == str(3 * wells)
  assert answered(world, f"Count the distinct letters of the river of {town}.") == str(
      len(set(river)))


def test_understanding_inverts_every_template():
  for operation in OPERATIONS:
    for template in operation.templates:
      number = 7 if "{n}" in template else 0
      given, argument = ("12", "12") if operation.numeric else ("heron", '"heron"')
      assert understand(template.format(x=argument, n=7)) == Question(
          operation, number, given=given)
      for fact in NUMBER_FACTS if operation.numeric else NAME_FACTS:
        assert understand(template.format(x=f"the {fact} of Tolven", n=7)) == Question(
            operation, number, fact=fact, town="Tolven")
  for template in LOOKUPS:
    for fact in NAME_FACTS + NUMBER_FACTS:
      assert understand(template.format(fact=fact, town="Tolven")) == Question(
          None, fact=fact, town="Tolven")


@pytest.mark.parametrize("text", ["", "What is love?", "Spell backwards.", "Add one to 17."])
def test_other_text_is_not_understood(text):
  assert understand(text) is None


def test_every_task_is_understood_as_its_kind_and_has_the_right_reference(world, train, test):
  for task in train + test:
    question = understand(task.question)
    assert question.kind == task.kind
    assert world.answer(question) == task.reference


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("count", [300, 600])
def test_a_third_is_two_hop_and_ends_in_each_skill_equally_often(world, split, count):
  tasks = world.tasks(split, count)
  kinds = Counter(task.kind for task in tasks)
  assert kinds == {"two-hop": count // 3} | dict.fromkeys(SKILLS, count // 6)
  final = Counter(q.skills for q in questions(tasks) if q.kind == "two-hop")
  assert set(final) == {("almanac", skill) for skill in ("arithmetic", "words", "sorting")}
  assert max(final.values()) - min(final.values()) <= 1


@pytest.mark.parametrize("count", [1, 7, 100])
def test_there_are_as_many_tasks_as_asked_for_all_distinct(world, count):
  tasks = world.tasks("train", count)
  assert len({task.question for task in tasks}) == len({task.id for task in tasks}) == count


def test_kinds_are_mixed_so_that_any_part_is_like_the_whole(train):
  for start in range(0, 1200, 300):
    kinds = Counter(task.kind for task in train[start:start + 300])
    # Mean 100, standard deviation about 7.
    assert 70 < kinds["two-hop"] < 130


def test_two_hop_questions_ask_about_towns_that_the_old_almanac_lacks(world, train, test):
  assert len(world.old_towns) == len(world.almanac) / 2
  asked = {q.town for q in questions(train + test) if q.kind == "two-hop"}
  assert not asked & world.old_towns
  asked = {q.town for q in questions(train + test) if q.kind == "almanac"}
  assert asked & world.old_towns and asked - world.old_towns


def test_the_splits_share_no_question_town_word_or_pair_of_numbers(world, train, test):
  assert not {task.question for task in train} & {task.question for task in test}
  parts = [
      {
          "towns": {q.town for q in questions(tasks) if q.town},
          "words": {q.given for q in questions(tasks) if q.kind in ("words", "sorting")},
          "pairs": {(q.given, q.number) for q in questions(tasks) if q.kind == "arithmetic"},
      } for tasks in (train, test)]
  for name, values in parts[0].items():
    assert len(values) > 50 and len(parts[1][name]) > 25
    assert not values & parts[1][name]


# In world 57 a river would be called "beacon" if names did not keep clear of the words.
@pytest.mark.parametrize("seed", [0, 57])
def test_no_made_up_name_is_a_word_or_occurs_twice(seed):
  almanac = World(seed).almanac
  names = [town.lower() for town in almanac]
  names += [facts[fact] for facts in almanac.values() for fact in NAME_FACTS]
  assert len(set(names)) == len(names) == 3 * 240
  assert not set(names) & set(WORDS)
  assert len(set(WORDS)) == len(WORDS)


def test_the_seed_fixes_the_tasks_and_another_seed_has_another_almanac(world, test):
  assert World(0).tasks("test", 600) == test
  other = World(1)
  assert other.tasks("test", 600) != test
  shared = set(other.almanac) & set(world.almanac)
  assert len(shared) < 5
  assert all(other.almanac[town] != world.almanac[town] for town in shared)


def test_more_tasks_than_there_are_distinct_questions_are_refused(world):
  with pytest.raises(ValueError, match="test split has not 200 distinct words questions.*1200"):
    world.tasks("test", 1200)


@pytest.mark.parametrize("name", golden_prompts.CASES)
def test_no_prompt_of_the_conductor_tells_of_a_workers_name_skill_or_price(name, train, test):
  format, previous = golden_prompts.CASES[name]
  asked = golden_prompts.template(format)
  names = {s.name for s in SPECIALISTS} | {s.name.split("-")[0] for s in SPECIALISTS}
  prices = {str(price) for s in SPECIALISTS for price in (s.price_in, s.price_out)}
  system = set()
  for task in train + test:
    first, user = asked.messages(task.question, range(7), previous=previous)
    system.add(first["content"])
    text = f"{first['content']}\n{user['content']}".lower()
    assert not any(name in text for name in names | {"small", "medium", "large", "price", "$"})
    assert not prices & set(re.findall(r"\d+\.\d+", text))
    # "words" is plain English in the system message, which is the same for every task.
    assert not any(skill in user["content"].lower() for skill in SKILLS)
    assert not any(skill in first["content"] for skill in SKILLS if skill != "words")
    answer = "" if previous is None else f"\n\nAnswer so far: {previous}"
    assert user["content"] == (
        f"Question: {task.question}{answer}\n\nAvailable models: "
        "Model 0, Model 1, Model 2, Model 3, Model 4, Model 5, Model 6")
  assert len(system) == 1


def test_a_prompt_is_made_of_nothing_that_could_tell_more_of_the_workers():
  assert set(inspect.signature(PromptTemplate.messages).parameters) == {
      "self", "question", "models", "previous"}
  assert [field.name for field in dataclasses.fields(PromptTemplate)] == [
      "format", "shots", "prefill"]
  assert [field.name for field in dataclasses.fields(Shot)] == [
      "question", "models", "completion"]
