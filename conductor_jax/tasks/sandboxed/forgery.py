"""Tells values that would make comparisons come out as they like.

What a program hands to its tests may be plain data, and of the classes of libraries. Of other
classes it may be where the task itself has them, or where they have no methods but those that make
and show their objects. None of these may bring operators of its own.
"""

import builtins
import dataclasses
import functools
import sys
import types
from collections import defaultdict, deque
from unittest import mock

# What a program does to the builtins must not reach this file.
__builtins__ = dict(vars(builtins))

_MOST = 1_000_000  # values, beside plain ones, that a result may hold
_DEPTH = 2  # steps that are taken within the objects of libraries


def _ids(*kinds):
  """Classes are told by identity: one of a program's may say that it equals another."""
  return frozenset(map(id, kinds))


_PLAIN = _ids(bool, int, float, complex, str, bytes, bytearray, range, type(None))
_SEQUENCES = _ids(list, tuple, set, frozenset, deque)
_VIEWS = _ids(type({}.keys()), type({}.values()), type({}.items()))
_BOUND = _ids(types.BuiltinFunctionType, types.MethodType)
_UNCOMPARED = _SEQUENCES | _VIEWS | _BOUND | _ids(
    dict, type(mock.call), types.FunctionType, types.ModuleType)
# Read past whatever a class or its class says of itself.
_mro, _members, _flags, _name = (
    type.__dict__[name].__get__ for name in ("__mro__", "__dict__", "__flags__", "__name__"))
_attributes, _subclasses = object.__getattribute__, type.__subclasses__
_HEAP_TYPE = 1 << 9  # of a class that can be changed
_OF_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.GetSetDescriptorType,
         types.MemberDescriptorType)

# By these a value decides what a comparison of it comes to.
OPERATORS = frozenset(f"__{name}__" for name in (
    "eq ne lt le gt ge contains class getattribute abs round add radd sub rsub mul rmul truediv "
    "rtruediv floordiv rfloordiv mod rmod pow rpow and rand or ror xor rxor array_ufunc "
    "array_function").split())
# These make and show objects.
_HARMLESS = frozenset(f"__{name}__" for name in (
    "init new post_init init_subclass class_getitem set_name repr str hash reduce reduce_ex "
    "getstate setstate getnewargs getnewargs_ex copy deepcopy del setattr delattr replace").split())
_EQUALITIES = ("__eq__", "__ne__")
_MADE_BY_MOCKS = ("_mock_return_value", "_mock_side_effect", "_mock_wraps")
_UNLIKELY = (object(), 7.391e77, "\0nothing", [b"\0nothing"], (b"\0nothing",), {"\0nothing": 1})


def inspector(is_trusted, named, mocks):
  """Two functions that say what is wrong, or None: with a value, and with a class's operators.

  Classes that there are already are right as long as they are what they are.

  Args:
    is_trusted: whether a code object is not the program's.
    named: names of the classes that the task itself has.
    mocks: id -> mock, of those that the program has made; more may be added.
  """
  libraries, modules = _loaded_classes(), {*sys.modules, "__main__", "__test__"}

  def of_kind(kind, operators_only=False):
    for base in _mro(kind):
      if _flags(base) & _HEAP_TYPE:
        was = libraries.get(id(base), (base, {}))[1]
        only = operators_only or not was and comes_with_library(base)
        for name, member in _members(base).items():
          if was.get(name) is not member and (name in OPERATORS or not only) and is_forged(
              base, name, member):
            return f"a {_name(kind)} brings {name} of its own"
    return None

  def comes_with_library(base):
    """Whether a class is one of a module that the program has imported since."""
    name = str(_members(base).get("__module__"))
    return name not in modules and name in sys.modules and (
        vars(sys.modules[name]).get(_name(base)) is base) and all(
            is_trusted(member.__code__) for member in _members(base).values()
            if type(member) is types.FunctionType)

  def is_forged(base, name, member):
    if name in OPERATORS:
      return member is not None and not is_right(base, name, member)
    if (name in _HARMLESS or name[:1] == "_" != name[1:2] or _name(base) in named
        or issubclass(base, (BaseException, mock.NonCallableMock))):
      return False
    if type(member) is property:
      return not is_right(base, name, member.fget)
    if type(member) in (classmethod, staticmethod):
      member = member.__func__
    return callable(member) and not is_right(base, name, member)

  def is_right(base, name, member):
    if type(member) is types.FunctionType:
      if name in _EQUALITIES and issubclass(base, mock.NonCallableMock):
        return False
      return is_trusted(member.__code__) or _is_of_dataclass(base, name, member)
    if type(member) in _OF_C:
      return member.__objclass__ is base or member is object.__ne__ and name == "__ne__"
    if type(member) is mock.MagicProxy:
      return True
    if not (isinstance(member, mock.NonCallableMock) and issubclass(base, mock.NonCallableMock)):
      return False
    own = _own(member)
    return (
        name not in _EQUALITIES or own.get("_mock_return_value") is mock.DEFAULT
        and is_trusted(own.get("_mock_side_effect").__code__))

  def is_suspect(member, also_of_c):
    if type(member) is types.MethodType:
      member = member.__func__
    if type(member) is types.FunctionType:
      return not is_trusted(member.__code__)
    return also_of_c and isinstance(member, (type, types.BuiltinFunctionType, functools.partial))

  def of_value(value, known):
    kind = type(value)
    if id(kind) not in known:
      known[id(kind)] = kind, of_kind(kind)
    fault = known[id(kind)][1]
    if fault or id(kind) in _UNCOMPARED:
      return fault
    if issubclass(kind, mock.NonCallableMock):
      return "it hands over a mock of its own" if id(value) in mocks else None
    is_own = kind is types.SimpleNamespace or not is_of_library(kind)
    for name, member in _own(value).items():
      if type(name) is str and name[:2] != "__" and is_suspect(member, is_own) and (
          is_own or any(name in _members(base) for base in _mro(kind))):
        return f"a {_name(kind)} brings {name} of its own"
    for other in _UNLIKELY:
      try:
        equal = value == other
      except Exception:
        continue
      if equal is True:
        return f"a {_name(kind)} equals whatever it is compared with"
    return None

  def is_of_library(kind):
    return id(kind) in libraries or comes_with_library(kind)

  def of_all(value):
    left, seen, known = deque([(value, 0)]), {}, {}
    while left:
      one, depth = left.popleft()
      if id(one) in seen:
        continue
      if len(seen) > _MOST:
        return "a result holds more than can be looked at"
      seen[id(one)] = one
      try:
        if isinstance(one, type):  # it may well have methods if it is derived from a library's
          found = of_kind(one, any(id(base) in libraries for base in _mro(one)[:-1]))
          parts = ()
        else:
          found, parts = of_value(one, known), _parts(one)
      except Exception as refused:
        found = f"a {_name(type(one))} cannot be looked at ({_name(type(refused))})"
      if found:
        return found
      if id(type(one)) not in _UNCOMPARED and is_of_library(type(one)):
        depth += 1
      if depth <= _DEPTH:
        left.extend((part, depth) for part in parts if id(type(part)) not in _PLAIN)
    return None

  return of_all, lambda kind: of_kind(kind, operators_only=True)


