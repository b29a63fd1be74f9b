"""Checks a function that runs in another sandbox (HumanEval).

    check.py PROMPT CHECK ENTRY_POINT

Every call that `check` makes of its candidate goes out by the channel, as "call" and its
arguments, and what comes back is plain data. At the end it says "passed", "failed" and at what, or
"faulty" and why where the check cannot be used, whatever the program.
"""

import builtins
import sys

sys.path.insert(1, __file__.rpartition("/")[0])
import channel  # noqa: E402
from statements import last_line, said, statement_at  # noqa: E402


class Faulty(BaseException):
  """Why the check cannot be used; no check expects it."""


_NOTHING = object()  # where a call has not returned


def _returned(line):
  """What a call returned; raises what it raised."""
  kind, *content = channel.decode(line)
  if kind == "returned":
    return content[0]
  name, text = content
  known = getattr(builtins, name, None)
  if isinstance(known, type) and issubclass(known, Exception):
    try:
      fault = known(text)
    except TypeError:  # it wants more, as UnicodeDecodeError does
      fault = None
    if fault is not None:
      raise fault
  raise Exception(f"{name}: {text}")


def _place(fault, path):
  """The statement of the check that an exception comes from, and the exception."""
  number = last_line(fault.__traceback__, path)
  if number is None:
    return said(fault)
  with open(path, encoding="utf-8") as file:
    statement = statement_at(file.read(), number)
  if isinstance(fault, AssertionError) and not str(fault):
    return statement
  return f"{statement} ({said(fault)})"


def _load(*paths):
  names = {"__name__": "tests"}
  for path in paths:
    with open(path, "rb") as file:
      source = file.read()
    try:
      exec(compile(source, path, "exec", dont_inherit=True), names)
    except Exception as fault:
      raise Faulty(f"{path} does not load: {said(fault)}") from fault
  return names


def _outcome(prompt, path, entry_point):
  names, returned = _load(prompt, path), []

  def candidate(*arguments, **options):
    try:
      call = channel.encode((list(arguments), options))
    except channel.NotPlain as fault:
      raise Faulty(f"it calls the function with {fault}") from fault
    returned[:] = [_NOTHING]
    channel.send(f"call {call}")
    returned[:] = [_returned(channel.receive())]
    return returned[0]

  names[entry_point] = candidate
  try:
    names["check"](candidate)
  except Exception as fault:
    if not returned:
      raise Faulty(f"it fails before it calls the function: {_place(fault, path)}") from fault
    shown = "" if returned[0] is _NOTHING else f", where {repr(returned[0])[:100]} was returned"
    return f"failed {_place(fault, path)}{shown}"
  if not returned:
    raise Faulty("it never calls the function")
  return "passed"


def main():
  sys.set_int_max_str_digits(0)  # long numbers are to come through
  try:
    outcome = _outcome(*sys.argv[1:])
  except Faulty as fault:
    outcome = f"faulty {fault}"
  channel.send(" ".join(outcome.split()))


main()
