"""results.md: the tables of an evaluation, to be pasted where a paper's results are kept."""

from collections.abc import Mapping, Sequence
from typing import Any

from conductor_jax.reporting.evaluation_table import (
    Table,
    accuracy_table,
    against_table,
    pass_table,
    plans_table,
    rounds_table,
    use_table,
)

INTERVALS = (
    "± is the longer arm of the 95 % interval of a bootstrap over questions, each with all its "
    "repeats. Where a strategy has every question right, or every one wrong, it is that of a "
    "proportion under Jeffreys' prior.")
PAIRED = (
    "Percentage points, over the questions that both have a verdict on, with the 95 % interval of "
    "a bootstrap that draws each question for both.")
USE = (
    "Means per answer, over answers with a verdict. Tokens, dollars and seconds are the workers': "
    "those of the policy that writes the plan are not in them. Latency is the median along the "
    "longest way through the plan, without waiting for a turn.")
ROUNDS = (
    "Accuracy if the conductor were stopped after a round, and of the first answers that are right "
    "or wrong, how many it does not keep but writes another plan for.")


def markdown(results: Mapping[str, Any], *, name: str, notes: Sequence[str]) -> str:
  """The document.

  Args:
    results: of the evaluation.
    name: of the work directory.
    notes: what a reader must know beside the numbers, in sentences.
  """
  parts = [f"# Evaluation: {_escaped(name)}", *map(_escaped, notes), _accuracy_text(results),
           markdown_table(accuracy_table(results))]
  if len(results["strategies"]) > 1:
    parts += ["## Against the others", PAIRED, markdown_table(against_table(results))]
  parts += ["## What an answer takes", USE + _over(results), markdown_table(use_table(results))]
  rounds = rounds_table(results)
  if rounds:
    parts += ["## Round by round", ROUNDS + _over(results), markdown_table(rounds)]
  passes = pass_table(results)
  if passes:
    parts += ["## One of k answers right", markdown_table(passes)]
  parts += ["## Plans and verdicts", markdown_table(plans_table(results))]
  return "\n\n".join(parts) + "\n"


def _accuracy_text(results: Mapping[str, Any]) -> str:
  mean = " The mean is over benchmarks." if len(results["benchmarks"]) > 1 else ""
  return f"Accuracy in %, with the number of questions.{mean} {INTERVALS}"


def _over(results: Mapping[str, Any]) -> str:
  return (" Numbers are means over benchmarks." if len(results["benchmarks"]) > 1 else "")


def markdown_table(table: Table) -> str:
  """A table in Markdown, the best of each column bold."""
  lines = ["| " + " | ".join(map(_escaped, table.headings)) + " |",
           "|---" + "|---:" * (len(table.headings) - 1) + "|"]
  for number, row in enumerate(table.rows):
    cells = [f"**{_escaped(cell)}**" if (number, column) in table.best else _escaped(cell)
             for column, cell in enumerate(row)]
    lines.append("| " + " | ".join(cells) + " |")
  return "\n".join(lines)


def _escaped(text: str) -> str:
  """Text as Markdown shows it as it is, in one line."""
  text = " ".join(text.split())
  return "".join(f"\\{char}" if char in "\\|`*_<>[#" else char for char in text)
