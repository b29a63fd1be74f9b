"""Laws by which questions are offered workers, as measured on what they draw."""

import itertools
from collections import Counter

import numpy as np
import pytest

from conductor_jax.errors import UserError
from conductor_jax.workers.offer import Offer, OfferLaw

NAMES = ("a", "b", "c", "d", "e", "f", "g")
GROUPS = {"open": ("g", "c", "d"), "closed": ("a", "b", "c"), "one": ("f",)}
# The 99.9 % quantile of the chi-square distribution, by degrees of freedom.
QUANTILES = {1: 10.83, 3: 16.27, 6: 22.46, 20: 45.31, 34: 65.25}
DRAWS = 4200


def law(text: str, **options) -> OfferLaw:
  return OfferLaw(text, NAMES, GROUPS, **options)


def draws(text: str, count: int = DRAWS, seed: int = 0) -> list[tuple[int, ...]]:
  generator, drawn = np.random.default_rng(seed), law(text)
  return [drawn.draw(generator).workers for _ in range(count)]


def assert_equally_frequent(counts: Counter, values) -> None:
  """By Pearson's test: nothing but the values occurs, and none of them more than another."""
  values = list(values)
  assert set(counts) == set(values)
  expected = counts.total() / len(values)
  statistic = sum((counts[value] - expected) ** 2 / expected for value in values)
  assert expected >= 5 and statistic < QUANTILES[len(values) - 1]


class TestAll:

  def test_offers_every_worker_and_draws_nothing_from_the_generator(self):
    generator = np.random.default_rng(5)
    assert [law("all").draw(generator) for _ in range(3)] == [Offer(tuple(range(7)))] * 3
    assert generator.random() == np.random.default_rng(5).random()

  @pytest.mark.parametrize("text", ["fixed:7", "uniform:7-7"])
  def test_as_many_as_there_are_is_all_of_them(self, text):
    generator = np.random.default_rng(5)
    assert law(text).draw(generator) == Offer(tuple(range(7)))
    assert law(text).always == frozenset(range(7))
    assert generator.random() == np.random.default_rng(5).random()


class TestFixed:

  def test_every_subset_of_the_size_is_equally_frequent(self):
    assert_equally_frequent(Counter(draws("fixed:3")), itertools.combinations(range(7), 3))

  def test_one_worker_is_any_of_them(self):
    assert_equally_frequent(Counter(draws("fixed:1")), [(worker,) for worker in range(7)])


class TestUniform:

  def test_every_size_is_equally_frequent_and_within_it_every_subset(self):
    drawn = draws("uniform:2-5")
    assert_equally_frequent(Counter(map(len, drawn)), range(2, 6))
    assert_equally_frequent(
        Counter(workers for workers in drawn if len(workers) == 2),
        itertools.combinations(range(7), 2))

  def test_every_worker_is_equally_frequent(self):
    # Within an offer no worker occurs twice, so the statistic is below that of independent draws.
    assert_equally_frequent(
        Counter(itertools.chain.from_iterable(draws("uniform:2-5"))), range(7))

  def test_both_ends_belong_to_it(self):
    assert {len(workers) for workers in draws("uniform:1-7", 300)} == set(range(1, 8))


class TestGroups:

  def test_each_named_group_is_offered_equally_often_and_no_other(self):
    assert_equally_frequent(Counter(draws("groups:open,closed")), [(2, 3, 6), (0, 1, 2)])

  def test_one_group_alone_is_always_offered(self):
    assert set(draws("groups:one", 20)) == {(5,)}

  def test_a_group_named_twice_is_offered_twice_as_often(self):
    counts = Counter(draws("groups:open,one,open"))
    # 2800 of 4200, give or take four standard deviations.
    assert counts[2, 3, 6] == pytest.approx(2800, abs=122)


@pytest.mark.parametrize("text", ["all", "fixed:3", "uniform:2-5", "groups:open,closed,one"])
def test_offers_are_ascending_and_follow_from_the_seed(text):
  drawn = draws(text, 50)
  assert all(list(workers) == sorted(set(workers)) for workers in drawn)
  assert all(type(worker) is int for workers in drawn for worker in workers)
  assert draws(text, 50) == drawn
  assert text == "all" or draws(text, 50, seed=1) != drawn


