"""Runs a program that reads standard input, with what LiveCodeBench has there for it.

    script.py PROGRAM
"""

import sys

sys.path.insert(1, __file__.rpartition("/")[0])
import offered  # noqa: E402


def _load(path):
  """Makes `__main__` the program's module, and returns its code."""
  with open(path, "rb") as file:
    source = file.read()
  sys.argv = [path]
  sys.path[:2] = [""]
  code = compile(source, path, "exec", dont_inherit=True)
  offered.allow_deep_calls()
  names, theirs = vars(sys.modules["__main__"]), offered.offered(source)
  names.clear()
  names.update(theirs, __name__="__main__", __file__=path)
  return code


exec(_load(sys.argv[1]))
