"""The file of a journal: an SQLite database in WAL mode, written by the event loop itself."""

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conductor_jax.errors import UserError

# Values of a statement that SQLite took before 3.32.
_MOST_VALUES = 999
# Rows from one checkpoint of the WAL to the next.
_CHECKPOINT_ROWS = 2000


class JournalFile:
  """The table "attempts" of one journal. Its file is made by `open`.

  The rows of one turn of the event loop are committed together at its end. That is an append to a
  file which the system keeps in memory, some 20 µs a row, and less than it takes to hand them to a
  thread and to wait for it. What waits for the disk, the checkpoints, is done by a thread.

  Args:
    path: the file.
    columns: of the table, the last of which is the number of a row.
    version: of the format.
  """

  def __init__(self, path: Path, columns: tuple[str, ...], version: int):
    self._path, self._columns, self._version = path, columns, version
    self._connection: sqlite3.Connection | None = None
    self._one_row = f"({', '.join('?' * len(columns))})"
    self._rows: dict[int, tuple] = {}
    self._fault: UserError | None = None
    self._written = 0
    self._checkpoint: asyncio.Future | None = None

  def read(self, function: Callable[[sqlite3.Connection], Any]) -> Any:
    """Lets a function read the database of an earlier run, before it is opened.

    Raises:
      UserError: it cannot be used.
    """
    try:
      with contextlib.closing(self._connected()) as connection:
        return function(connection)
    except sqlite3.Error as fault:
      raise self._unusable(fault) from fault

  def open(self) -> None:
    """Opens the file, or makes it; a second call does nothing.

    Raises:
      UserError: it cannot be used, or something could not be written to it.
    """
    if self._fault is not None:
      raise self._fault
    if self._connection is None:
      try:
        self._connection = self._connected()
      except sqlite3.Error as fault:
        raise self._unusable(fault) from fault

  def fetch(self, number: int) -> tuple:
    """The row of a number, written or about to be."""
    if number in self._rows:
      return self._rows[number]
    try:
      return self._connection.execute(
          f"SELECT {', '.join(self._columns)} FROM attempts WHERE {self._columns[-1]} = ?",
          (number,)).fetchone()
    except sqlite3.Error as fault:
      raise self._unusable(fault) from fault

  def write(self, row: tuple) -> None:
    """Writes a row, in place of one of the same number, at the end of this turn of the loop.

    Raises:
      UserError: the file cannot be opened.
    """
    self.open()
    if not self._rows:
      asyncio.get_running_loop().call_soon(self._commit)
    self._rows[row[-1]] = row

  async def committed(self) -> None:
    """Returns when all that was written in this turn is committed.

    Raises:
      UserError: it cannot be written, or something before it could not.
    """
    await asyncio.sleep(0)  # the commit stands before this task in the loop's queue
    if self._fault is not None:
      raise self._fault

  async def close(self) -> None:
    """Writes what is left, into the database itself.

    Raises:
      UserError: it cannot be written, and nobody was told of a fault before.
    """
    before = self._fault
    self._commit()
    if self._checkpoint is not None:
      await self._checkpoint
    if self._connection is not None:
      await asyncio.to_thread(self._connection.close)
    if before is None and self._fault is not None:
      raise self._fault

  def _commit(self) -> None:
    rows, self._rows = list(self._rows.values()), {}
    most = _MOST_VALUES // len(self._columns)
    try:
      for start in range(0, len(rows), most):
        part = rows[start:start + most]
        self._connection.execute(
            f"INSERT OR REPLACE INTO attempts VALUES {', '.join([self._one_row] * len(part))}",
            list(itertools.chain.from_iterable(part)))
    # The latter two are what SQLite cannot hold, such as a seed of 70 bits.
    except (sqlite3.Error, OverflowError, UnicodeError) as fault:
      self._fault = UserError(
          f"the journal {self._path} cannot be written ({fault}): answers that are paid for would "
          "be lost; mend it and start again")
    self._written += len(rows)
    if self._written >= _CHECKPOINT_ROWS and (
        self._checkpoint is None or self._checkpoint.done()):
      self._written = 0
      self._checkpoint = asyncio.get_running_loop().run_in_executor(None, self._make_checkpoint)

  def _make_checkpoint(self) -> None:
    """Moves what is in the WAL into the database, beside the one who writes to it."""
    # Another process may be at it; the next one will do.
    with contextlib.suppress(sqlite3.Error), \
        contextlib.closing(sqlite3.connect(self._path)) as connection:
      connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

  def _connected(self) -> sqlite3.Connection:
    # It is closed in another thread than it is used in.
    connection = sqlite3.connect(
        self._path, timeout=30, isolation_level=None, check_same_thread=False)
    try:
      version, = connection.execute("PRAGMA user_version").fetchone()
      tables, = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
      if version != self._version and (version or tables):
        raise sqlite3.DatabaseError(f"its format is {version}, and {self._version} is known")
      connection.execute("PRAGMA page_size = 8192")  # a row is some thousand bytes
      connection.execute("PRAGMA journal_mode = WAL")
      connection.execute("PRAGMA synchronous = NORMAL")
      connection.execute("PRAGMA wal_autocheckpoint = 0")
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