@pytest.mark.parametrize(("text", "whole", "always"), [
    ("all", range(7), range(7)), ("fixed:3", range(7), ()), ("uniform:2-7", range(7), ()),
    ("groups:open,closed", (0, 1, 2, 3, 6), (2,)), ("groups:open,one", (2, 3, 5, 6), ()),
    ("groups:one", (5,), (5,))])
def test_a_law_says_who_can_be_on_offer_and_who_always_is(text, whole, always):
  for renumber in (False, True):
    assert law(text, renumber=renumber).whole == Offer(tuple(whole), renumber)
  assert law(text).always == frozenset(always)
  offers = [set(workers) for workers in draws(text, 400)]
  assert set.union(*offers) == set(whole) and set.intersection(*offers) == set(always)


def test_workers_keep_the_numbers_that_they_have_among_all():
  offer = law("groups:open").draw(np.random.default_rng(0))
  assert tuple(offer.numbers) == offer.workers == (2, 3, 6)
  assert [offer.worker(number) for number in offer.numbers] == [2, 3, 6]


def test_renumbered_workers_are_numbered_from_0_on():
  offer = law("groups:open", renumber=True).draw(np.random.default_rng(0))
  assert (list(offer.numbers), offer.workers) == ([0, 1, 2], (2, 3, 6))
  assert [offer.worker(number) for number in offer.numbers] == [2, 3, 6]


def test_numbering_does_not_change_who_is_drawn():
  generators = [np.random.default_rng(0) for _ in range(2)]
  kept, renumbered = law("uniform:2-5"), law("uniform:2-5", renumber=True)
  for _ in range(50):
    assert kept.draw(generators[0]).workers == renumbered.draw(generators[1]).workers


@pytest.mark.parametrize(("text", "message"), [
    ("some", "'some' must be one of all, fixed:K, uniform:K-L or groups:NAME,..."),
    ("", "'' must be one of all, "),
    ("fixed:", "'fixed:' must be one of all, "),
    ("fixed:-1", "'fixed:-1' must be one of all, "),
    ("fixed:2.5", "'fixed:2.5' must be one of all, "),
    ("fixed:3 ", "'fixed:3 ' must be one of all, "),
    ("uniform:3", "'uniform:3' must be one of all, "),
    ("groups:", "'groups:' must be one of all, "),
    ("groups:open,", "'groups:open,' must be one of all, "),
    ("fixed:0", "'fixed:0' leaves no worker: offer 1 at least, and the fewer first"),
    ("uniform:0-3", "'uniform:0-3' leaves no worker: "),
    ("uniform:5-2", "'uniform:5-2' leaves no worker: offer 1 at least, and the fewer first"),
    ("fixed:8", "'fixed:8' asks for 8 workers, and the pool has 7"),
    ("uniform:2-8", "'uniform:2-8' asks for 8 workers, and the pool has 7"),
    ("groups:secret", "'groups:secret': there is no group 'secret', of open, closed, one: describe "
                      "it in pool.groups"),
    ("groups:open,secret", "'groups:open,secret': there is no group 'secret'"),
])
def test_a_law_that_cannot_be_kept_is_refused_in_one_line(text, message):
  with pytest.raises(UserError) as fault:
    law(text)
  assert str(fault.value).startswith(message) and "\n" not in str(fault.value)


@pytest.mark.parametrize(("members", "message"), [
    ((), "group 'g' leaves no worker: name one at least"),
    (("a", "z"), "group 'g': there is no worker 'z', of a, b, c, d, e, f, g"),
    (("a", "b", "a"), "group 'g' names a worker twice: a, b, a"),
])
def test_a_group_that_cannot_be_offered_is_refused_in_one_line(members, message):
  with pytest.raises(UserError) as fault:
    OfferLaw("groups:g", NAMES, {"g": members})
  assert str(fault.value) == message


def test_without_groups_none_can_be_named():
  with pytest.raises(UserError, match="^'groups:open': there is no group 'open', of none at all: "):
    OfferLaw("groups:open", NAMES, {})


def test_groups_that_no_law_names_need_not_fit_the_pool():
  assert OfferLaw("all", NAMES, {"other": ("z",)}).whole == Offer(tuple(range(7)))
