"""Says where in a source an exception comes from, and what it says."""

import ast
import builtins

# What a program does to the builtins must not reach this file.
__builtins__ = dict(vars(builtins))


def said(fault):
  """An exception in a few words."""
  try:
    text = str(fault)
  except BaseException:
    text = ""
  return f"{type(fault).__name__}: {text}" if text else type(fault).__name__


def last_line(trace, path):
  """The line of a file, counted from one, that a traceback comes by last, None if it never does."""
  number = None
  while trace is not None:
    if trace.tb_frame.f_code.co_filename == path:
      number = trace.tb_lineno
    trace = trace.tb_next
  return number


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
