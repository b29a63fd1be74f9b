"""The file of an evaluation's items: a line of JSON for each, on disk before it counts.

An item without a verdict is asked again by the next session, so it may have several lines; the last
one counts.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from conductor_jax.errors import UserError
from conductor_jax.evaluation.item import Item, Key


def read_items(path: Path) -> tuple[dict[Key, Item], int]:
  """Reads the items, the last line of each.

  Returns:
    The items in the order of their first lines, and the length of the file in bytes up to where a
    line is torn, as the last one is when its process was killed. No file holds no items.

  Raises:
    UserError: the file cannot be read, or a line before the last is no item's.
  """
  items: dict[Key, Item] = {}
  whole, torn = 0, None

  def refuse(number: int, fault: Exception) -> NoReturn:
    raise UserError(f"{path}, line {number} is no item ({type(fault).__name__}: {fault}): restore "
                    "or delete the line") from fault

  try:
    with path.open("rb") as file:
      for number, line in enumerate(file, start=1):
        if torn is not None:
          refuse(number - 1, torn)
        try:
          read = json.loads(line)
        except ValueError as fault:
          torn = fault
          continue
        if not line.endswith(b"\n"):
          break
        try:
          item = Item.read(read)
        except (ValueError, KeyError, TypeError) as fault:
          refuse(number, fault)
        items[item.key] = item
        whole += len(line)
  except FileNotFoundError:
    pass
  except OSError as fault:
    raise UserError(f"{path} cannot be read ({fault.strerror}): check its permissions") from fault
  return items, whole


class ItemFile:
  """The items of a work directory, one process at a time; a context manager.

  Attributes:
    items: those of the file and those appended, by their keys.
  """

  def __init__(self, path: Path, *, say: Callable[[str], None]):
    """Opens or makes the file, and cuts off a torn last line.

    Args:
      path: the file.
      say: told of a torn line.

    Raises:
      UserError: another process has it open, or see `read_items`.
    """
    self._path = path
    self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
      fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
      os.close(self._file)
      raise UserError(f"another process writes to {path}: wait for its end, or take another "
                      "--workdir") from fault
    try:
      self.items, whole = read_items(path)
    except UserError:
      os.close(self._file)
      raise
    torn = os.fstat(self._file).st_size - whole
    if torn:
      os.ftruncate(self._file, whole)
      say(f"{path}: dropped the last {torn} bytes, a line whose process was killed; its item is "
          "asked again")

  def append(self, records: Iterable[Mapping[str, Any]]) -> list[Item]:
    """Writes records; they are on disk when it returns.

    Raises:
      UserError: they cannot be written.
    """
    lines = [json.dumps(record, allow_nan=False).encode() + b"\n" for record in records]
    left = memoryview(b"".join(lines))
    try:
      while left:
        left = left[os.write(self._file, left):]
      os.fsync(self._file)
    except OSError as fault:
      raise UserError(f"{self._path} cannot be written ({fault.strerror}): make room, then run the "
                      "same command to go on") from fault
    items = [Item.read(json.loads(line)) for line in lines]
    self.items |= {item.key: item for item in items}
    return items

  def close(self) -> None:
    os.close(self._file)

  def __enter__(self) -> "ItemFile":
    return self

  def __exit__(self, *exception) -> None:
    self.close()
