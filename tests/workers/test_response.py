import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from conductor_jax.workers.call import Usage
from conductor_jax.workers.pool import WorkerSpec
from conductor_jax.workers.response import read_answer, retry_after, split_thinking


@pytest.mark.parametrize(("content", "answer"), [
    ("a <think>b</think> c <think>d</think> e", "a  c  e"),
    ("the prompt opened it</think> four", "four"),
    ("<think>a <think>b</think> c</think> d", "d"),
    ("x > y", "x > y"),
])
def test_thinking_is_cut_from_answers(content, answer):
  assert split_thinking(content) == answer


@pytest.mark.parametrize("usage", [
    None, [], {}, {"prompt_tokens": None, "completion_tokens": "5"},
    {"prompt_tokens": -1, "completion_tokens": True},
    {"prompt_tokens": 10**400, "completion_tokens": 1.5}])
def test_token_counts_that_are_missing_are_estimated_from_the_text(usage):
  payload = json.dumps({"choices": [{"message": {"content": "x" * 41}}], "usage": usage}).encode()
  spec = WorkerSpec("solver", "http://h/v1", "m", price_in=2.0, price_out=10.0)
  answer = read_answer(payload, spec, 400)
  assert answer.usage == Usage(100, 11, pytest.approx(100 * 2e-6 + 11 * 10e-6))


def http_date(seconds):
  return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(("headers", "seconds"), [
    ({}, None), ({"Retry-After": "2"}, 2.0), ({"Retry-After": "0.5"}, 0.5),
    ({"retry-after-ms": "250", "Retry-After": "2"}, 0.25),
    ({"retry-after-ms": "soon", "Retry-After": "2"}, 2.0),
    ({"Retry-After": "-3"}, None), ({"Retry-After": "0"}, None), ({"Retry-After": "nan"}, None),
    ({"Retry-After": "1e400"}, float("inf")), ({"Retry-After": "soon"}, None),
    ({"Retry-After": ""}, None), ({"Retry-After": "Fri, 99 Foo 2025 00:00:00 GMT"}, None),
    ({"Retry-After": "Mon, 01 Jan 99999999999 00:00:00 GMT"}, None),
])
def test_retry_after_is_seconds_or_a_date_or_nothing(headers, seconds):
  assert retry_after(headers) == seconds


def test_a_date_to_retry_after_is_seconds_from_now_and_nothing_once_it_is_past():
  assert retry_after({"Retry-After": http_date(3600)}) == pytest.approx(3600, abs=60)
  assert retry_after({"Retry-After": http_date(-60)}) is None
