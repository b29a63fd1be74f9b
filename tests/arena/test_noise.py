"""Workers that lose some of their calls."""

import hashlib

import pytest

from conductor_jax.arena.specialists import (
    NOISE,
    SPECIALISTS,
    answerers,
    respond,
    with_noise,
)
from conductor_jax.arena.world import World
from conductor_jax.tasks.graders.text import grade
from conductor_jax.workflows.context import message_context

WORLD = World(0)
TASKS = WORLD.tasks("test", 480)
PLAIN = "Answer the question."
NAME = "archivist-medium"
ALMANAC = [task for task in TASKS if task.kind == "almanac"]


def noisy(share: float, name: str = NAME):
  return next(each for each in with_noise([(name, share)]) if each.name == name)


def replies(specialist, tasks=ALMANAC, seeds=range(25)) -> list[str]:
  return [respond(WORLD, specialist, message_context(task.question, [], PLAIN), seed)
          for task in tasks for seed in seeds]


def test_only_the_workers_that_are_named_are_noisy():
  made = with_noise([(NAME, 0.4), ("clerk-medium", 0.1)])
  assert [each.name for each in made] == [each.name for each in SPECIALISTS]
  assert {each.name: each.noise for each in made if each.noise} == {
      NAME: 0.4, "clerk-medium": 0.1}
  assert with_noise([]) == list(SPECIALISTS)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_as_many_calls_are_lost_as_the_share_says_and_say_so(share):
  answers = replies(noisy(share))
  deviation = (share * (1 - share) / len(answers)) ** 0.5
  assert len(answers) == 2000
  assert abs(answers.count(NOISE) / len(answers) - share) <= 4 * deviation
  assert not any(grade(task.reference, NOISE).correct for task in TASKS)


def test_all_calls_are_lost_at_a_share_of_one():
  assert set(replies(noisy(1.0), seeds=range(2))) == {NOISE}


def test_what_is_not_lost_is_right_as_often_as_without_noise():
  worker = noisy(0.4, "abacus-small")
  sums = [task for task in TASKS if task.kind == "arithmetic"]
  answered = [(task, answer) for task in sums for answer in replies(worker, [task])
              if answer != NOISE]
  right = sum(grade(task.reference, answer).correct for task, answer in answered)
  skill = worker.skills["arithmetic"]
  deviation = (skill * (1 - skill) / len(answered)) ** 0.5
  assert abs(right / len(answered) - skill) <= 4 * deviation


def test_without_noise_no_luck_is_spent_on_it():
  # The answers of workers that know nothing of noise.
  digest = "15b05e18ee2733dc929b807e42fa7f07b3c0e63183cc2c222aa6f62abf2d53d1"
  for silent in (SPECIALISTS, with_noise([(NAME, 0.0)])):
    answers = [answer for specialist in silent for answer in replies(
        specialist, TASKS[:60], range(3))]
    assert hashlib.sha256("\n".join(answers).encode()).hexdigest() == digest


def test_the_same_request_is_lost_again_and_another_seed_has_its_own_luck():
  assert replies(noisy(0.4)) == replies(noisy(0.4))
  by_seed = [replies(noisy(0.4), ALMANAC[:1], [seed])[0] == NOISE for seed in range(30)]
  assert 0 < sum(by_seed) < 30


def test_the_served_workers_are_noisy_as_configured():
  served, silent = answerers(0, [(NAME, 0.4)]), answerers(0)
  for name in served:
    answers, plain = (
        [each[name](message_context(task.question, [], PLAIN), 1) for task in ALMANAC]
        for each in (served, silent))
    assert (NOISE in answers) == (name == NAME)
    assert NOISE not in plain and (name == NAME or answers == plain)
