"""A whole number from 0 to 999: AIME."""

import re

from conductor_jax.tasks.graders.number import extract
from conductor_jax.tasks.task import Grade, GradingError


def grade(reference: str, answer: str) -> Grade:
  """Compares the answer's final number; "073" is 73, and a fraction is wrong whatever its value.

  Raises:
    GradingError: the reference is not a whole number from 0 to 999.
  """
  if not re.fullmatch("[0-9]{1,3}", reference.strip()):
    raise GradingError(f"the reference {reference!r} is not a whole number from 0 to 999")
  found = extract(answer)
  if found is None:
    return Grade(False, None, "The answer holds no number (unparsed).")
  if found.value is None or found.value.denominator > 1:
    return Grade(False, found.text, f"The answer ends in {found.text!r:.60}, which is not one "
                 f"whole number such as the reference {reference}.")
  correct = found.value == int(reference)
  return Grade(correct, found.text, f"The answer's final number, {found.text}, "
               f"{'equals' if correct else 'is not'} the reference {reference}.")
