"""Statements as they are shown to people."""

import textwrap

import pytest

from conductor_jax.tasks.sandboxed.statements import statement_at

_SOURCE = textwrap.dedent("""
    import os
    def check(candidate):
        assert candidate([
            1,
            2]) == 3
        with open(
            "a") as file:
            pass
        for number in range(3): assert candidate(number)
        if True:
            try:
                x = 1
            except ValueError:
                y = (2,
                     3)
""").strip()


@pytest.mark.parametrize("number, expected", [
    (1, "import os"),
    (2, "def check(candidate):"),
    (3, "assert candidate([ 1, 2]) == 3"),
    (4, "assert candidate([ 1, 2]) == 3"),
    (6, 'with open( "a") as file:'),
    (9, "for number in range(3): assert candidate(number)"),
    (10, "if True:"),
    (11, "try:"),
    (12, "x = 1"),
    (14, "y = (2, 3)"),
    (15, "y = (2, 3)"),
])
def test_the_statement_at_a_line(number, expected):
  assert statement_at(_SOURCE, number) == expected