def _loaded_classes():
  """Id -> class and what it has, of all classes that can be changed."""
  found, left = {}, [object]
  while left:
    for kind in _subclasses(left.pop()):
      if id(kind) not in found:
        found[id(kind)] = kind, dict(_members(kind))
        left.append(kind)
  return found


def _is_of_dataclass(base, name, member):
  """Whether a function is what `dataclass` makes: it compares fields, which are looked at, too."""
  fields = _members(base).get("__dataclass_fields__")
  if type(fields) is not dict:
    return False
  twin = vars(dataclasses.make_dataclass("Twin", [
      name for name, field in fields.items()
      if field.compare and field._field_type is dataclasses._FIELD], order=True)).get(name)
  return twin is not None and all(
      getattr(member.__code__, part) == getattr(twin.__code__, part)
      for part in ("co_code", "co_consts", "co_names"))


def _own(value):
  """The attributes of a value itself."""
  try:
    own = _attributes(value, "__dict__")
  except AttributeError:
    return {}
  return own if type(own) is dict else {}


def _parts(value):
  """What a value holds."""
  kind = type(value)
  for base in _mro(kind):
    if base is defaultdict:
      return [value.default_factory, *dict.keys(value), *dict.values(value)]
    if base is dict:
      return [*dict.keys(value), *dict.values(value)]
    if id(base) in _SEQUENCES:
      return base.__iter__(value)
  if id(kind) in _VIEWS:
    return list(value)
  if id(kind) in _BOUND:
    return [value.__self__]
  if kind is functools.partial:
    return [value.func, *value.args, *value.keywords.values()]
  if issubclass(kind, BaseException):
    return [*value.args, *_own(value).values()]
  if issubclass(kind, mock.NonCallableMock):
    own = _own(value)
    return [*own["_mock_children"].values(), *map(own.get, _MADE_BY_MOCKS)]
  if issubclass(kind, types.ModuleType):
    return ()
  module = str(_members(kind).get("__module__"))
  if module == "numpy" and getattr(getattr(value, "dtype", None), "hasobject", False):
    return value.reshape(-1).tolist()
  if module.startswith("pandas.") and hasattr(value, "to_numpy"):
    return value.to_numpy().reshape(-1).tolist()
  if not _flags(kind) & _HEAP_TYPE and hasattr(kind, "__next__"):
    return _sources(value)
  return [*_own(value).values(), *_slots(kind, value)]


def _slots(kind, value):
  for base in _mro(kind):
    for member in _members(base).values() if _flags(base) & _HEAP_TYPE else ():
      if type(member) is types.MemberDescriptorType:
        try:
          yield member.__get__(value)
        except AttributeError:
          continue  # it is empty


def _sources(iterator):
  """What an iterator of Python's own makes its values of, such as the function of a `map`."""
  try:
    return iterator.__reduce__()[1:]
  except (TypeError, AttributeError):
    return ()
