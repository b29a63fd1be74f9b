"""The thread that runs unit tests, and tells what becomes of them.

It reads from standard input, as JSON:

    {"key", "tests": source, "beginning": source, what is given of the program, "entry_point"}

and tells, by the channel, lines of `signature number kind …`:

    found name …                   tests, in the order in which they run
    passed name CPU bytes          one of them; processor seconds, most memory of the process so far
    failed name CPU bytes reason   the last one that runs
    stopped reason                 the program does not load, or interferes
    unloaded reason                the tests do not load behind the program
    faulty reason                  the tests cannot be used, whatever the program
"""

import ast
import builtins
import functools
import gc
import json
import os
import sys
import traceback
import types
import unittest
from _blake2 import blake2b
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

from cases import attempt, leave_class, run, take_tests
from privacy import keep_private, trusted_places
from statements import last_line, said, statement_at
from turns import Interference, serve, take_turns

# What a program does to the builtins must not reach this file.
__builtins__ = dict(vars(builtins))

# Tasks that import these may be about threads that go on.
_WITH_THREADS = ("asyncio", "concurrent.futures", "http.server", "sched", "socketserver",
                 "threading")
_CHANNEL, _PR_SET_DUMPABLE, _LONGEST = 3, 4, 2000
_TESTS, _MODULE = "<tests>", "__test__"
_FOLDER = os.path.dirname(__file__)
# Files of code that nobody but this thread may see.
_OURS = {f"{_FOLDER}/{name}.py" for name in (
    "cases", "forgery", "integrity", "judge", "privacy", "statements", "turns")}
_write, _exit = os.write, os._exit


class Unusable(Exception):
  """Nothing can be tested; the kind of message that says so, and the reason."""


def judge(path, calls, results):
  """Tests the program at a path. Its code runs in the thread that serves `calls`."""
  status = 1
  try:
    order = _read()
    tell = _teller(order.pop("key").encode())
    _close_memory()
    try:
      _judge(path, order, tell, calls, results)
    except Unusable as fault:
      tell(*fault.args)
    except Interference as fault:
      tell("stopped", f"the program interferes with its tests: {fault}")
    status = 0
  except BaseException:
    traceback.print_exc()
  finally:
    _exit(status)


def _read():
  data = b""
  while part := os.read(0, 1 << 20):
    data += part
  os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
  os.set_inheritable(_CHANNEL, False)
  return json.loads(data)


def _teller(key):
  count = 0

  def tell(*fields):
    nonlocal count
    count += 1
    text = " ".join(f"{count} {' '.join(fields)}".split())[:_LONGEST].encode("utf-8", "replace")
    line = blake2b(text, key=key, digest_size=16).hexdigest().encode() + b" " + text + b"\n"
    while line:
      line = line[_write(_CHANNEL, line):]

  return tell


def _close_memory():
  """Keeps the memory of this process from all others, and from itself (/proc/self/mem)."""
  import ctypes
  ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
  for name in [name for name in sys.modules if name.partition(".")[0] in ("ctypes", "_ctypes")]:
    del sys.modules[name]


def _judge(path, order, tell, calls, results):
  modules = set()
  for whose in ("beginning", "tests"):
    modules |= _import(order[whose], f"the {whose}", calls, results)
  if "sqlite3" in sys.modules:  # a database may be opened in one thread, and used in the other
    sqlite3 = sys.modules["sqlite3"]
    sqlite3.connect = functools.partial(sqlite3.connect, check_same_thread=False)
  code = compile(order["tests"], _TESTS, "exec", dont_inherit=True)
  named = {node.name for node in ast.walk(ast.parse(order["beginning"]))
           if isinstance(node, ast.ClassDef)}
  turns = take_turns(calls, results, _truster(), modules & set(sys.modules), named,
                     with_threads=not modules.isdisjoint(_WITH_THREADS))
  hidden = set()
  keep_private(turns.is_own, ours=_OURS, tests=_TESTS, open_script=f"{_FOLDER}/unit_tests.py",
               hidden=hidden, with_ctypes="ctypes" in modules)
  namespace = _load(path, order["entry_point"], turns)
  programs, faults = {id(member) for member in namespace.values()}, []
  if not attempt(faults, exec, code, namespace):
    raise Unusable("unloaded", f"the tests do not load: {said(faults[0][0])}")
  _lend(namespace, ast.parse(order["tests"]))
  classes = take_tests(namespace, _MODULE, programs)
  if not classes:
    raise Unusable("faulty", "the tests have no test method: at least one is needed")
  own = [kind for kind in namespace.values() if isinstance(kind, type) and id(kind) not in programs
         and kind.__module__ == _MODULE]
  hidden.update(id(member.__code__) for kind in own for member in vars(kind).values()
                if isinstance(member, types.FunctionType))
  turns.keep([("the tests", namespace, True), *(
      (kind.__name__, vars(kind), True) for kind in own)])
  tell("found", *(test.name for _, tests in classes for test in tests))
  for name, is_test, step in _steps(namespace, classes, turns.begin):
    gc.set_debug(0)  # nothing of a test must be left for the collector's list
    gc.collect()
    began, faults = _used()[0], []
    turns.begin()
    step(faults)
    turns.end()
    seconds, peak = _used()
    used = f"{seconds - began:.6f} {peak}"
    if faults:
      tell("failed", name, used, _where(*faults[0], order["tests"]))
      return
    if is_test:
      tell("passed", name, used)


