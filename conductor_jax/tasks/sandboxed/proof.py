"""Ends with 0 if programs can be run here, and with 3 if as many processes as they like can.

The kernel counts no processes of root's, and it knows a user by its number outside of the sandbox.
"""

import posix
import resource

resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
  child = posix.fork()
except BlockingIOError:
  child = None
if child is not None:
  posix._exit(3)
