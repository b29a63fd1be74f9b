"""Folders that appear under their name only when they are complete."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conductor_jax.errors import UserError


def is_free(folder: Path) -> bool:
  """Whether there is no such folder, or nothing in it."""
  return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
  """A temporary folder beside `folder`, which takes its name at the end of the block.

  Files are flushed to disk before. If the block raises, or the process dies, nothing stands under
  the name; what a process that died left behind is removed by the next one.

  Raises:
    UserError: the folder exists and is not empty, or cannot be written.
  """
  folder = folder.absolute()
  if not is_free(folder):
    raise UserError(f"{folder} exists: remove it, or name another folder to write to")
  partial = folder.with_name(f".{folder.name}.partial")
  try:
    if partial.exists():
      shutil.rmtree(partial)
    partial.mkdir(parents=True)
    yield partial
    for path in (*partial.rglob("*"), partial):
      _flush(path)
    partial.rename(folder)
    _flush(folder.parent)
  except OSError as fault:
    shutil.rmtree(partial, ignore_errors=True)
    raise UserError(f"{folder} cannot be written ({fault}): free room there, or name another "
                    "folder") from fault
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise


def _flush(path: Path) -> None:
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