def _import(source, whose, calls, results):
  """Imports what a source will, so that no program can put something in its place.

  Returns:
    The names of all modules that it may mean.

  Raises:
    Unusable: it cannot be read, or depends on what is not there.
  """
  try:
    tree = ast.parse(source)
  except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
    raise Unusable("faulty", f"{whose} cannot be read: {said(fault)}") from fault
  modules = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      modules.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
      modules.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
    else:
      continue
    code = compile(ast.Module([node], []), _TESTS, "exec", dont_inherit=True)
    try:
      serve(calls, results, exec, (code, {}), {})
    except Exception as fault:
      if node in tree.body:
        raise Unusable("faulty", f"{whose} cannot be used: {said(fault)}") from fault
  return modules


def _truster():
  """A function that tells whether a code object is not the program's."""
  known, trusted = {}, (*trusted_places(), "<frozen ", f"{_FOLDER}/")

  def is_trusted(code):
    # Code objects may be equal though their files are not.
    if id(code) not in known:
      known[id(code)] = code, code.co_filename.startswith(trusted) or code.co_filename == _TESTS
    return known[id(code)][1]

  return is_trusted


def _load(path, entry_point, turns):
  """What the tests see of the program, with a function that crosses over in its function's place.

  Raises:
    Unusable: it does not load, or has no such function.
  """
  module = types.ModuleType(_MODULE)
  sys.modules["__main__"] = sys.modules[_MODULE] = module
  with open(path, "rb") as file:
    source = file.read()
  try:
    turns.cross(exec, (compile(source, path, "exec", dont_inherit=True), vars(module)), {}, False)
  except Interference:
    raise
  except BaseException as fault:
    raise Unusable("stopped", f"the program does not load: {said(fault)}") from fault
  function = vars(module).get(entry_point)
  if not callable(function):
    raise Unusable("stopped", f"the program has no function {entry_point}")
  namespace = dict(vars(module))
  if not isinstance(function, type):
    namespace[entry_point] = functools.update_wrapper(turns.in_place_of(function), function)
  return namespace


def _lend(namespace, tree):
  """Gives the program what its tests import: some rely on it, for elsewhere they are one module."""
  names = vars(sys.modules[_MODULE])
  for node in tree.body:
    for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
      name = alias.asname or alias.name.partition(".")[0]
      if name in namespace:
        names.setdefault(name, namespace[name])


def _steps(namespace, classes, begin):
  """(name, whether it is a test, a function that notes what it raises) of all there is to do."""
  def of_test(kind, test):
    return lambda faults: faults.extend(run(kind, test, begin))

  def of_function(function):
    return lambda faults: attempt(faults, function)

  if "setUpModule" in namespace:
    yield "setUpModule", False, of_function(namespace["setUpModule"])
  for kind, tests in classes:
    yield f"{kind.__name__}.setUpClass", False, of_function(kind.setUpClass)
    for test in tests:
      yield test.name, True, of_test(kind, test)
    yield f"{kind.__name__}.tearDownClass", False, lambda faults, kind=kind: faults.extend(
        leave_class(kind))
  if "tearDownModule" in namespace:
    yield "tearDownModule", False, of_function(namespace["tearDownModule"])
  yield "the clean-up of the tests", False, of_function(unittest.case.doModuleCleanups)


def _used():
  """Processor seconds of this process and its children, and the most memory it has held."""
  own, children = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
  return (own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,
          own.ru_maxrss * 1024)


def _where(fault, trace, source):
  """The statement of the tests that an exception comes from, and the exception."""
  number = last_line(trace, _TESTS)
  return f"{statement_at(source, number)} ({said(fault)})" if number else said(fault)
