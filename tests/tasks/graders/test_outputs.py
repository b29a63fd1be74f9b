"""Printed texts and returned values, against what is expected; long ones must not take long."""

import json
import math

import pytest

from conductor_jax.tasks.graders.outputs import same_output, same_value


@pytest.mark.parametrize("printed, expected", [
    ("5\n", "5"),
    ("  5  \n\n", "5\n"),
    ("\n1 2\n3 \n", "1 2\n3"),
    ("1\r\n2\r\n", "1\n2\n"),
    ("", "\n"),
    ("1.0 2.50", "1 2.5"),
    ("1e3", "1000"),
    ("-0", "0"),
    ("1\t 2", "1 2"),
    ("nan", "nan"),
    ("x  y", "x  y"),
    ("1e999999999", "1e999999999"),
    ("0.1", "0.10000000000000000000"),
])
def test_outputs_that_are_the_same(printed, expected):
  assert same_output(printed, expected)


@pytest.mark.parametrize("printed, expected", [
    ("", "5"),
    ("5", ""),
    ("5\n6", "5"),
    ("5\n\n6", "5\n6"),
    ("5 6", "56"),
    ("x  y", "x y"),
    ("1 a", "1.0 a"),
    ("yes", "Yes"),
    ("NaN", "nan"),
    ("nan 1.0", "nan 1"),
    ("snan", "1"),
    ("1.0000001", "1"),
    ("0.30000000000000004", "0.3"),
    ("1e999999999", "2e999999999"),
    ("1e99999999999999999999", "1"),
    ("True", "1"),
    ("0x10", "16"),
    ("1,000", "1000"),
])
def test_outputs_that_are_not(printed, expected):
  assert not same_output(printed, expected)


def test_a_hundred_thousand_lines_of_numbers_written_otherwise():
  ours = "\n".join(f"{number}.0 {number}" for number in range(100_000))
  theirs = "\n".join(f"{number} {number}.00" for number in range(100_000))
  assert same_output(ours, theirs)
  assert not same_output(ours, theirs.replace("99999 ", "99998 "))


def test_a_line_of_a_million_digits():
  assert same_output(f"{'9' * 1_000_000}.0", "9" * 1_000_000)
  assert not same_output(f"{'9' * 1_000_000}.1", "9" * 1_000_000)


@pytest.mark.parametrize("returned, expected", [
    (1, 1.0), (1.0, 1), (0.1 + 0.2, 0.30000000000000004), (True, True), (None, None), ("a", "a"),
    ([1, [2, "x"]], [1.0, [2, "x"]]), ({"a": [True]}, {"a": [True]}), ({}, {}), ([], []),
    (10**30, 10**30), (math.inf, math.inf), (math.nan, math.nan), ([math.nan], [math.nan]),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
])
def test_values_that_are_the_same(returned, expected):
  assert same_value(returned, expected)


@pytest.mark.parametrize("returned, expected", [
    (True, 1), (1, True), (False, 0), (0.0, False), (None, 0), (None, False), ("1", 1), (1, "1"),
    (0.1 + 0.2, 0.3), ([1], [1, 2]), ([1, 2], [2, 1]), ([True], [1]), ({"a": 1}, {"a": True}),
    ({"a": 1}, {"a": 1, "b": 2}), ({"a": 1}, [["a", 1]]), ([], {}), ("", []), ([], None),
    (10**30, 10**30 + 1), (math.nan, 0), ("a", "A"), ("a", "a "),
])
def test_values_that_are_not(returned, expected):
  assert not same_value(returned, expected)


def test_values_may_be_nested_too_deep():
  deep = []
  for _ in range(100_000):
    deep = [deep]
  with pytest.raises(RecursionError):
    same_value(deep, deep)
  assert same_value(json.loads("[" * 300 + "]" * 300), json.loads("[" * 300 + "]" * 300))
