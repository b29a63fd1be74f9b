import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from conductor_jax.workers.call import Usage
from conductor_jax.workers.pool import WorkerSpec
from conductor_jax.workers.response import read_answer, retry_after, split_thinking

SPEC = WorkerSpec("solver", "http://h/v1", "m", price_in=2.0, price_out=10.0)


@pytest.mark.parametrize(("content", "answer", "thinking"), [
    ("a <think>b</think> c <think>d</think> e", "a  c  e", "b\nd"),
    ("the prompt opened it</think> four", "four", "the prompt opened it"),
    ("<think>a <think>b</think> c</think> d", "d", "c\na <think>b"),
    ("<think>2 and", "", "2 and"),
    ("<think></think>four", "four", ""),
    (" x > y ", " x > y ", ""),
])
def test_thinking_is_cut_from_answers_and_kept(content, answer, thinking):
  assert split_thinking(content) == (answer, thinking)


@pytest.mark.parametrize("usage", [
    None, [], {}, {"prompt_tokens": None, "completion_tokens": "5"},
    {"prompt_tokens": -1, "completion_tokens": True},
    {"prompt_tokens": 10**400, "completion_tokens": 1.5}])
def test_token_counts_that_are_missing_are_estimated_from_the_text_and_marked(usage):
  message = {"content": "x" * 30, "reasoning": "y" * 11}
  payload = json.dumps({"choices": [{"message": message}], "usage": usage}).encode()
  answer = read_answer(payload, SPEC, 400)
  assert answer.usage == Usage(
      100, 11, pytest.approx(100 * 2e-6 + 11 * 10e-6), estimated=True)


@pytest.mark.parametrize(("usage", "prompt", "completion"), [
    ({"prompt_tokens": 7}, 7, 11), ({"completion_tokens": 5}, 100, 5)])
def test_what_is_reported_of_the_token_counts_is_kept(usage, prompt, completion):
  payload = json.dumps({"choices": [{"message": {"content": "x" * 41}}], "usage": usage}).encode()
  answer = read_answer(payload, SPEC, 400)
  assert answer.usage == Usage(
      prompt, completion, pytest.approx(prompt * 2e-6 + completion * 10e-6), estimated=True)


@pytest.mark.parametrize(("reported", "completion", "cached", "reasoning"), [
    ({"total_tokens": 150}, 50, 0, 0),
    ({"total_tokens": 400}, 300, 0, 250),  # reasoning in the total only
    ({"total_tokens": 400, "completion_tokens_details": {"reasoning_tokens": 250}}, 300, 0, 250),
    ({"total_tokens": 10}, 50, 0, 0),
    ({"prompt_tokens_details": {"cached_tokens": 60}}, 50, 60, 0),
    ({"prompt_tokens_details": {"cached_tokens": 999}}, 50, 100, 0),
    ({"prompt_tokens_details": None, "completion_tokens_details": []}, 50, 0, 0),
    ({"completion_tokens_details": {"reasoning_tokens": 999}}, 50, 0, 50),
    ({"completion_tokens_details": {"reasoning_tokens": True}}, 50, 0, 0),
])
def test_details_of_the_token_counts_are_parts_of_them(reported, completion, cached, reasoning):
  body = {"choices": [{"message": {"content": "4"}}],
          "usage": {"prompt_tokens": 100, "completion_tokens": 50, **reported}}
  usage = read_answer(json.dumps(body).encode(), SPEC, 0).usage
  assert usage == Usage(
      100, completion, pytest.approx(100 * 2e-6 + completion * 10e-6), cached, reasoning)


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
