"""Folders that appear under their name only when they are complete."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conductor_jax.errors import UserError


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
  """A temporary folder beside `folder`, which takes its name at the end of the block.

  Files are flushed to disk before. If the block raises, or the process dies, nothing stands under
  the name; what a process that died left behind is removed by the next one.

  Raises:
    UserError: the folder exists and is not empty.
  """
  folder = folder.absolute()
  if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
    raise UserError(f"{folder} exists: remove it, or name another folder to write to")
  partial = folder.with_name(f".{folder.name}.partial")
  shutil.rmtree(partial, ignore_errors=True)
  partial.mkdir(parents=True)
  try:
    yield partial
    for path in (*partial.iterdir(), partial):
      _flush(path)
    partial.rename(folder)
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise
  _flush(folder.parent)


def _flush(path: Path) -> None:
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
