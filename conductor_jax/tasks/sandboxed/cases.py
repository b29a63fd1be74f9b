"""Finds the tests of `unittest` classes, and runs them one by one, without a runner.

A test function is taken out of its class before any of them runs, so that nobody finds it there.
"""

import builtins
import functools
import sys
import unittest
from typing import Any, NamedTuple

# What a program does to the builtins must not reach this file.
__builtins__ = dict(vars(builtins))


class Test(NamedTuple):
  """A test function; `expects_failure` where it passes by failing."""

  name: str
  function: Any
  is_skipped: bool
  expects_failure: bool


def take_tests(namespace, module, others):
  """(class, tests) of every class that has some, in the order of `unittest`.

  Args:
    namespace: of the tests, after they have been loaded.
    module: the name of their module.
    others: ids of classes that are not theirs.
  """
  kinds = sorted({id(kind): kind for kind in namespace.values() if isinstance(kind, type)
                  and issubclass(kind, unittest.TestCase) and kind.__module__ == module
                  and id(kind) not in others}.values(), key=lambda kind: kind.__name__)
  found = [(kind, list(_tests(kind))) for kind in kinds]
  functions = {id(test.function) for _, tests in found for test in tests}
  for base in {base for kind in kinds for base in kind.__mro__ if base.__module__ == module}:
    for name in [name for name, member in vars(base).items() if id(member) in functions]:
      delattr(base, name)
  kept = [(kind, [test for test in tests if not test.is_skipped]) for kind, tests in found]
  return [(kind, tests) for kind, tests in kept if tests]


def _tests(kind):
  for name in sorted(dir(kind)):
    if name.startswith("test") and callable(getattr(kind, name)):
      function = next(vars(base)[name] for base in kind.__mro__ if name in vars(base))
      yield Test(
          f"{kind.__name__}.{name}", function,
          any(getattr(one, "__unittest_skip__", False) for one in (kind, function)),
          getattr(function, "__unittest_expecting_failure__", False))


def attempt(faults, function, *arguments):
  """Calls a function; notes what it raises, with where, and says whether it raised nothing."""
  try:
    function(*arguments)
  except BaseException as fault:
    faults.append((fault, sys.exc_info()[2]))
    return False
  return True


def run(kind, test, begin):
  """What a test and its surroundings raise, with where, in order.

  Args:
    kind: its class.
    test: the test.
    begin: called with the instance.
  """
  faults = []
  case = kind("runTest")
  case._testMethodName = test.name.partition(".")[2]
  begin(case)
  has_loop = isinstance(case, unittest.IsolatedAsyncioTestCase)
  if has_loop:
    case._setupAsyncioRunner()
  if attempt(faults, case._callSetUp):
    attempt(faults, case._callTestMethod, test.function.__get__(case, kind))
    if test.expects_failure:
      faults[:] = [] if faults and isinstance(faults[0][0], Exception) and not isinstance(
          faults[0][0], unittest.SkipTest) else [(AssertionError("it was to fail"), None)]
    attempt(faults, case._callTearDown)
  while case._cleanups:
    function, arguments, options = case._cleanups.pop()
    attempt(faults, functools.partial(case._callCleanup, function, *arguments, **options))
  if has_loop:
    attempt(faults, case._tearDownAsyncioRunner)
  return faults


def leave_class(kind):
  """What the end of a class raises."""
  faults = []
  attempt(faults, kind.tearDownClass)
  kind.doClassCleanups()
  return faults + [(fault, trace) for _, fault, trace in kind.tearDown_exceptions]
