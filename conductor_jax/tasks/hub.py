"""Rows of data sets on the Hugging Face hub."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conductor_jax.errors import UserError
from conductor_jax.tasks.benchmark import Hub


def dataset_rows(hub: Hub, split: str, revision: str | None) -> Iterator[tuple[str, Any]]:
  """Yields (place, row) of a split, the place for people.

  Args:
    hub: the data set.
    split: the name of the split.
    revision: a commit, tag or branch of the data set; None for the newest.

  Raises:
    UserError: `datasets` is not installed, or the data set cannot be had.
  """
  try:
    import datasets
  except ImportError as fault:
    raise _not_installed(hub) from fault
  try:
    rows = datasets.load_dataset(hub.dataset, hub.config, split=split, revision=revision)
  except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as fault:
    raise _out_of_reach(hub, f"the split {split!r}", revision, fault) from fault
  for number, row in enumerate(rows, start=1):
    yield f"row {number}", row


def dataset_file(hub: Hub, name: str, revision: str | None) -> Path:
  """Fetches one file of a data set, or finds it where it was fetched to before.

  Raises:
    UserError: `huggingface_hub`, which comes with `datasets`, is not installed, or the file cannot
      be had.
  """
  try:
    import huggingface_hub
  except ImportError as fault:
    raise _not_installed(hub) from fault
  try:
    return Path(huggingface_hub.hf_hub_download(
        hub.dataset, name, repo_type="dataset", revision=revision))
  except (OSError, ValueError, huggingface_hub.errors.EntryNotFoundError) as fault:
    raise _out_of_reach(hub, name, revision, fault) from fault


def _not_installed(hub: Hub) -> UserError:
  return UserError(f"{hub.dataset}: reading the hub needs the package datasets: "
                   'pip install -e ".[hub]", or read files with --config.tasks.source=files')


def _out_of_reach(hub: Hub, part: str, revision: str | None, fault: Exception) -> UserError:
  name = f"{hub.dataset} ({hub.config})" if hub.config else hub.dataset
  at = f" at the revision {revision!r}" if revision else ""
  reason = str(fault).strip().partition("\n")[0] or type(fault).__name__
  return UserError(f"{name}: cannot get {part}{at} from the Hugging Face hub ({reason}); check the "
                   "network, and HF_TOKEN where a data set asks for it, or read files with "
                   "--config.tasks.source=files")
