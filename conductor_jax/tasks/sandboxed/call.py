"""Calls a function of a program: arguments as JSON from standard input, its result to the channel.

    call.py PROGRAM FUNCTION

A function may be a method of a class `Solution`.
"""

import json
import sys
import types

sys.path.insert(1, __file__.rpartition("/")[0])
import channel  # noqa: E402
import offered  # noqa: E402


def main():
  arguments = json.load(sys.stdin)
  path, function = sys.argv[1:]
  with open(path, "rb") as file:
    source = file.read()
  module = sys.modules["solution"] = types.ModuleType("solution")
  names = vars(module)
  names.update(offered.offered(source), __file__=path)
  offered.allow_deep_calls()
  exec(compile(source, path, "exec", dont_inherit=True), names)
  solution = names.get("Solution")
  call = getattr(solution(), function) if hasattr(solution, function) else names.get(function)
  if call is None:
    raise SystemExit(f"the program has no function {function}")
  result = call(*arguments)
  try:
    text = json.dumps(channel.plain(result))
  except channel.NotPlain as fault:
    raise SystemExit(f"{function} returns {fault}, which is no plain data") from None
  channel.send(text)


main()
