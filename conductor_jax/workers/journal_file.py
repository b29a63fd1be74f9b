"""The file of a journal: an SQLite database that one thread writes, many rows at a time."""

import asyncio
import contextlib
import itertools
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conductor_jax.errors import UserError

# Seconds from one commit to the next at least: each takes time from everybody.
_APART = 0.003
# Rows of a statement. SQLite before 3.32 takes 999 values.
_CHUNKS = (32, 8, 1)


class JournalFile:
  """A table of one journal, and the thread that alone uses it.

  While the thread commits some rows, those that come wait for the next commit. The file is made by
  the first use.

  Args:
    path: the file.
    columns: of the table "attempts", the last of which is the number of a row.
    version: of the format.
  """

  def __init__(self, path: Path, columns: tuple[str, ...], version: int):
    self._path, self._columns, self._version = path, columns, version
    self._connection: sqlite3.Connection | None = None
    self._loop: asyncio.AbstractEventLoop | None = None
    self._queue: queue.SimpleQueue = queue.SimpleQueue()
    self._thread: threading.Thread | None = None
    self._last_commit = 0.0

  async def open(self) -> None:
    """Makes the file if it is not there.

    Raises:
      UserError: it cannot be used.
    """
    if self._connection is None:
      await self.do(lambda connection: None)

  def read(self, function: Callable[[sqlite3.Connection], Any]) -> Any:
    """Lets a function use the database now, in the caller's thread, before the first other use.

    Raises:
      UserError: it cannot be used.
    """
    try:
      with contextlib.closing(self._opened()) as connection:
        return function(connection)
    except sqlite3.Error as fault:
      raise self._unusable(fault) from fault

  async def do(self, function: Callable[[sqlite3.Connection], Any]) -> Any:
    """Lets a function use the database, after all rows that were put before.

    Raises:
      UserError: it cannot be used.
    """
    return await self._enqueue(function)

  def write(self, row: tuple) -> asyncio.Future:
    """Writes a row, in place of one of the same number; the future is done when it is committed.

    The future's exception is a UserError if it cannot be written.
    """
    return self._enqueue(row)

  async def close(self) -> None:
    """Writes what is left, and ends the thread."""
    if self._thread is None:
      return
    with contextlib.suppress(UserError):  # whoever waited for it has been told
      await self._enqueue(None)
    self._thread.join()

  def _enqueue(self, work: tuple | Callable | None) -> asyncio.Future:
    if self._thread is None:
      self._loop = asyncio.get_running_loop()
      # Of a program that ends in a fault, all that anybody relied upon is written.
      self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
      self._thread.start()
    done = self._loop.create_future()
    self._queue.put((work, done))
    return done

  # What follows runs in the thread.

  def _run(self) -> None:
    going_on = True
    while going_on:
      batch = self._batch()
      rows = {work[-1]: work for work, _ in batch if isinstance(work, tuple)}
      fault = self._insert(list(rows.values())) if rows else None
      results = []
      for work, done in batch:
        if callable(work):
          results.append((done, *self._result(work)))
        else:
          results.append((done, None, fault))
          going_on = going_on and work is not None
      if not going_on and self._connection is not None:
        self._connection.close()
      self._loop.call_soon_threadsafe(_settle, results)

  def _batch(self) -> list[tuple[Any, asyncio.Future]]:
    """Waits for work; all that there is, when it is time for another commit."""
    batch = [self._queue.get()]
    time.sleep(max(0.0, self._last_commit + _APART - time.monotonic()))
    with contextlib.suppress(queue.Empty):
      while True:
        batch.append(self._queue.get_nowait())
    self._last_commit = time.monotonic()
    return batch

  def _insert(self, rows: list[tuple]) -> UserError | None:
    """Commits rows; returns what went wrong."""
    one = f"({', '.join('?' * len(self._columns))})"
    start = 0
    try:
      connection = self._connect()
      # One statement is one turn at the interpreter's lock, whatever the number of its rows.
      for size in _CHUNKS:
        while len(rows) - start >= size:
          connection.execute(
              f"INSERT OR REPLACE INTO attempts VALUES {', '.join([one] * size)}",
              list(itertools.chain.from_iterable(rows[start:start + size])))
          start += size
    # The latter two are what SQLite cannot hold, such as a seed of 70 bits.
    except (sqlite3.Error, OSError, OverflowError, UnicodeError) as fault:
      return UserError(f"the journal {self._path} cannot be written ({fault}): answers that are "
                       "paid for would be lost; mend it and start again")
    return None

  def _result(self, function: Callable[[sqlite3.Connection], Any]) -> tuple[Any, Exception | None]:
    try:
      return function(self._connect()), None
    except sqlite3.Error as fault:
      return None, self._unusable(fault)

  def _connect(self) -> sqlite3.Connection:
    if self._connection is None:
      self._connection = self._opened()
    return self._connection

  def _opened(self) -> sqlite3.Connection:
    connection = sqlite3.connect(self._path, timeout=30, isolation_level=None)
    try:
      version, = connection.execute("PRAGMA user_version").fetchone()
      tables, = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
      if version != self._version and (version or tables):
        raise sqlite3.DatabaseError(f"its format is {version}, and {self._version} is known")
      connection.execute("PRAGMA page_size = 8192")  # a row is some thousand bytes
      connection.execute("PRAGMA journal_mode = WAL")
      connection.execute("PRAGMA synchronous = NORMAL")
      connection.executescript(f"""
          BEGIN IMMEDIATE;
          CREATE TABLE IF NOT EXISTS attempts ({", ".join(self._columns)} INTEGER PRIMARY KEY);
          PRAGMA user_version = {self._version};
          COMMIT;""")
    except sqlite3.Error:
      connection.close()
      raise
    return connection

  def _unusable(self, fault: sqlite3.Error) -> UserError:
    return UserError(f"{self._path} cannot be used as a journal ({fault}): name another one with "
                     "--config.pool.journal.path")


def _settle(results: list[tuple[asyncio.Future, Any, Exception | None]]) -> None:
  for done, result, fault in results:
    if done.done():
      continue  # whoever waited was cancelled
    if fault is not None:
      done.set_exception(fault)
      done.exception()  # not everybody waits
    else:
      done.set_result(result)
