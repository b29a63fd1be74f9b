"""Runs unit tests on the function of a program that shares their process (BigCodeBench).

    unit_tests.py PROGRAM

What to test and how is read from standard input, see `judge.py`, which also says what is told.

Such tests patch modules, and compare objects of any class: they cannot be kept in another process.
So a program could reach what judges it, and is held off from there by all of the following.

- The tests have a thread of their own. This one is the program's: what it sees of its callers is
  the few lines below, which know nothing.
- The tests are in no file, and each test function is in no class, but known to its thread alone.
- An audit hook, which cannot be removed, keeps the rest of the other thread's frames, the
  collector's lists, and what functions of the tests consist of from the program (`privacy.py`).
- What judges is compared with what it was whenever the program has had a turn, and where code of
  the program runs among the tests, before and after it (`integrity.py`). So is what else the tests
  import: functions and classes may not be exchanged.
- Whatever the program hands to the tests may not bring comparisons of its own, nor equal
  everything (`forgery.py`).
- A test has passed only if it came to its end, and that is told under a key that the program does
  not know.

What remains possible in principle:

- to write to the memory of this process past Python, where NumPy, ctypes or a fault in an extension
  gives the means;
- to change the judges, and back before anyone looks, in a thread of a task that is about threads,
  or by functions not written in Python that are left in place of what a test uses, as `sys.stdout`;
- to find what is in no test function, but in a class or a module of the tests;
- to use what a test itself hands over, such as a function that closes over what it expects;
- to have whatever method a test asks for without looking at the class of its object, in a class
  that is derived from one of a library.
"""

import _thread
import os
import sys
from queue import SimpleQueue

sys.path[0] = __file__.rpartition("/")[0]
import judge  # noqa: E402

calls, results = SimpleQueue(), SimpleQueue()
_thread.start_new_thread(judge.judge, (sys.argv.pop(), calls, results))
for name in ("cases", "forgery", "integrity", "judge", "privacy", "statements", "turns"):
  del sys.modules[name]
sys.path[0] = os.getcwd()
del judge, name
# The functions of the other thread are out of reach from here on.
while True:
  context, function, arguments, options = calls.get()
  try:
    result = context.run(function, *arguments, **options), None
  except BaseException as fault:
    result = None, fault
  results.put(result)
  del context, function, arguments, options, result
