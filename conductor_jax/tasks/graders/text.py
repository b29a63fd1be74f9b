"""Exact text: the arena's answers."""

from conductor_jax.tasks.graders.markers import last_tagged, without_thinking
from conductor_jax.tasks.task import Grade, GradingError


def _normalised(text: str) -> str:
  return " ".join(text.split()).removesuffix(".").rstrip().casefold()


def grade(reference: str, answer: str) -> Grade:
  """Compares the last `<answer>` tag's content, or the whole answer where there is no tag.

  Case, runs of white space and one trailing full stop make no difference.

  Raises:
    GradingError: the reference is empty.
  """
  expected = _normalised(reference)
  if not expected:
    raise GradingError("the reference is empty")
  tagged = last_tagged(answer)
  extracted = (tagged[1] if tagged else without_thinking(answer)).strip()
  if not extracted:
    return Grade(False, None, "The answer is empty (unparsed).")
  if _normalised(extracted) == expected:
    return Grade(True, extracted, f"The answer is the reference {reference!r}.")
  return Grade(False, extracted, f"The answer is not the reference {reference!r}.")
