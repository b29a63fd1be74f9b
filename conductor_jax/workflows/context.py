r"""What a worker is shown: the question, the steps it sees, its own subtask, and fixed labels.

The labels carry no step numbers, for a number would tell a worker of steps it may not see.

In the "messages" style, that is a conversation in which the worker seems to have given the seen
answers itself. Roles alternate and the first turn is the user's, as the strictest chat templates
demand:

    user       Question:\n<question>\n\nSubtask:\n<first seen subtask>
    assistant  <its answer>
    user       Subtask:\n<second seen subtask>
    assistant  <its answer>
    user       Subtask:\n<own subtask>

A step that sees nothing gets its own subtask in the first turn. In the "inlined" style it is all
one user turn:

    Question:\n<question>\n\nSubtask:\n<seen subtask>\n\nResponse:\n<its answer>\n\n
    (... the same for every step seen ...)
    Your subtask:\n<own subtask>

An empty answer is shown as "(empty)": several endpoints refuse a turn without text.

What would not fit into a worker's window is shortened: the oldest answers first, and of each its
beginning, because results stand at the end. "[1234 characters left out]" takes the place of what is
missing. The question and the subtasks are never shortened.
"""

from collections.abc import Sequence
from typing import Literal

Context = Literal["messages", "inlined"]

# What the mark of a shortened answer takes at most, in bytes.
_MARK_LENGTH = 48


def message_context(
    question: str, seen: Sequence[tuple[str, str]], subtask: str
) -> list[dict[str, str]]:
  """The "messages" style.

  Args:
    question: the task's question.
    seen: subtask and answer of each step seen, in step order.
    subtask: the worker's own.
  """
  subtasks = [*(earlier for earlier, _ in seen), subtask]
  turns = [{"role": "user", "content": f"Subtask:\n{text}"} for text in subtasks]
  turns[0]["content"] = f"Question:\n{question}\n\n{turns[0]['content']}"
  for index, (_, answer) in reversed(list(enumerate(seen))):
    turns.insert(index + 1, {"role": "assistant", "content": _visible(answer)})
  return turns


def inlined_context(
    question: str, seen: Sequence[tuple[str, str]], subtask: str
) -> list[dict[str, str]]:
  """The "inlined" style; arguments as for `message_context`."""
  parts = [f"Question:\n{question}"]
  for earlier, answer in seen:
    parts.append(f"Subtask:\n{earlier}\n\nResponse:\n{_visible(answer)}")
  parts.append(f"Your subtask:\n{subtask}")
  return [{"role": "user", "content": "\n\n".join(parts)}]


CONTEXTS = {"messages": message_context, "inlined": inlined_context}


def context_bytes(messages: Sequence[dict[str, str]]) -> int:
  """The length of a conversation's text, in bytes."""
  return sum(_length(message["content"]) for message in messages)


def shorten(seen: Sequence[tuple[str, str]], excess: int) -> list[tuple[str, str]]:
  """Leaves out the beginnings of answers, oldest first.

  Args:
    seen: subtask and answer of each step seen, in step order.
    excess: bytes to leave out, as far as there are so many.

  Returns:
    The same steps. An answer that is hardly longer than the mark is left as it is.
  """
  shortened = []
  for subtask, answer in seen:
    length = _length(answer)
    if excess > 0 and length > _MARK_LENGTH:
      kept = max(length - excess - _MARK_LENGTH, 0)
      data = answer.encode(errors="replace")
      tail = data[length - kept:].decode(errors="ignore")  # a character may be cut in two
      answer = f"[{len(answer) - len(tail)} characters left out]\n{tail}"
      excess -= length - _length(answer)
    shortened.append((subtask, answer))
  return shortened


def _length(text: str) -> int:
  return len(text.encode(errors="replace"))


def _visible(answer: str) -> str:
  return answer if answer.strip() else "(empty)"
