"""List plans in random styles of writing."""

import numpy as np

from conductor_jax.workflows.workflow import Step, Workflow

_WORDS = ("Find", "the", "sum", "of", "all", "números", "“quotes”", "日本", "😀", "naïve", "x=1",
          "[0]", "don't", 'say "so"', "a\\b", "tab\there", "line\nbreak", "ﬁn", "e\u0301", "#1",
          "$y$")


def drawn_lists(generator: np.random.Generator, workers: int = 7) -> tuple[str, Workflow]:
  """Draws a completion with "positions" access, and the workflow that it says."""
  def pick(*options):
    return options[int(generator.integers(len(options)))]

  def blank() -> str:
    return pick("", "", " ", "  ", "\n  ", " # why\n ")

  steps, entries = [], {"model_id": [], "subtasks": [], "access_list": []}
  for index in range(int(generator.integers(1, 6))):
    worker = int(generator.integers(workers))
    words = [pick(*_WORDS) for _ in range(int(generator.integers(1, 7)))]
    subtask = " ".join(words)
    everything = pick(True, False, False)
    sees = tuple(range(index)) if everything else tuple(
        i for i in range(index) if generator.random() < 0.5)
    shuffled = [int(i) for i in generator.permutation(sees)] if sees else []
    entries["model_id"].append(str(worker))
    entries["subtasks"].append(_quoted(subtask, pick))
    entries["access_list"].append(
        pick('"all"', "['all']", '[ "all" ]') if everything
        else f"[{blank()}{(',' + blank()).join(map(str, shuffled))}{blank()}]")
    steps.append(Step(worker, subtask, sees))
  lists = []
  for name, items in entries.items():
    comma = pick("", ",") if items else ""
    body = ("," + blank()).join(items)
    lists.append(f"{name}{pick(' ', '')}={pick(' ', '')}[{blank()}{body}{comma}{blank()}]"
                 f"{pick('', ' ', ' # so', ';')}\n")
  before = pick("", "I think so 😀.\n", "<think>model_id = [9]\n</think>\n", "```python\n")
  return before + pick("", "\n").join(lists) + pick("", "```", "Done."), Workflow(tuple(steps))


def _quoted(text: str, pick) -> str:
  """A literal of a text, in one of the styles that can hold it."""
  styles = []
  for quote in "'\"":
    escaped = "".join(
        {"\n": "\\n", "\t": "\\t", "\\": "\\\\", quote: "\\" + quote}.get(c, c) for c in text)
    styles.append(f"{quote}{escaped}{quote}")
    if not set(text) & {"\n", "\t", "\\", quote}:
      styles.append(f"r{quote}{text}{quote}")
    styles.append(quote + "".join(
        c if c.isascii() and c.isalnum() or c == " " else f"\\U{ord(c):08x}" for c in text) + quote)
  return pick(*styles)
