import io
import re

from rich.console import Console

from conductor_jax.evaluation.item import Item, Key
from conductor_jax.reporting.evaluation_table import Table
from conductor_jax.reporting.progress import Terminal
from conductor_jax.reporting.scoreboard import Scoreboard, text_lines


def item(strategy, number, right, repeat=0):
  return Item(
      key=Key(strategy, "gsm8k", f"t{number}", repeat), variant="", question="h", plans=(None,),
      rights=(right,), right=right, fault=None, extracted=None, tokens=0, cost=0.0, latency=None)


def shown(totals, before, *batches, terminal=False, live=lambda: "3 in flight"):
  stream = io.StringIO()
  console = Console(file=stream, force_terminal=terminal, width=300 if terminal else 40)
  with Scoreboard(Terminal(console), totals, before, live) as board:
    for batch in batches:
      board.add(batch)
  return stream.getvalue()


def test_a_pipe_gets_a_line_for_each_tenth_with_the_accuracies_so_far():
  batches = [[item("a", i, True)] for i in range(20)]
  lines = shown({"a": 20}, [], *batches).splitlines()
  assert len(lines) == 10
  # 4 of 4 right: the lower end of Beta(4.5, 0.5) is 0.56.
  assert re.fullmatch(r"  4/20  a 100\.0% ± 4[34]\.\d  3 in flight", lines[1])
  assert lines[-1].startswith("  20/20  a 100.0% ± ")


def test_what_earlier_sessions_have_finished_counts_and_has_no_lines():
  before = [item("a", i, i % 2 == 0) for i in range(10)]
  lines = shown({"a": 20}, before, [item("a", 10, True), item("a", 11, False)]).splitlines()
  assert len(lines) == 1 and lines[0].startswith("  12/20  a 50.0% ± ")
  assert shown({"a": 20}, before) == ""


def test_a_question_counts_once_however_often_it_was_answered():
  batch = [item("a", 0, True, repeat) for repeat in range(9)] + [item("a", 1, False)]
  assert "a 50.0% ± " in shown({"a": 10}, [], batch)


def test_what_has_no_verdict_is_told_apart():
  line = shown({"a": 2, "b": 2}, [], [item("a", 0, True), item("a", 1, None), item("b", 0, None)])
  assert "a 100.0% ± " in line and "(1 rejected)  b no verdict (1 rejected)" in line


def test_a_line_has_room_for_four_strategies():
  totals = {name: 1 for name in "abcdef"}
  line = shown(totals, [], [item(name, 0, True) for name in "abcdef"])
  assert "d 100.0%" in line and "e 100.0%" not in line


def test_a_terminal_gets_a_bar_for_each_strategy_and_no_lines():
  text = shown({"first": 2, "second": 2}, [item("first", 0, True)], [item("first", 1, True)],
               terminal=True)
  assert "first" in text and "second" in text and "2/2" in text and "2/4" in text
  assert "3 in flight" in text and "100.0% ±" in text
  assert "  2/4  first" not in text


def test_the_lines_of_a_table_are_aligned():
  table = Table(("", "gsm8k", "mean"), (("a", "5.0 ± 1.0", "–"), ("longer", "–", "100.0 ± 2.5")))
  assert text_lines(table) == [
      "            gsm8k         mean", "a       5.0 ± 1.0            –",
      "longer          –  100.0 ± 2.5"]
