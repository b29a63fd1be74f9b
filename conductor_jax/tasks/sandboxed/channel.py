"""Lines over the channel that a script in a sandbox shares with the parent, and values as texts.

A value comes out as it went in, and with nothing of the class of the program that made it: a list,
a tuple or a set says in JSON what it is.
"""

import json
import os

_CHANNEL = 3
_NAMED = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_unread = b""


class NotPlain(Exception):
  """A value that is not plain data."""


def send(line):
  """Sends one line."""
  data = line.encode("utf-8", "surrogatepass") + b"\n"
  while data:
    data = data[os.write(_CHANNEL, data):]


def receive():
  """The next line; the script ends where there is none."""
  global _unread
  while b"\n" not in _unread:
    data = os.read(_CHANNEL, 1 << 16)
    if not data:
      raise SystemExit(1)
    _unread += data
  line, _, _unread = _unread.partition(b"\n")
  return line.decode("utf-8", "surrogatepass")


def encode(value):
  """A value as a text, for `decode`.

  Raises:
    NotPlain: it is, or holds, an object of a class that is not one of Python's own.
  """
  return json.dumps(_tagged(value))


def decode(text):
  """The value that `encode` made a text of."""
  return _untagged(json.loads(text))


def plain(value):
  """A value in JSON's own types, where lists and tuples are the same, as benchmarks compare them.

  Raises:
    NotPlain: it is, or holds, something else.
  """
  value = _own(value)
  if isinstance(value, (list, tuple)):
    iterate = list.__iter__ if isinstance(value, list) else tuple.__iter__
    return [plain(item) for item in iterate(value)]
  if type(value) is dict:
    return {_key(key): plain(item) for key, item in value.items()}
  if value is None or type(value) in (bool, int, float, str):
    return value
  raise NotPlain(f"a {type(value).__name__}")


def _own(value):
  """A value of NumPy, or of a class that is derived from dict, in Python's own terms."""
  kind = type(value)
  if kind.__module__ == "numpy" and hasattr(value, "tolist"):
    return value.tolist()
  if isinstance(value, dict) and kind is not dict:  # a Counter, say
    return dict(dict.items(value))
  return value


def _key(key):
  if type(key) not in (str, int):
    raise NotPlain(f"a dict with a {type(key).__name__} as a key")
  return str(key)


def _tagged(value):
  value = _own(value)
  kind = type(value)
  if value is None or kind in (bool, int, float, str):
    return value
  if kind in _NAMED.values():
    return {kind.__name__: [_tagged(item) for item in value]}
  if isinstance(value, tuple):  # a named one
    return {"tuple": [_tagged(item) for item in tuple.__iter__(value)]}
  if kind is dict:
    return {"dict": [[_tagged(key), _tagged(item)] for key, item in value.items()]}
  if kind is bytes:
    return {"bytes": value.decode("latin-1")}
  if kind is complex:
    return {"complex": [value.real, value.imag]}
  raise NotPlain(f"a {kind.__name__}")


def _untagged(value):
  if not isinstance(value, dict):
    return value
  (name, content), = value.items()
  if name == "dict":
    return {_untagged(key): _untagged(item) for key, item in content}
  if name == "bytes":
    return content.encode("latin-1")
  if name == "complex":
    return complex(*content)
  return _NAMED[name](_untagged(item) for item in content)
