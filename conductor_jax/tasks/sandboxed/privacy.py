"""Keeps what a thread does from the rest of its process: an audit hook, which cannot be removed.

The thread itself is watched, too: a program can have it call a function that is not written in
Python, by leaving it in something's place.
"""

import builtins
import os
import sys
import threading
import types
from _thread import get_ident

# What a program does to the builtins must not reach this file.
__builtins__ = dict(vars(builtins))

_NEVER = ("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._current_exceptions",
          "sys.addaudithook", "sys.monitoring.register_callback")
_OF_MEMORY = ("ctypes.dlsym", "ctypes.dlsym/handle", "ctypes.call_function", "ctypes.cdata",
              "ctypes.cdata/buffer", "ctypes.string_at", "ctypes.wstring_at", "ctypes.addressof",
              "ctypes.PyObj_FromPtr")
_FRAMES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
_INSIDES = ("__code__", "__defaults__", "__kwdefaults__")
_REACHES_ALL_THREADS = hasattr(sys, "_setprofileallthreads")  # from Python 3.12 on
_LIBRARY = f"{os.path.dirname(os.__file__)}/"
_LOADER = "<frozen importlib._bootstrap_external>"
_IMPORTING = (_LOADER, "<frozen importlib._bootstrap>", f"{_LIBRARY}importlib/__init__.py",
              f"{_LIBRARY}ctypes/__init__.py")


class Refused(ImportError, ValueError):
  """What Python's library expects where there is no module, and no frame."""


def trusted_places():
  """Beginnings of the paths of Python's library, and of packages."""
  return (_LIBRARY, *(f"{path}/" for path in sys.path if path.endswith("-packages")))


def keep_private(is_own_turn, ours, tests, open_script, hidden, with_ctypes):
  """Adds the hook, for the thread that this is called in.

  Args:
    is_own_turn: whether that thread runs, and no code of the program in it.
    ours: files whose frames and functions only that thread may see.
    tests: the file of the tests: other threads may see its frames where they run in them.
    open_script: the file that the program's thread starts with.
    hidden: ids of code objects whose functions only that thread may look into.
    with_ctypes: whether the program may import it: it can reach any memory.
  """
  busy, own, main = set(), get_ident(), threading.main_thread().ident
  trusted = trusted_places()
  packages, reserved = trusted[1:], {*ours, tests, open_script}

  def is_private(frame):
    is_test = False
    while frame is not None:
      path = frame.f_code.co_filename
      if path == open_script:
        return False
      if path in ours:
        return True
      is_test = is_test or path == tests
      frame = frame.f_back
    return is_test

  def caller(passed_over=()):
    """The code that an event comes from."""
    frame = sys._getframe(3)
    while frame.f_back is not None and frame.f_code.co_filename in passed_over:
      frame = frame.f_back
    return frame.f_code

  def is_asked_for(name, code):
    """Whether the private thread's own code asks for something by its name."""
    return is_own_turn() and name in code.co_names

  def is_content(path, data, start=0):
    try:
      with open(path, "rb") as file:
        return file.read()[start:] == data
    except OSError:
      return False

  def stack(frame):
    return get_ident() != main and is_private(frame) and not is_asked_for("_getframe", caller())

  def all_stacks():
    return not is_asked_for("_current_frames", caller()) or caller().co_filename not in ours

  def traced():
    return _REACHES_ALL_THREADS or get_ident() == own

  def got(owner, name, *_):
    if name in _FRAMES:
      return is_private(getattr(owner, name)) and not is_asked_for(name, caller())
    if name in _INSIDES and type(owner) is types.FunctionType:
      return owner.__code__.co_filename in ours or (
          id(owner.__code__) in hidden and not is_asked_for(name, caller()))
    return False

  def put(owner, name, *_):
    if name not in _INSIDES or type(owner) is not types.FunctionType:
      return False
    code = owner.__code__
    if code.co_filename.startswith(packages):
      return not caller().co_filename.startswith(packages)
    if code.co_filename.endswith("/unittest/mock.py") and code.co_name in ("checksig", "funcopy"):
      return name == "__code__"
    return code.co_filename in reserved or code.co_filename.startswith(_LIBRARY)

  def imported(name, path, *_):
    if name in ("ctypes", "_ctypes") and not with_ctypes:
      return not caller(_IMPORTING).co_filename.startswith(packages)
    return path is not None and not str.startswith(path, trusted)

  # A code object may have the name of a trusted file only where that has its content.
  def compiled(source, name):
    if type(name) is not str or name in reserved or name.startswith("<frozen"):
      return True
    return name.startswith(trusted) and name.endswith(".py") and not is_content(name, source)

  def unmarshalled(data):
    if not any(path.encode() in data for path in (*trusted, *reserved, "<frozen")):
      return False
    frame = sys._getframe(2)
    return frame.f_code.co_filename != _LOADER or not is_content(
        frame.f_locals.get("bytecode_path") or "", data, 16)

  def made(code, name, *_):
    path = caller().co_filename
    return path != types.__file__ and not path.startswith(packages)

  def opened(name):
    return not with_ctypes and (not name or "/" in os.fsdecode(name) and not os.path.realpath(
        name).startswith(("/usr/", "/lib", *trusted)))

  refuses = {
      "sys._getframe": stack, "sys._current_frames": all_stacks, "sys.settrace": traced,
      "sys.setprofile": traced, "object.__getattr__": got, "object.__setattr__": put,
      "object.__delattr__": put, "import": imported, "compile": compiled,
      "marshal.loads": unmarshalled, "code.__new__": made, "ctypes.dlopen": opened,
      **dict.fromkeys(_NEVER, lambda *_: True),
      **dict.fromkeys(_OF_MEMORY, lambda *_: not is_own_turn())}

  def watch(event, arguments):
    refuse = refuses.get(event)
    thread = get_ident()
    if refuse is None or thread in busy:
      return
    busy.add(thread)
    try:
      refused = refuse(*arguments)
    finally:
      busy.discard(thread)
    if refused:
      raise Refused(f"{event} is refused to a program that is tested")

  sys.addaudithook(watch)
