"""Shows the statement of a source that a line belongs to."""

import ast
import builtins

# What a program does to the builtins must not reach this file.
__builtins__ = dict(vars(builtins))


def statement_at(source, number):
  """The statement that a line, counted from one, belongs to, on one line; the head of a block."""
  lines = source.split("\n")
  first = last = number
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.stmt) and node.lineno <= number <= node.end_lineno:
      first = node.lineno  # those further in come later
      body = getattr(node, "body", None)
      last = max(first, body[0].lineno - 1) if body else node.end_lineno
  return " ".join(" ".join(lines[first - 1:last]).split())
