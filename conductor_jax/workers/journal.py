"""The journal of a run: every request to a worker, in an SQLite file, before its answer is used.

What came of a request is written before the caller is told; that it was begun, as soon as it has
taken a twentieth of a second, and before it is sent where a budget counts on it. A run that was
killed and begins again takes from here what it has paid for. The file is in WAL mode with
`synchronous=NORMAL`: a kill of the process loses nothing that was written, a power cut may lose the
last moments, and neither damages the file.

    SELECT worker, outcome, count(*), sum(cost) FROM attempts GROUP BY worker, outcome;
"""

import asyncio
import hashlib
import itertools
import sqlite3
import time
from collections import defaultdict, deque
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Literal

from conductor_jax.errors import UserError
from conductor_jax.workers.budget import Spending
from conductor_jax.workers.journal_file import JournalFile

# What to do with a call:
#   record            ask the endpoint; but an answer to this very call that the run got before it
#                     was interrupted is used, once
#   replay            take the answer from the journal, whoever recorded it; without one it is an
#                     error, and nothing is sent
#   replay-or-record  take the answer from the journal, and ask the endpoint if there is none
Mode = Literal["record", "replay", "replay-or-record"]

_VERSION = 1
# Seconds in which an attempt ends without having been written before: a tenth of what any language
# model takes.
_AT_ONCE = 0.05


@dataclass(slots=True)
class Attempt:
  """One request: filled in as it goes on, and written twice, when it begins and when it ends.

  Attributes:
    key: of the call, see `call_key`.
    worker: the name of the worker that is asked.
    seed: of the call, None if it has none.
    began: seconds since the epoch.
    request: the JSON body.
    possible_tokens, possible_cost: tokens, and dollars, that it may have taken without an answer,
      at most: all that it could while it is under way, or was when the process was killed; what it
      may have been billed after some faults; 0 where its usage is known.
    outcome: "answered", "truncated" and "refused" as in `call.Outcome`, "failed" for a fault of the
      endpoint, "given up" for a request that was cancelled, "not sent" for a call that ended
      before it had made one; None while it is under way.
    seconds: that it took.
    status: of HTTP, None if there was none.
    prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, cost, estimated: its `Usage`.
    response: the body, as it came; None if there was none.
    error: one line on what went wrong.
    id: of its row, given when it is written.
  """

  key: bytes
  worker: str
  seed: int | None
  began: float
  request: str
  possible_tokens: int
  possible_cost: float
  outcome: str | None = None
  seconds: float | None = None
  status: int | None = None
  prompt_tokens: int = 0
  completion_tokens: int = 0
  cached_tokens: int = 0
  reasoning_tokens: int = 0
  cost: float = 0.0
  estimated: bool = False
  response: bytes | None = None
  error: str | None = None
  id: int | None = None


_COLUMNS = tuple(field.name for field in fields(Attempt))
_row = attrgetter(*_COLUMNS)
_LASTING = ("answered", "truncated", "refused")  # another try would bring no more
_ANSWERS = f"SELECT key, id FROM attempts WHERE outcome IN {_LASTING} ORDER BY id"
_USAGE = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "cost",
          "possible_cost")
_BEFORE = f"""
SELECT key, {", ".join(f"sum({name})" for name in _USAGE)} FROM attempts WHERE outcome = 'failed'
GROUP BY key
"""
_FAILURES = f"SELECT key, max(id) FROM attempts WHERE outcome NOT IN {_LASTING} GROUP BY key"
_SPENT = """
SELECT worker, sum(outcome IS NOT 'not sent'), sum(prompt_tokens + completion_tokens), sum(cost),
       sum(possible_tokens), sum(possible_cost), sum(possible_tokens > 0), sum(estimated)
FROM attempts GROUP BY worker
"""


def call_key(worker: str, request: bytes, seed: int | None) -> bytes:
  """What makes a call the same call: the worker, all that is sent to it, and which sample it is.

  Args:
    worker: its name. Not its address: a local server has another port in every run.
    request: the JSON body, with model, messages and all sampling parameters.
    seed: the sample's; not every endpoint is sent one.

  Returns:
    16 bytes.
  """
  digest = hashlib.blake2b(f"{worker}\0{seed}\0".encode(), digest_size=16)
  digest.update(request)
  return digest.digest()


