"""Worker server factories that a child process can import."""

import sys

import pytest

FACTORIES = '''
import sys

def echo(prefix):
  def answer(messages, seed):
    return f"{prefix} {seed} {messages[-1]['content']}"
  return {"echo": answer}

def mixed():
  def fail(messages, seed):
    raise RuntimeError("out of order")
  return {
      "modules": lambda messages, seed: " ".join(sorted(sys.modules)),
      "long": lambda messages, seed: "one  two\\nthree four",
      "fail": fail}

def noisy():
  print("a factory may print")
  return {}

def broken():
  raise ValueError("no such almanac")

def crash():
  import os
  os._exit(7)
'''


@pytest.fixture(scope="module")
def factories(tmp_path_factory):
  folder = tmp_path_factory.mktemp("factories")
  (folder / "server_test_factories.py").write_text(FACTORIES)
  sys.path.insert(0, str(folder))
  yield
  sys.path.remove(str(folder))
