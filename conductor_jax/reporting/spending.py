"""What the workers of a run were paid, as a table of a page."""

from collections.abc import Mapping
from html import escape
from typing import Any

from conductor_jax.reporting.page import table


def spending_table(spending: Mapping[str, Mapping[str, Any]]) -> str:
  """Requests, tokens and dollars of each worker, what may have been billed apart.

  Args:
    spending: the fields of each worker's `Spending`, by its name.

  Returns:
    HTML, "" where nobody was asked.
  """
  rows = []
  for name, spent in sorted(spending.items(), key=lambda item: -item[1]["cost"]):
    rows.append([f"<th scope=row>{escape(name)}</th>"] + [
        f"<td>{text}</td>" for text in (
            f"{spent['calls']:,}", f"{spent['tokens']:,}", f"{spent['cost']:,.4f}",
            f"{spent['estimated']:,}", f"{spent['possibly_billed']:,}",
            f"{spent['possible_cost']:,.4f}")])
  if not rows:
    return ""
  total = sum(spent["cost"] for spent in spending.values())
  return (f"<p>${total:,.4f} in all. A request without an answer may have been billed all the "
          "same: what it may have cost at most stands apart.</p>") + table(
      ["", "requests", "tokens", "dollars", "requests with estimated tokens",
       "requests possibly billed", "dollars of these, at most"], rows)
