import json

import pytest

from conductor_jax.arena.frontier import WORKERS
from conductor_jax.errors import UserError
from conductor_jax.workers.dialects import request_options
from conductor_jax.workers.pool import Limits, Pool, WorkerSpec
from conductor_jax.workers.pools import listed_pool, open_pool, paper_pool

PAPER = ["gemini-2.5-pro", "claude-sonnet-4", "gpt-5", "qwen3-32b", "gemma-3-27b",
         "qwen3-32b-reasoning", "deepseek-r1-distill-qwen-32b"]
URL = "http://127.0.0.1:8000/v1"
SOLVER = {"name": "solver", "base_url": URL, "model": "m"}


def test_the_papers_workers_stand_in_its_order_under_the_simulated_ones_names():
  names = [worker.name for worker in paper_pool().workers]
  assert names == PAPER == [worker.model for worker in WORKERS]


def test_the_papers_workers_are_asked_with_its_controlled_settings():
  for worker in paper_pool().workers:
    assert worker.max_tokens == 4096
    assert worker.sampling["temperature"] == (1.0 if worker.name == "gpt-5" else 0.2)
  efforts = [worker.sampling.get("reasoning_effort") for worker in paper_pool().workers]
  assert efforts == ["low", "none", "minimal", "none", None, "minimal", None]


OPEN = ("Qwen/Qwen3-32B", "google/gemma-3-27b-it", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
        "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen2.5-32B-Instruct")


@pytest.mark.parametrize("worker", [
    *paper_pool().workers, *open_pool([(model, URL) for model in OPEN]).workers],
    ids=lambda worker: f"{worker.name} in {worker.dialect}")
def test_every_setting_of_a_ready_worker_is_sent(worker):
  fields, unsent = request_options(worker.dialect, worker.sampling)
  assert unsent == []
  assert len(fields) == len(worker.sampling)


def test_closed_models_are_asked_at_their_vendors_and_open_ones_at_openrouter():
  hosts = {worker.name: (worker.base_url.split("/")[2], worker.api_key_env)
           for worker in paper_pool().workers}
  assert hosts["gemini-2.5-pro"] == ("generativelanguage.googleapis.com", "GEMINI_API_KEY")
  assert hosts["claude-sonnet-4"] == ("api.anthropic.com", "ANTHROPIC_API_KEY")
  assert hosts["gpt-5"] == ("api.openai.com", "OPENAI_API_KEY")
  assert {hosts[name] for name in PAPER[3:]} == {("openrouter.ai", "OPENROUTER_API_KEY")}


def test_the_closed_models_cost_what_the_simulation_assumes_and_cached_tokens_a_tenth():
  for worker, simulated in list(zip(paper_pool().workers, WORKERS, strict=True))[:3]:
    assert (worker.price_in, worker.price_out) == (
        simulated.price_in.value, simulated.price_out.value)
    assert worker.price_cached == pytest.approx(worker.price_in / 10)


def test_a_direct_and_a_reasoning_worker_share_the_server_of_qwen3():
  direct, reasoning = open_pool([("Qwen/Qwen3-32B", URL)]).workers
  assert (direct.name, reasoning.name) == ("qwen3-32b", "qwen3-32b-reasoning")
  assert direct.base_url == reasoning.base_url == URL
  assert direct.model == reasoning.model == "Qwen/Qwen3-32B"
  thinking = [request_options(worker.dialect, worker.sampling)[0]["chat_template_kwargs"]
              for worker in (direct, reasoning)]
  assert thinking == [{"enable_thinking": False}, {"enable_thinking": True}]


def test_qwens_of_rising_size_have_rising_capacity():
  models = [f"Qwen/Qwen2.5-{size}B-Instruct" for size in (7, 14, 32)]
  pool = open_pool([(model, URL) for model in models])
  assert [worker.capacity for worker in pool.workers] == ["small", "medium", "large"]
  assert [worker.model for worker in pool.workers] == models


def test_open_workers_cost_nothing_and_need_no_key():
  for worker in open_pool([(model, URL) for model in OPEN]).workers:
    assert worker.cost(1000, 1000, 500, 500) == 0
    assert worker.api_key_env is None


def test_an_unknown_open_model_is_refused_with_the_known_ones():
  with pytest.raises(UserError) as fault:
    open_pool([("Qwen/Qwen2.5-7B-Instruct", URL), ("llama", URL)])
  assert str(fault.value).startswith(f"model 'llama' must be one of {', '.join(OPEN)}; ")


def test_an_open_model_that_is_named_twice_is_refused():
  with pytest.raises(UserError, match="2 workers are called 'gemma-3-27b'"):
    open_pool([("google/gemma-3-27b-it", URL), ("google/gemma-3-27b-it", URL)])


FULL = {
    **SOLVER, "api_key_env": "KEY", "price_in": 1, "price_out": 2.5, "price_cached": None,
    "price_reasoning": 3.0, "capacity": "small", "context_length": 100,
    "limits": {"concurrent": 3, "tokens_per_minute": 1000}, "dialect": "gemma",
    "sampling": {"max_tokens": 10}, "stream": True, "fallbacks": ["other"]}


