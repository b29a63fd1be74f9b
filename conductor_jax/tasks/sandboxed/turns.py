"""Lets the tests' thread call the program in its own, and notices what the program does beside.

Code of the program runs in its own thread, where the tests call its function; and among the tests,
where they use an object of its classes, and where it has put itself in something's place. Before
and after either, what tests are judged by must be what it was.
"""

import builtins
import contextvars
import operator
import sys
import types
import unittest
from _thread import get_ident
from collections.abc import Callable
from time import monotonic, sleep
from typing import NamedTuple
from unittest import mock

from forgery import OPERATORS, inspector
from integrity import change, hold, library, places_of

# What a program does to the builtins must not reach this file.
__builtins__ = dict(vars(builtins))

_attributes = object.__getattribute__
_PATIENCE = 0.5  # seconds for a program's threads to end
_RECORDS = ("_mock_call_args", "_mock_call_args_list", "_mock_mock_calls")


class Interference(BaseException):
  """Ends a test whose program interferes; no test expects it."""


def _sealed(function, **state):
  """A function whose state nobody can read: the hook keeps keyword defaults of it private."""
  sealed = types.FunctionType(function.__code__, {"__builtins__": {}}, function.__name__)
  sealed.__kwdefaults__ = state
  return sealed


def _call(*arguments, _thread, _get_ident, _cross, _function, **options):
  if _get_ident() != _thread:
    return _function[0](*arguments, **options)
  return _cross(_function[0], arguments, options)


def _watch_calls(frame, event, value, *, is_trusted, enter, leave):
  if event == "call":
    if not is_trusted(frame.f_code):
      enter(frame)
  elif event == "return" and not is_trusted(frame.f_code):
    leave(value)


def _new_mock(
    kind, /, *arguments, _new, _new_made, _new_owned, _new_id, _new_thread, _new_get_ident,
    _new_depth, _new_sys, _new_home, _new_trusts, **options):
  one = _new(kind, *arguments, **options)
  _new_made.append(one)
  whole = options.get("_new_parent")
  is_part = whole is not None  # of a mock that there is
  if _new_get_ident() == _new_thread:
    is_own = _new_depth[0] and not is_part
  else:
    frame = _new_sys._getframe(1)
    while not is_part and frame.f_back is not None and frame.f_code.co_filename == _new_home:
      frame = frame.f_back
    is_own = not _new_trusts(frame.f_code)
  if is_own or _new_id(whole) in _new_owned:
    _new_owned[_new_id(one)] = one
  return one


def serve(calls, results, function, arguments, options):
  """Has the program's thread call a function; its context variables are this thread's."""
  context = contextvars.copy_context()
  calls.put((context, function, arguments, options))
  result, fault = results.get()
  for variable, content in context.items():
    if variable.get(calls) is not content:
      variable.set(content)
  if fault is not None:
    raise fault
  return result


class Turns(NamedTuple):
  """What the tests' thread does in dealing with the program.

  Attributes:
    is_own: whether it runs, and no code of the program in it.
    cross: calls a function in the program's thread: (function, arguments, options, and whether to
      look at what they hold afterwards).
    in_place_of: a function that crosses, in the place of one of the program's.
    keep: adds places that the program may not change.
    begin: says that a step of the tests begins, and of which test case it is, if of one.
    end: says that it has ended; raises Interference where the program has interfered.
  """

  is_own: Callable
  cross: Callable
  in_place_of: Callable
  keep: Callable
  begin: Callable
  end: Callable


