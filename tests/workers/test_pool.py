import math

import pytest

from conductor_jax.errors import UserError
from conductor_jax.workers.pool import Limits, Pool, WorkerSpec


def spec(name="solver", **changes):
  return WorkerSpec(name, "http://h/v1", "m", **changes)


@pytest.mark.parametrize(("changes", "message"), [
    ({"dialect": "cohere"}, "dialect='cohere' must be one of openai, openai-reasoning, anthropic"),
    ({"capacity": "huge"}, "capacity='huge' must be one of small, medium, large"),
    ({"price_in": -1.0}, "price_in=-1.0 must be 0 or above"),
    ({"price_out": math.nan}, "price_out=nan must be 0 or above"),
    ({"price_cached": -0.1}, "price_cached=-0.1 must be 0 or above"),
    ({"price_reasoning": math.inf}, "price_reasoning=inf must be 0 or above"),
    ({"limits": Limits(concurrent=0)}, "limits.concurrent=0 must be 1 or above"),
    ({"limits": Limits(requests_per_minute=0)}, "limits.requests_per_minute=0 must be above 0"),
    ({"limits": Limits(tokens_per_minute=-5)}, "limits.tokens_per_minute=-5 must be above 0"),
    ({"sampling": {"max_tokens": 0}}, "sampling.max_tokens=0 must be a whole number above 0"),
    ({"sampling": {"max_tokens": None}}, "sampling.max_tokens=None must be a whole number above 0"),
    ({"sampling": {"max_tokens": 64}, "context_length": 64},
     "context_length=64 must be above sampling.max_tokens=64"),
    ({"context_length": 0}, "context_length=0 must be above"),
    ({"sampling": {"stop": {"x"}}}, "sampling={'stop': {'x'}} must be what JSON can hold"),
    ({"sampling": {"temperature": math.nan}}, "sampling={'temperature': nan} must be what JSON"),
])
def test_a_worker_that_cannot_be_is_refused_by_name_field_and_value(changes, message):
  with pytest.raises(UserError) as fault:
    spec(**changes)
  assert str(fault.value).startswith(f"worker 'solver': {message}")
  assert "\n" not in str(fault.value)


@pytest.mark.parametrize("key", ["sk-canary", "gsk_canary", "hf_Canary", "", "SOLVER KEY"])
def test_a_key_in_place_of_its_variable_is_refused_without_showing_it(key):
  with pytest.raises(UserError) as fault:
    spec(api_key_env=key)
  assert str(fault.value) == ("worker 'solver': api_key_env must be the name of an environment "
                              "variable that holds the key")


def test_a_worker_without_a_name_is_refused():
  with pytest.raises(UserError, match="name='' must not be empty"):
    spec("")


def test_the_least_that_can_be_is_accepted():
  spec(price_in=0, price_cached=0.0, limits=Limits(1, 0.5, 1), sampling={"max_tokens": 63},
       context_length=64)


def test_two_workers_of_one_name_are_refused():
  with pytest.raises(UserError, match="2 workers are called 'a'"):
    Pool((spec("a"), spec("b"), spec("a")))


@pytest.mark.parametrize(("names", "fallbacks", "message"), [
    ("ab", ("a",), "worker 'a': fallbacks=('a',) must be some of the others, b"),
    ("abc", ("b", "d"), "worker 'a': fallbacks=('b', 'd') must be some of the others, b, c"),
    ("a", ("b",), "worker 'a': fallbacks=('b',) must be some of the others, and there are none"),
])
def test_a_fallback_is_another_worker_of_the_pool(names, fallbacks, message):
  others = tuple(spec(name) for name in names[1:])
  with pytest.raises(UserError) as fault:
    Pool((spec("a", fallbacks=fallbacks), *others))
  assert str(fault.value) == message
  Pool((spec("a", fallbacks=("b",)), spec("b", fallbacks=("a",))))


def test_a_subset_is_renumbered_and_falls_back_on_its_own_workers_only():
  pool = Pool((spec("a", fallbacks=("b", "c")), spec("b"), spec("c", fallbacks=("a",))))
  subset = pool.subset((2, 0))
  assert [worker.name for worker in subset.workers] == ["c", "a"]
  assert [worker.fallbacks for worker in subset.workers] == [("a",), ("c",)]
  assert pool.subset((0,)).workers[0].fallbacks == ()
  assert pool.subset((0, 1, 2)) == pool


def test_cached_and_reasoning_tokens_have_prices_of_their_own_where_they_are_named():
  plain = spec(price_in=2.0, price_out=10.0)
  assert plain.cost(1000, 500, cached=400, reasoning=300) == pytest.approx(0.002 + 0.005)
  priced = spec(price_in=2.0, price_out=10.0, price_cached=0.5, price_reasoning=20.0)
  # 600 * 2 + 400 * 0.5 + 200 * 10 + 300 * 20 dollars per million tokens.
  assert priced.cost(1000, 500, cached=400, reasoning=300) == pytest.approx(9400e-6)
  assert spec(price_in=2.0, price_cached=0.0).cost(1000, 0, cached=1000) == 0


def test_an_answer_is_bounded_by_max_tokens_else_by_the_context():
  assert spec(sampling={"max_tokens": 64}, context_length=100).max_tokens == 64
  assert spec(context_length=100).max_tokens == 100
  assert spec().max_tokens is None


def test_a_missing_key_is_named_and_a_worker_may_need_none(monkeypatch):
  monkeypatch.setenv("SOLVER_KEY", "sk")
  assert spec(api_key_env="SOLVER_KEY").api_key() == "sk"
  assert spec().api_key() is None
  monkeypatch.setenv("SOLVER_KEY", "")
  with pytest.raises(UserError, match="set the environment variable SOLVER_KEY"):
    spec(api_key_env="SOLVER_KEY").api_key()
