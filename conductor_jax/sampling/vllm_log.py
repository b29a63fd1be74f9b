"""Why a vLLM server ended, from what it wrote."""

import re

# "(EngineCore pid=29755) ERROR 11-29 21:04:16 [core.py:906] "
_PREFIX = re.compile(
    r"^(\([\w -]+ pid=\d+\) )?(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:.]+ "
    r"\[[^\]]+\] ?)?")
# The line of an exception under its traceback, or of a command line that is refused.
_EXCEPTION = re.compile(
    r"(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt|Fault)(?:: .*)?$|[\w.]+: error: .")
# Other processes say with these that one has failed.
_CONSEQUENCE = re.compile(
    r"root cause|EngineDeadError|EngineCore encountered an issue|Failed core proc")
# What pydantic adds to a message.
_NOISE = re.compile(r"\[type=\w+, input_value=.*|For further information visit \S+")
_MARKERS = re.compile(r"\s*[\^~]+$")
_LENGTH = 500
_LINES_WITHOUT_CAUSE = 5


def cause_of_death(text: str) -> str:
  """The exception that ended the server, in one line; its last lines where there is none.

  Several processes write to one log, and all raise when one has failed: what only reports another
  one's failure is left out. The message of an exception may go on in indented lines of the same
  process; one without a message is shown with the statement that raised it.
  """
  origins, lines = _lines(text)
  causes = [index for index, line in enumerate(lines)
            if _EXCEPTION.match(line) and not _CONSEQUENCE.search(line)]
  if not causes:
    return _short(" | ".join(lines[-_LINES_WITHOUT_CAUSE:])) or "it wrote nothing"
  start = causes[-1]
  end = start + 1
  while end < len(lines) and lines[end].startswith("  ") and origins[end] == origins[start]:
    end += 1
  if ": " not in lines[start]:
    start = max(0, start - 2)
  return _short(" ".join(_NOISE.sub("", line) for line in lines[start:end]))


def last_line(text: str) -> str:
  """What it said last, without time and origin.

  Indented lines are parts of warnings and tracebacks, and say little alone.
  """
  _, lines = _lines(text)
  said = [line for line in lines if not line[0].isspace()] or lines
  return _short(said[-1]) if said else "it has written nothing"


def without_vllm(text: str) -> bool:
  """Whether the interpreter found no vLLM."""
  return re.search(r"No module named '?vllm\b", text) is not None


def port_was_taken(text: str) -> bool:
  """Whether the server could not listen."""
  return re.search(r"\[Errno (98|48)\]|address already in use", text, re.IGNORECASE) is not None


def _lines(text):
  """The process that each line is from, None where it is not said, and the lines."""
  origins, lines = [], []
  for line in text.splitlines():
    prefix = _PREFIX.match(line)
    rest = line[prefix.end():].rstrip()
    if rest and not _MARKERS.match(rest):
      origins.append(prefix[1])
      lines.append(rest)
  return origins, lines


def _short(text):
  text = " ".join(text.split())
  return text if len(text) <= _LENGTH else text[:_LENGTH] + " ..."
