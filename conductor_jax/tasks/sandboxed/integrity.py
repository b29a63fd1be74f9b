"""Tells whether functions and classes have been exchanged for others.

A place is a label, the dictionary of a module or a class, and whether its private names count.
"""

import builtins
import sys
from operator import is_

# What a program does to the builtins must not reach this file.
__builtins__ = dict(vars(builtins))

# Modules in which honest programs exchange functions.
_OPEN = ("__main__", "__test__", "sys", "warnings")
_HEAP_TYPE = 1 << 9  # of a class that can be changed


def places_of(names, private):
  """Modules that are loaded, and the classes of their packages that are in them."""
  places = {}
  for name in names:
    places[name] = name, vars(sys.modules[name]), private
    for member in list(vars(sys.modules[name]).values()):
      if (isinstance(member, type) and member.__flags__ & _HEAP_TYPE
          and str(member.__module__).partition(".")[0] == name.partition(".")[0]):
        label = f"{member.__module__}.{member.__qualname__}"
        places[label] = label, vars(member), private
  return list(places.values())


def library(imported):
  """What tests may use of Python's library, and of the modules that they import."""
  packages = {name.partition(".")[0] for name in imported}
  names = [name for name, module in list(sys.modules.items()) if module is not None
           and name.partition(".")[0] not in ("unittest", "builtins", *_OPEN)]
  deep = [name for name in names if name in imported or name.endswith("testing")
          and name.partition(".")[0] in packages]
  return places_of(deep, private=False) + [
      (name, vars(sys.modules[name]), False) for name in names
      if name not in deep and name.partition(".")[0] in sys.stdlib_module_names]


def hold(places):
  """What is in places, for `change`."""
  return [(tuple(members), tuple(members.values())) for _, members, _ in places]


def change(places, held):
  """The first function or class that is not what it was, None if all are.

  One that is new counts where it may come before another: in a class, or with a builtin's name.
  """
  for (label, members, private), (names, values) in zip(places, held, strict=True):
    if len(members) == len(names) and all(map(is_, members, names)) and all(
        map(is_, members.values(), values)):
      continue
    before = dict(zip(names, values, strict=True))
    for name in (*before, *members):
      was, is_now = before.get(name), members.get(name)
      if was is not is_now and type(name) is str and name != "_" and (
          private or name[:1] != "_") and (
              _is_code(was) or _is_code(is_now) and name not in before and (
                  type(members) is not dict or name in __builtins__)):
        return f"{label}.{name}"
  return None


def _is_code(member):
  return callable(member) or isinstance(member, (property, classmethod, staticmethod))