def test_a_listed_worker_has_the_fields_that_it_is_given_and_the_defaults():
  pool = listed_pool(({**SOLVER, "name": "other"}, FULL))
  assert pool == Pool((
      WorkerSpec("other", URL, "m"),
      WorkerSpec(
          "solver", URL, "m", api_key_env="KEY", price_in=1, price_out=2.5, price_reasoning=3.0,
          capacity="small", context_length=100, limits=Limits(3, None, 1000), dialect="gemma",
          sampling={"max_tokens": 10}, stream=True, fallbacks=("other",))))


def test_a_list_that_went_through_json_gives_the_same_pool():
  workers = ({**SOLVER, "name": "other"}, FULL)
  assert listed_pool(json.loads(json.dumps(workers))) == listed_pool(workers)


def test_a_change_of_the_list_does_not_reach_the_pool():
  sampling = {"max_tokens": 10}
  pool = listed_pool([{**SOLVER, "sampling": sampling}])
  sampling["max_tokens"] = 20
  assert pool.workers[0].max_tokens == 10


@pytest.mark.parametrize(("changes", "message"), [
    ({"prise_in": 3}, "prise_in=3 must go, for there are only name, base_url, model, api_key_env"),
    ({"limits": {"rate": 3}}, "limits.rate=3 must go, for there are only concurrent, requests_per"),
    ({"price_in": "3"}, "price_in='3' must be a number"),
    ({"price_in": None}, "price_in=None must be a number"),
    ({"price_in": True}, "price_in=True must be a number"),
    ({"price_cached": "3"}, "price_cached='3' must be a number or None"),
    ({"price_out": -2}, "price_out=-2 must be 0 or above"),
    ({"base_url": 8000}, "base_url=8000 must be text"),
    ({"api_key_env": 3}, "api_key_env=3 must be text or None"),
    ({"context_length": 1.5}, "context_length=1.5 must be a whole number or None"),
    ({"stream": 1}, "stream=1 must be True or False"),
    ({"sampling": ("max_tokens", 3)}, "sampling=('max_tokens', 3) must be a mapping"),
    ({"sampling": {"max_tokens": 8}, "context_length": 8}, "context_length=8 must be above"),
    ({"limits": 3}, "limits=3 must be a mapping such as {'concurrent': 8}"),
    ({"limits": {"concurrent": 2.0}}, "limits.concurrent=2.0 must be a whole number"),
    ({"limits": {"concurrent": 0}}, "limits.concurrent=0 must be 1 or above"),
    ({"limits": {"requests_per_minute": "9"}},
     "limits.requests_per_minute='9' must be a number or None"),
    ({"limits": {"tokens_per_minute": 0}}, "limits.tokens_per_minute=0 must be above 0"),
    ({"dialect": "cohere"}, "dialect='cohere' must be one of openai"),
    ({"dialect": ["openai"]}, "dialect=['openai'] must be text"),
    ({"capacity": "huge"}, "capacity='huge' must be one of small, medium, large"),
    ({"fallbacks": "other"}, "fallbacks='other' must be a list of names"),
    ({"fallbacks": [1]}, "fallbacks=[1] must be a list of names"),
    ({"fallbacks": ["solver"]}, "fallbacks=('solver',) must be some of the others, other"),
    ({"fallbacks": ["third"]}, "fallbacks=('third',) must be some of the others, other"),
])
def test_a_fault_of_a_listed_worker_is_one_line_with_worker_field_value_and_remedy(
    changes, message):
  with pytest.raises(UserError) as fault:
    listed_pool([{**SOLVER, "name": "other"}, {**SOLVER, **changes}])
  assert str(fault.value).startswith(f"worker 'solver': {message}")
  assert "\n" not in str(fault.value)


@pytest.mark.parametrize("field", ["api_key", "api_key_env"])
def test_a_key_in_the_list_is_refused_without_showing_it(field):
  with pytest.raises(UserError, match=f"worker 'solver': {field} must .*environment") as fault:
    listed_pool([{**SOLVER, field: "sk-canary"}])
  assert "canary" not in str(fault.value)


@pytest.mark.parametrize("missing", ["base_url", "model"])
def test_a_listed_worker_without_an_endpoint_or_a_model_is_refused(missing):
  values = {key: value for key, value in SOLVER.items() if key != missing}
  with pytest.raises(UserError, match=f"^worker 'solver': {missing} is missing: add it$"):
    listed_pool([values])


def test_a_listed_worker_without_a_name_is_called_by_its_place():
  with pytest.raises(UserError, match="^worker 1: name is missing: add it$"):
    listed_pool([SOLVER, {"base_url": URL, "model": "m"}])
  with pytest.raises(UserError, match="^worker 0: 'solver' must be a mapping of fields such as"):
    listed_pool(["solver"])


def test_two_listed_workers_of_one_name_are_refused():
  with pytest.raises(UserError, match="2 workers are called 'solver'"):
    listed_pool([SOLVER, SOLVER])
