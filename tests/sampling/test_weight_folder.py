"""Versions of the weights on disk: whole, apart, and gone when they should be."""

import contextlib
import dataclasses
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from transformers import AutoTokenizer

from conductor_jax.errors import UserError
from conductor_jax.models.hf_config import read_config
from tests.sampling.tiny_policy import CONFIG, EOS, FOLDER, make_folder, moved, params


@pytest.fixture
def folder(tmp_path):
  with contextlib.closing(make_folder(tmp_path)) as folder:
    yield folder


def names(folder):
  return sorted(path.name for path in folder.folder.iterdir())


def test_a_version_is_a_checkpoint_with_the_tokenizer(folder):
  weights = folder.stage(params(), 12)
  assert weights.folder == folder.folder / "step-000012" and weights.version == 12
  assert weights.name == f"{folder.folder.name}/step-000012"
  assert read_config(weights.folder / "config.json") == dataclasses.replace(CONFIG, tied=False)
  assert AutoTokenizer.from_pretrained(weights.folder).eos_token_id == EOS
  written, original = (load_file(each / "model.safetensors") for each in (weights.folder, FOLDER))
  # The tied head is written out.
  original["lm_head.weight"] = original["model.embed_tokens.weight"]
  assert CONFIG.tied and written.keys() == original.keys()
  assert all(np.array_equal(written[name], original[name]) for name in original)


def test_it_leaves_the_devices_even_where_transfers_are_forbidden(folder):
  with jax.transfer_guard("disallow"):
    weights = folder.stage(params(), 1)
  np.testing.assert_allclose(weights.logprobs, folder.probe.logprobs(params()), rtol=0, atol=1e-6)


def test_a_version_staged_again_has_another_name_and_another_folder(folder):
  first, second = folder.stage(params(), 3), folder.stage(moved(0.1), 3)
  assert (first.folder.name, second.folder.name) == ("step-000003", "step-000003-2")
  assert first.name != second.name and first.version == second.version == 3
  folder.remove_before(second)
  assert folder.stage(params(), 3).folder.name == "step-000003-3"


def test_what_was_staged_before_is_removed_and_what_was_staged_since_is_not(folder):
  weights = [folder.stage(params(), version) for version in (1, 2, 3, 4)]
  folder.remove_before(weights[2])
  assert names(folder) == ["common", "lock", "step-000003", "step-000004"]
  folder.remove_before(weights[2])
  assert names(folder) == ["common", "lock", "step-000003", "step-000004"]


def test_closing_removes_everything(tmp_path):
  folder = make_folder(tmp_path)
  folder.stage(params(), 1)
  folder.close()
  folder.close()
  assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_removed_by_the_next_and_what_a_living_one_has_is_not(
    tmp_path, folder):
  program = (
      "import sys; from pathlib import Path; from tests.sampling.tiny_policy import make_folder\n"
      "folder = make_folder(Path(sys.argv[1])); print(folder.folder, flush=True); input()")
  process = subprocess.Popen(
      [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE,
      stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
      env={**os.environ, "PYTHONPATH": "."})
  other = Path(process.stdout.readline().strip())
  make_folder(tmp_path).close()
  assert other.exists() and folder.folder.exists()
  process.send_signal(signal.SIGKILL)
  process.communicate()
  assert other.exists()
  make_folder(tmp_path).close()
  assert not other.exists() and folder.folder.exists()


@pytest.fixture
def small_root(tmp_path):
  """A file system with room for two versions and a half, where one may be mounted."""
  root = tmp_path / "small"
  root.mkdir()
  mounted = subprocess.run(
      ["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(root)], capture_output=True)
  if mounted.returncode:
    pytest.skip("only root may mount a file system")
  yield root
  subprocess.run(["umount", "--lazy", str(root)], check=True)


def test_a_full_file_system_is_one_line_and_nothing_is_left_of_the_version(small_root):
  folder = make_folder(small_root)
  kept = folder.stage(params(), 1)
  versions = 1
  with pytest.raises(UserError, match=r"No space left on device\): free room there") as fault:
    while versions < 10:
      folder.stage(params(), versions + 1)
      versions += 1
  assert 2 <= versions < 10
  assert "\n" not in str(fault.value) and f"step-{versions + 1:06}" in str(fault.value)
  assert names(folder) == ["common", "lock", *(f"step-{i + 1:06}" for i in range(versions))]
  assert (kept.folder / "model.safetensors").stat().st_size > 70_000
  folder.close()
  assert list(small_root.iterdir()) == []


def test_a_file_that_may_not_grow_is_one_line_too(folder):
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
  try:
    with pytest.raises(UserError, match="step-000001 cannot be written .*File too large"):
      folder.stage(params(), 1)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  assert names(folder) == ["common", "lock"]
  assert folder.stage(params(), 2).folder.exists()


def test_too_little_room_for_two_versions_is_said_before_anything_is_written(small_root):
  (small_root / "other").write_bytes(bytes(300_000))
  with pytest.raises(UserError, match=r"GB free, and two versions of the weights take 0.00 GB"):
    make_folder(small_root)
  assert [path.name for path in small_root.iterdir()] == ["other"]


def test_a_root_that_is_not_there_is_named(tmp_path):
  with pytest.raises(UserError, match=f"there is no {tmp_path}/none"):
    make_folder(tmp_path / "none")
