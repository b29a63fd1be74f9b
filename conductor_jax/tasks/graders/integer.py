"""A whole number from 0 to 999: AIME."""

import re
from fractions import Fraction

from conductor_jax.tasks.graders.number import compared
from conductor_jax.tasks.task import Grade, GradingError


def grade(reference: str, answer: str) -> Grade:
  """Compares the answer's final number; "073" is 73, and a fraction is wrong whatever its value.

  Raises:
    GradingError: the reference is not a whole number from 0 to 999.
  """
  if not re.fullmatch("[0-9]{1,3}", reference.strip()):
    raise GradingError(f"the reference {reference!r} is not a whole number from 0 to 999")
  return compared(reference, Fraction(int(reference)), answer, whole=True)
