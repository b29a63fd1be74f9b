"""Workflows that hypothesis draws, of every format and round."""

from hypothesis import strategies as st

from conductor_jax.workflows.lists import ListFormat
from conductor_jax.workflows.workflow import PLAIN_SUBTASK, Step, Workflow

SUBTASKS = st.one_of(
    st.text(min_size=1),
    st.text(alphabet="abefnrtuvxN\\\"'\n\t\r\f\0 []#,=<>/\u2028", min_size=1),
    st.sampled_from(["\nabla", "\neq x", "\times", "\text", "\neg", "\ne.g", "\\n", "<think>"]),
).filter(str.strip)


BINARY = ListFormat()


@st.composite
def workflows(draw, format=BINARY, workers=range(7), previous=False):
  """A workflow that the format can express; without steps in a later round only."""
  planned = []
  for index in range(draw(st.integers(0 if previous else 1, format.max_steps))):
    everything, sees, sees_previous = tuple(range(index)), (), False
    if format.access == "binary" and draw(st.booleans()):
      sees, sees_previous = everything, previous
    elif format.access == "positions":
      sees = tuple(sorted(draw(st.sets(st.integers(0, index - 1))))) if index else ()
      sees_previous = previous and sees == everything and draw(st.booleans())
    subtask = draw(SUBTASKS) if format.subtasks else PLAIN_SUBTASK
    planned.append(Step(draw(st.sampled_from(workers)), subtask, sees, sees_previous))
  return Workflow(tuple(planned))
