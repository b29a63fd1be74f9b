"""Tests of coding tasks, as texts and back."""

import json

import pytest

from conductor_jax.tasks.code_tests import (
    CheckTests,
    FunctionTests,
    StdinTests,
    UnitTests,
    read_tests,
)


@pytest.mark.parametrize("tests", [
    StdinTests(("1\n", ""), ("2\n", "3")),
    FunctionTests("f", ([1, [2.5, None]], []), (True, {"a": [1]})),
    CheckTests("def f():\n", "def check(candidate):\n  assert candidate() == 1\n", "f"),
    UnitTests("def f():\n", "class A(unittest.TestCase): pass", "f"),
])
def test_tests_survive_a_round_trip(tests):
  assert read_tests(tests.to_reference()) == tests


def test_long_tests_take_less_room_than_they_are_long():
  tests = StdinTests(tuple(map(str, range(100_000))), ("\udc80é\n",) * 100_000)
  reference = tests.to_reference()
  assert len(reference) < 400_000
  assert read_tests(reference) == tests
  for cut in (reference[:-5], reference[:1000], reference[:5], reference[:1000] + "§"):
    with pytest.raises(ValueError, match="^the tests are not JSON: "):
      read_tests(cut)


@pytest.mark.parametrize("reference, said", [
    ("", "the tests are not JSON"),
    ("print(1)", "the tests are not JSON"),
    ("[" * 100_000, "the tests are not JSON"),
    ("5", "in no form that is known: '5'"),
    ("[]", "in no form that is known"),
    ('{"inputs": ["1"]}', "in no form that is known"),
    ('{"inputs": ["1"], "outputs": ["1"], "more": 1}', "in no form that is known"),
    ('{"inputs": [], "outputs": []}', "there are no tests: at least one is needed"),
    ('{"inputs": "12", "outputs": "12"}', "inputs and outputs must be lists, got '12'"),
    ('{"inputs": null, "outputs": null}', "must be lists, got None"),
    ('{"inputs": ["1", "2"], "outputs": ["1"]}', "2 inputs and 1 outputs: they must match"),
    ('{"inputs": [1], "outputs": ["1"]}', "the tests must be texts, got 1"),
    ('{"inputs": ["1"], "outputs": [null]}', "the tests must be texts, got None"),
    ('{"function": "f", "arguments": [], "outputs": []}', "there are no tests"),
    ('{"function": "f", "arguments": [1], "outputs": [1]}', "must be a list, got 1"),
    ('{"function": "f", "arguments": [[]], "outputs": "1"}', "must be lists, got '1'"),
    ('{"function": "f(1)", "arguments": [[]], "outputs": [1]}', "an identifier, got 'f(1)'"),
    ('{"function": "", "arguments": [[]], "outputs": [1]}', "an identifier, got ''"),
    ('{"function": 5, "arguments": [[]], "outputs": [1]}', "an identifier, got 5"),
    (json.dumps({"prompt": "", "check": "", "entry_point": "f"}), "define check(candidate)"),
    (json.dumps({"prompt": "", "check": 5, "entry_point": "f"}), "must be texts, got 5"),
    (json.dumps({"prompt": 5, "check": "def check(c): 1", "entry_point": "f"}), "got 5"),
    (json.dumps({"prompt": "", "check": "def check(c): 1", "entry_point": "f g"}), "identifier"),
    (json.dumps({"code_prompt": "", "source": "", "entry_point": "f"}), "a unittest.TestCase"),
    (json.dumps({"code_prompt": "", "source": None, "entry_point": "f"}), "got None"),
])
def test_what_holds_no_tests_is_an_error(reference, said):
  with pytest.raises(ValueError, match="tests|inputs|arguments|function") as raised:
    read_tests(reference)
  assert said in str(raised.value)
  assert "\n" not in str(raised.value)