class Journal:
  """A journal; an async context manager. Its file is made by the first call, before it is sent.

  Args:
    path: the file.
    mode: see `Mode`.

  Raises:
    UserError: the file cannot be used, or there is none to replay.
  """

  def __init__(self, path: Path, mode: Mode = "record"):
    self.path, self.mode = path, mode
    self._file = JournalFile(path, _COLUMNS, _VERSION)
    self._begun: dict[int, Attempt] = {}
    self._timer: asyncio.TimerHandle | None = None
    self._recorded: dict[bytes, deque[int]] = defaultdict(deque)
    self._failed: dict[bytes, tuple[float, ...]] = {}
    self._spent: dict[str, Spending] = {}
    first = 1
    if path.exists():
      first = self._file.read(self._take_up)
    elif mode == "replay":
      raise UserError(f"there is no journal {path} to replay: name one with "
                      "--config.pool.journal.path, or record with --config.pool.journal.mode")
    # Not from 1: another process may write to the same file, and must not replace a row of ours.
    self._ids = itertools.count(max(first, time.time_ns()))

  async def __aenter__(self) -> "Journal":
    return self

  async def __aexit__(self, *exception) -> None:
    self.write_begun()
    await self._file.close()

  def spent(self) -> dict[str, Spending]:
    """What each worker had spent when the journal was opened, by name."""
    return dict(self._spent)

  def find(self, key: bytes) -> Attempt | None:
    """The request that the same call ended with earlier, with the usage of those before it.

    Raises:
      UserError: there is none, and the mode is "replay"; or what will come of the call could not be
        written.
    """
    self._file.open()
    ids = self._recorded.get(key)
    if not ids:
      if self.mode == "replay":
        raise UserError(
            f"the journal {self.path} holds no answer to a call that this run makes: replay the "
            "configuration that it was recorded with, or set "
            "--config.pool.journal.mode=replay-or-record")
      return None
    # Where the same call was made several times, their answers are used in turn.
    found = ids.popleft()
    if self.mode != "record":
      ids.append(found)
    attempt = Attempt(*self._file.fetch(found))
    if attempt.outcome in _LASTING and key in self._failed:
      for name, amount in zip(_USAGE, self._failed.pop(key), strict=True):
        setattr(attempt, name, getattr(attempt, name) + amount)
    return attempt

  def begin(self, attempt: Attempt) -> None:
    """Notes an attempt that is about to be made. It is written unless it ends at once."""
    attempt.id = next(self._ids)
    self._begun[attempt.id] = attempt
    if self._timer is None:
      self._timer = asyncio.get_running_loop().call_later(_AT_ONCE, self.write_begun)

  def end(self, attempt: Attempt) -> None:
    """Notes what came of it. It is written once `written` has returned."""
    self._begun.pop(attempt.id, None)
    if self.mode == "replay-or-record" and attempt.outcome in _LASTING:
      self._recorded[attempt.key].append(attempt.id)
    self._file.write(_row(attempt))

  async def written(self) -> None:
    """Returns when what was noted in this turn of the event loop is written.

    Raises:
      UserError: it cannot be.
    """
    await self._file.committed()

  def write_begun(self) -> None:
    """Notes that the attempts under way have begun. It is written once `written` has returned."""
    if self._timer is not None:
      self._timer.cancel()
      self._timer = None
    begun, self._begun = self._begun, {}
    for attempt in begun.values():
      self._file.write(_row(attempt))

  def _take_up(self, connection: sqlite3.Connection) -> int:
    """Takes up what earlier processes have recorded; returns the first free id."""
    for key, number in connection.execute(_ANSWERS):
      self._recorded[key].append(number)
    self._failed = {key: amounts for key, *amounts in connection.execute(_BEFORE)}
    if self.mode == "replay":  # of calls that brought no answer, what they ended with
      for key, number in connection.execute(_FAILURES):
        if key not in self._recorded:
          self._recorded[key].append(number)
    for worker, *totals in connection.execute(_SPENT):
      self._spent[worker] = Spending(*totals)
    last, = connection.execute("SELECT max(id) FROM attempts").fetchone()
    return (last or 0) + 1
