"""The exceptions that a user is meant to read."""


class UserError(Exception):
  """A fault of input, configuration or environment.

  The message is one line: it names the offending value and what to do about it. Programs print
  it without a traceback and exit with status 2.
  """


class OutOfBudget(UserError):
  """What the run may spend is spent."""