def take_turns(calls, results, is_trusted, modules, named, with_threads):
  """`Turns` of the thread that this is called in.

  Args:
    calls: the queue that the program's thread serves.
    results: the queue of what comes of it.
    is_trusted: whether a code object is not the program's.
    modules: names of the modules that the tests import.
    named: names of the classes that the task itself has.
    with_threads: whether the program may leave threads behind that go on.
  """
  thread, depth, case, noticed, made, replaced = get_ident(), [0], [None, None], [], [], [None]
  owned = {}  # id -> a mock that the program has made
  fault_of, fault_of_kind = inspector(is_trusted, named, owned)
  mock.NonCallableMock.__new__ = staticmethod(_sealed(
      _new_mock, _new=mock.NonCallableMock.__new__, _new_made=made, _new_owned=owned, _new_id=id,
      _new_thread=thread, _new_get_ident=get_ident, _new_depth=depth, _new_sys=sys,
      _new_home=mock._patch.__init__.__code__.co_filename, _new_trusts=is_trusted))
  judges = places_of([name for name in list(sys.modules) if name.partition(".")[0] == "unittest"],
                     private=True)
  lasting = [("builtins", vars(builtins), True)]
  near, far = [*lasting], library(modules)
  loaded = {name: sys.modules[name] for name in modules}
  fixed, entered, begun = hold(judges), [], []

  def notice(fault):
    if fault is not None:
      noticed.append(fault)

  def check():
    if noticed:
      raise Interference(noticed[0])

  def look(places, held, told):
    notice(_changed(judges, fixed) or _changed(places, held) or _of_modules(loaded)
           or _of_mocks(made, told, fault_of) or _of_case(*case))

  def cross(function, arguments, options, looks=True):
    places = near + far
    held, told = hold(places), _told(made)
    try:
      result = serve(calls, results, function, arguments, options)
    except BaseException as fault:
      notice(None if with_threads else _of_threads(thread, is_trusted))
      look(places, held, told)
      notice(fault_of(fault))
      check()
      raise
    notice(None if with_threads else _of_threads(thread, is_trusted))
    look(places, held, told)
    notice(fault_of([result, arguments, options]) if looks else None)
    check()
    return result

  def enter(frame):
    if not depth[0]:
      notice(_changed(judges, fixed))
      entered[:] = hold(near), _told(made)
    depth[0] += 1
    code = frame.f_code
    if code.co_argcount:
      notice(fault_of_kind(type(frame.f_locals.get(code.co_varnames[0]))))

  def leave(value):
    notice(fault_of(value))
    depth[0] = max(0, depth[0] - 1)
    if not depth[0] and entered:
      look(near, *entered)

  def begin(one=None):
    depth[0], case[:], begun[:] = 0, [one, type(one)], hold(lasting)

  def end():
    notice(_changed(judges, fixed) or _changed(lasting, begun) or _of_case(*case))
    begin()
    check()

  stands_in = _sealed(
      _call, _thread=thread, _get_ident=get_ident, _cross=cross, _function=replaced)

  def in_place_of(function):
    replaced[0] = function
    return stands_in

  sys.setprofile(_sealed(_watch_calls, is_trusted=is_trusted, enter=enter, leave=leave))
  return Turns(lambda: get_ident() == thread and not depth[0], cross, in_place_of, near.extend,
               begin, end)


# Each of these says how a program interferes, or None.


def _changed(places, held):
  name = change(places, held)
  return None if name is None else f"it changes {name}"


def _of_modules(loaded):
  return next((f"it changes sys.modules[{name!r}]" for name, module in loaded.items()
               if sys.modules.get(name) is not module), None)


def _of_mocks(made, told, fault_of):
  for (number, name), now in _told(made).items():
    before = told.get((number, name), ())
    if len(before) != len(now) or any(map(operator.is_not, before, now)):
      return f"it tells a mock what {name} comes to"
  for one in made:
    own = _attributes(one, "__dict__")
    for name in (*own, *vars(type(one))):
      if str.startswith(name, "assert"):
        return f"it changes {name} of a mock"
    fault = fault_of([own.get(record) for record in _RECORDS])
    if fault:
      return fault
  return None


def _told(made):
  """What has been set that operators of mocks come to, which is otherwise up to themselves."""
  found = {}
  for number, one in enumerate(made):
    for name, member in vars(type(one)).items():
      if name not in OPERATORS or type(member) is mock.MagicProxy:
        continue
      if not issubclass(type(member), mock.NonCallableMock):
        found[number, name] = (member,)
        continue
      own = _attributes(member, "__dict__")
      result, effect = own.get("_mock_return_value"), own.get("_mock_side_effect")
      # A mock of its own accord gives these, or another mock.
      if (result is not mock._return_values.get(name, mock.DEFAULT)
          and not issubclass(type(result), mock.NonCallableMock)
          or effect is not None and name not in mock._side_effect_methods):
        found[number, name] = (member, result, effect)
  return found


def _of_case(case, kind):
  if case is None:
    return None
  if type(case) is not kind:
    return "it changes the class of a test"
  return next((f"it changes {name} of a test" for name, member in vars(case).items()
               if callable(member) and hasattr(unittest.TestCase, name)), None)


def _of_threads(thread, is_trusted):
  """Whether another thread still runs code of the program: it could change things unseen."""
  deadline = monotonic() + _PATIENCE
  while any(_runs_program(frame, is_trusted) for ident, frame in sys._current_frames().items()
            if ident != thread):
    if monotonic() > deadline:
      return "a thread of its own goes on behind it"
    sleep(_PATIENCE / 100)
  return None


def _runs_program(frame, is_trusted):
  while frame is not None:
    if not is_trusted(frame.f_code):
      return True
    frame = frame.f_back
  return False
