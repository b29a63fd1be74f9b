"""Serves a function of a program: calls come by the channel, and results go back.

    candidate.py PROGRAM FUNCTION

The tests are in another sandbox: this one sees the arguments of calls, and nothing else of them.
"""

import sys
import types

sys.path.insert(1, __file__.rpartition("/")[0])
import channel  # noqa: E402


def main():
  sys.set_int_max_str_digits(0)  # long numbers are to come through
  path, function = sys.argv[1:]
  with open(path, "rb") as file:
    source = file.read()
  module = sys.modules["solution"] = types.ModuleType("solution")
  exec(compile(source, path, "exec", dont_inherit=True), vars(module))
  if function not in vars(module):
    raise SystemExit(f"the program has no function {function}")
  answer = "ready"
  while True:
    channel.send(answer)
    call = channel.receive()
    if not call:
      return  # there are no more
    arguments, options = channel.decode(call)
    try:
      result = vars(module)[function](*arguments, **options)
    except Exception as fault:
      answer = channel.encode(("raised", type(fault).__name__, str(fault)))
      continue
    try:
      answer = channel.encode(("returned", result))
    except channel.NotPlain as fault:
      raise SystemExit(f"{function} returns {fault}, which is no plain data") from None


main()
